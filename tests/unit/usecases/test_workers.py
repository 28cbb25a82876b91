"""Background parts: tried again when they fail, heard of while they work, and gone when they end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import PartEndedError, PermanentError
from leanops.ports.state import SILENT_MS, WORKERS
from leanops.usecases.platform import Platform
from leanops.usecases.workers import Part, Tell, Worker, heard_of, serve
from tests.support.builders import Clock, platform_in


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def platform(tmp_path: Path, clock: Clock) -> Iterator[Platform]:
    with platform_in(tmp_path, clock=clock) as platform:
        yield platform


@contextmanager
def in_time(stopping: threading.Event) -> Iterator[None]:
    """Stop what does not end by itself, and fail: a test that hangs says nothing."""
    late: list[bool] = []

    def stop() -> None:
        late.append(True)
        stopping.set()

    timer = threading.Timer(30, stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        assert not late, "it did not end by itself"


def run(
    platform: Platform,
    turn: Callable[[], int],
    state: Any = None,
    problem: Any = lambda: None,
    tell: Tell = lambda _part, _text: None,
    **seconds: float,
) -> Worker:
    """A part at work until its turn says stop."""
    stopping = threading.Event()

    def stops() -> int:
        try:
            return turn()
        except StopIteration:
            stopping.set()
            return 0

    part = Part("p", stops, 0.0, problem)
    worker = Worker(part, state or platform.state, platform.clock, "me", stopping, tell, **seconds)
    with in_time(stopping):
        serve([worker], stopping)
    return worker


def test_a_part_that_fails_is_tried_again_and_says_why(platform: Platform) -> None:
    answers = iter([ValueError("secret text"), 3, PermanentError("the table is gone"), 4])

    def turn() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    worker = run(platform, turn, longest_pause_s=0.01)
    assert (worker.done, worker.failed) == (7, 2)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), SystemExit(1)], ids=["full", "no reader"])
def test_a_line_that_cannot_be_written_ends_no_part(platform: Platform, failure: BaseException) -> None:
    answers = iter([PermanentError("the table is gone"), 3])

    def turn() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tell(_part: str, _text: str) -> None:
        raise failure

    assert run(platform, turn, tell=tell, longest_pause_s=0.01).done == 3


def test_a_part_that_ends_ends_all_and_says_which_and_why(platform: Platform) -> None:
    def turn() -> int:
        raise SystemExit(3)

    said: list[str] = []
    stopping = threading.Event()
    parts = [Part("dies", turn, 0.0), Part("lives", lambda: 0, 30.0)]
    alive = [
        Worker(part, platform.state, platform.clock, "me", stopping, lambda part, text: said.append(f"{part} {text}"))
        for part in parts
    ]
    with in_time(stopping), pytest.raises(PartEndedError, match=r"^dies ended unexpectedly \(SystemExit\)"):
        serve(alive, stopping)
    assert said == ["dies ended (SystemExit); the other parts finish what they do, then stop"]
    assert list(platform.state.rows(WORKERS)) == []


def test_a_part_that_cannot_be_started_leaves_no_other_running(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "second":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    stopping = threading.Event()
    parts = [Part("first", lambda: 0, 30.0), Part("second", lambda: 0, 30.0)]
    with pytest.raises(RuntimeError):
        serve([Worker(part, platform.state, platform.clock, "me", stopping) for part in parts], stopping)
    assert not [thread for thread in threading.enumerate() if thread.name == "first"]


def test_a_part_is_heard_of_during_a_turn_however_long_and_no_longer_when_it_ended(platform: Platform) -> None:
    beats: set[int] = set()

    def turn() -> int:
        deadline = threading.Event()
        while len(beats) < 3 and not deadline.wait(0.005):
            platform.clock.advance(1)  # type: ignore[attr-defined]
            beats.update(int(found.row["beat_at"] or 0) for found in platform.state.rows(WORKERS))
        raise StopIteration

    run(platform, turn, beat_s=0.01)
    assert len(beats) >= 3
    assert heard_of(platform.state, platform.clock, "p").workers == 0


class Broken:
    """A state store that refuses everything."""

    def __getattr__(self, name: str) -> Any:
        raise PermanentError("the file is no database")


def test_a_state_store_that_refuses_ends_no_part(platform: Platform) -> None:
    answers = iter([1, 2])
    assert run(platform, lambda: next(answers), state=Broken()).done == 3


def test_a_beat_by_hand_says_why_the_state_store_refuses(platform: Platform) -> None:
    worker = Worker(Part("p", lambda: 0, 1), Broken(), platform.clock, "me", threading.Event())  # type: ignore[arg-type]
    with pytest.raises(PermanentError, match="the file is no database"):
        worker.beat()
    worker.forget()


def test_a_worker_whose_beat_is_old_or_of_another_time_is_not_counted(platform: Platform, clock: Clock) -> None:
    Worker(Part("p", lambda: 0, 1), platform.state, clock, "me", threading.Event()).beat()
    assert heard_of(platform.state, clock, "p").workers == 1
    clock.advance(SILENT_MS / 1000 + 1)
    assert heard_of(platform.state, clock, "p").workers == 0
    clock.advance(-7_200)
    assert heard_of(platform.state, clock, "p").workers == 0


def test_a_problem_is_told_only_when_every_worker_has_one(platform: Platform, clock: Clock) -> None:
    for name, error in (("a", "disk full"), ("b", None)):
        worker = Worker(Part("p", lambda: 0, 1), platform.state, clock, name, threading.Event())
        worker.error = error
        worker.beat()
    assert heard_of(platform.state, clock, "p").problem is None
    worker.error = "disk full"
    worker.beat()
    assert heard_of(platform.state, clock, "p").problem == "disk full"
