"""Pub/Sub's emulator, started once, and a fresh corner of it for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leanops.runtimes.embedded import create_home
from tests.support.engines import require
from tests.support.pubsub.cloud import Cloud
from tests.support.pubsub.emulator import pubsub


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with require(pubsub) as found:
        yield found


@pytest.fixture
def cloud(address: str) -> Iterator[Cloud]:
    with Cloud(address) as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return create_home(tmp_path / "home")
