"""Traces of unexpected failures: kept in the home, private, bounded, and without data."""

import logging
import shutil
import threading
from pathlib import Path

import pytest

from leanops.adapters.files.traces import MOST_BYTES, WITHHELD, Traces
from leanops.domain.errors import PermanentError
from leanops.runtimes.embedded import Embedded
from leanops.usecases.workers import Part, Worker
from tests.support.builders import Clock, event, land
from tests.unit.conftest import Leanops

SECRET = "jane@example.org"
JAVA = f"""An error occurred while calling o17.count.
: org.apache.spark.SparkException: {SECRET}
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2856)
\tat {SECRET}(Payload.java:1)
Caused by: java.lang.ArithmeticException: {SECRET}
\tat java.base/java.lang.Thread.run(Unknown Source)
"""


def raised(failure: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise failure from cause
    except Exception as caught:  # noqa: BLE001 - with its trace
        return caught


def test_a_trace_has_classes_and_frames_and_none_of_a_foreign_text(tmp_path: Path) -> None:
    traces = Traces(tmp_path / "logs", Clock())
    assert traces.keep(raised(RuntimeError(JAVA), raised(ValueError(SECRET))))
    said = traces.file.read_text()
    assert SECRET not in said
    assert said.startswith("2026-11-15 08:00:00 UTC, process ")
    assert f"builtins.ValueError: {WITHHELD}\nwhich led to\n" in said
    assert "in raised" in said
    assert said.rstrip().splitlines()[-3:] == [
        "  at org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2856)",
        "  java.lang.ArithmeticException",
        "  at java.base/java.lang.Thread.run(Unknown Source)",
    ]


def test_our_own_texts_and_names_of_files_are_told(tmp_path: Path) -> None:
    traces = Traces(tmp_path / "logs")
    traces.keep(raised(PermanentError("ours"), raised(FileNotFoundError(2, "no such file", "/data/metadata.json"))))
    said = traces.file.read_text()
    assert "PermanentError: ours" in said
    assert "FileNotFoundError: [Errno 2] no such file: '/data/metadata.json'" in said


def test_traces_are_private_and_take_two_megabytes_at_most(tmp_path: Path) -> None:
    traces = Traces(tmp_path / "logs")
    traces.keep(raised(ValueError()))
    assert (traces.file.stat().st_mode & 0o777, traces.file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    for _ in range(2):
        with traces.file.open("a") as file:
            file.write("x" * MOST_BYTES)
        traces.keep(raised(ValueError()))
        assert traces.file.stat().st_size < MOST_BYTES
    assert sorted(path.name for path in traces.file.parent.iterdir()) == ["failures.log", "failures.log.1"]


def test_a_disk_that_takes_no_trace_adds_no_failure(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    assert not Traces(tmp_path / "logs").keep(ValueError())


@pytest.fixture
def broken(runtime: Embedded) -> Path:
    """A home whose RAW points to a file that is gone."""
    land(runtime.platform, "orders", [event()])
    shutil.rmtree(runtime.home / "warehouse")
    return runtime.home


def test_a_cycle_names_the_file_of_its_trace_and_prints_it_on_demand(
    leanops: Leanops, broken: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = broken / "logs" / "failures.log"
    logging.getLogger("leanops").setLevel(logging.INFO)
    ran = leanops("cycle", "--json")
    assert ran.json["reason"] == f"FileNotFoundError from the engine; its trace is in {log}"
    assert "metadata.json" in log.read_text()
    assert "Traceback" not in ran.err + caplog.text
    leanops("--debug", "cycle")
    assert "Traceback" in caplog.text


def test_a_part_of_serve_keeps_its_trace_too(runtime: Embedded) -> None:
    stopping, platform = threading.Event(), runtime.platform

    def turn() -> int:
        stopping.set()
        raise ValueError(SECRET)

    worker = Worker(
        Part("delivery", turn, 1.0), platform.state, platform.clock, "one", stopping, explain=platform.explain
    )
    worker.run()
    log = runtime.home / "logs" / "failures.log"
    assert worker.error == f"ValueError from the engine; its trace is in {log}"
    assert "in turn" in log.read_text()
    assert SECRET not in log.read_text()
