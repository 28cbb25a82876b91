"""Tasks on Spark: in order, each by itself, and a worker that is killed takes only its own item with it."""

import gc
import os
import signal
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from leanops.adapters.iceberg.batches.spark import SparkRunner
from leanops.domain.errors import CommitRefusedError, EngineUnavailableError, StateConflictError
from leanops.runtimes.embedded import Embedded


class Marked:
    """A function that notes in a folder what it did, and fails for some numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, number: int) -> int:
        with (self.folder / str(number)).open("a") as tries:
            tries.write("x")
        if number == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 7:
            raise CommitRefusedError("not seven")
        if number == 8:
            # Its constructor takes two arguments, so it cannot be made again from its text.
            raise StateConflictError("table", ["key"])
        return number * 2


@pytest.fixture
def runner(embedded: Embedded) -> SparkRunner:
    return SparkRunner(embedded.spark)


def test_answers_come_in_order_and_a_failure_is_one_of_them(runner: SparkRunner, tmp_path: Path) -> None:
    answers = runner.run(Marked(tmp_path), [1, 7, 2, 8])
    assert (answers[0], str(answers[1]), answers[2]) == (2, "not seven", 4)
    assert isinstance(answers[1], CommitRefusedError)
    assert isinstance(answers[3], EngineUnavailableError)
    assert "StateConflictError" in str(answers[3])


def test_a_worker_that_is_killed_takes_only_its_own_item_with_it(runner: SparkRunner, tmp_path: Path) -> None:
    answers = runner.run(Marked(tmp_path), [1, 13, 2])
    assert [answer for answer in answers if not isinstance(answer, Exception)] == [2, 4]
    assert isinstance(answers[1], Exception)
    assert set((tmp_path / "13").read_text()) == {"x"}


def _surroundings(_: int) -> tuple[list[str], bool, int]:
    archives = [entry for entry in sys.path if zipfile.is_zipfile(entry)]
    return archives, "pyiceberg" in sys.modules, gc.get_freeze_count()


def test_a_worker_has_all_it_needs_from_the_start_and_no_archive_to_look_through(runner: SparkRunner) -> None:
    for answer in runner.run(_surroundings, [1, 2]):
        assert not isinstance(answer, Exception)
        archives, has_packages, frozen = answer
        assert (archives, has_packages) == ([], True)
        assert frozen > 50_000


def test_what_items_give_to_a_part_comes_together(runner: SparkRunner) -> None:
    def spread(item: int) -> Iterable[tuple[int, bytes]]:
        yield item % 2, bytes([item])
        yield 2, b"all"

    shuffled = runner.shuffle(spread, [1, 2, 3, 4], 2)
    assert sorted(shuffled.part(2)) == [b"all"] * 4
    assert shuffled.gather(lambda _part, given: sorted(given), [0, 1]) == [[b"\x02", b"\x04"], [b"\x01", b"\x03"]]
