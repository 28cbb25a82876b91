"""`leanops serve`: it goes on when nobody reads its log, and ends with a code when a part is gone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leanops.runtimes import background
from leanops.runtimes.embedded import Embedded
from leanops.usecases.ingest.publish import publish
from leanops.usecases.topics.registry import add_topic
from leanops.usecases.workers import Part
from tests.support.builders import event
from tests.support.pubsub.processes import LEANOPS, until
from tests.unit.conftest import Leanops


@pytest.fixture
def signals() -> Iterator[None]:
    """The handlers that `serve` replaces are those of before afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_part_that_is_gone_is_an_exit_code_and_one_line(
    home: Path, leanops: Leanops, monkeypatch: pytest.MonkeyPatch, signals: None
) -> None:
    def die() -> int:
        raise SystemExit(1)

    parts = [Part("delivery", die, 0.0), Part("cycles", lambda: 0, 30.0)]
    monkeypatch.setattr(background, "parts_of", lambda *_: parts)
    ended = leanops("serve")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert ended.err.startswith("error: delivery ended unexpectedly (SystemExit)")


def test_events_land_though_the_reader_of_the_log_has_gone(home: Path) -> None:
    (home / "leanops.toml").write_text("[delivery]\nflush_s = 1\n")
    command = [sys.executable, "-c", LEANOPS, "serve", "--only", "processor", "--only", "delivery"]
    environment = os.environ | {"LEANOPS_HOME": str(home)}
    runtime = Embedded(home)
    add_topic(runtime.platform, "orders")
    serving = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert serving.stdout is not None
        assert serving.stdout.readline().startswith(b"serving")
        serving.stdout.close()
        for number in range(1, 4):
            publish(runtime.platform, runtime.queue, runtime.files, "orders", [event(f"m{number}")])
            until(lambda landed=number: runtime.platform.catalog.count("iceberg_raw_db.orders_staging") == landed)
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(30) == 0
    finally:
        serving.kill()
        serving.communicate()
        runtime.close()
