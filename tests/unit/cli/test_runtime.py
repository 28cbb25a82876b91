"""The runtime is chosen by its name in the environment."""

from pathlib import Path

import pytest

from tests.unit.conftest import Leanops


@pytest.mark.parametrize("name", ["embedded", ""])
def test_the_embedded_runtime_can_be_named_and_is_the_default(
    leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LEANOPS_RUNTIME", name)
    assert leanops("topics", "add", "orders").code == 0
    assert [topic["topic"] for topic in leanops("topics", "list", "--json").json] == ["orders"]


def test_an_unknown_runtime_is_refused_with_those_there_are(
    leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_RUNTIME", "laptop")
    ran = leanops("topics", "list")
    assert (ran.code, ran.err) == (2, "error: LEANOPS_RUNTIME=laptop is not a runtime; choose one of: embedded\n")
