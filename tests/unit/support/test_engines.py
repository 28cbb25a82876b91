"""A missing engine is skipped by name on a user's machine and fails in CI."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.engines import MissingEngineError, require


@contextmanager
def missing() -> Iterator[str]:
    raise MissingEngineError("Acme is missing: install acme")
    yield ""


@contextmanager
def running() -> Iterator[str]:
    yield "address"


def test_a_missing_engine_is_skipped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match="install acme"), require(missing):
        pass


def test_a_missing_engine_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match="install acme"), require(missing):
        pass


def test_a_running_engine_gives_its_address() -> None:
    with require(running) as address:
        assert address == "address"


def test_errors_of_the_test_itself_are_no_missing_engine() -> None:
    with pytest.raises(MissingEngineError, match="from the test"), require(running):
        raise MissingEngineError("from the test")
