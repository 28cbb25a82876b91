"""The parts of a soak: durations, the rate, whom a kill hits, workers that never outlive it, and its events."""

import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from leanops.domain.errors import EmulationError, UsageError
from leanops.emulation.events.kinds import SOAK as RATES
from leanops.emulation.events.kinds import Kind
from leanops.emulation.play.crew import WATCHED, Crew
from leanops.emulation.play.homes import fresh_home, scenario_of
from leanops.emulation.play.pace import Kills, Pace, seconds_of
from leanops.emulation.play.phases import Emulation
from leanops.emulation.play.publisher import Publisher
from leanops.emulation.play.soak import SETTINGS, Soak, Wishes
from leanops.emulation.scenario import SOAK, Scenario
from leanops.entrypoints.cli.app import run
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.topics.registry import add_topics
from tests.support.emulation.stories import messages_of
from tests.support.pubsub.living import living, until

PATIENT = ("import time; print('at work', flush=True); time.sleep(600)",)
PARENT = (
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]]); time.sleep(600)",
    *PATIENT,
)
BRIEF = ("print('I give up'); raise SystemExit(7)",)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1_800), ("1h30m", 5_400), ("1h", 3_600), ("1h0m5s", 3_605), (" 2m ", 120)],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "30 m", "1.5h", "30m1h", "0s", "-5s", "5d", "soon"])
def test_a_text_that_is_not_a_duration_is_an_error_that_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        seconds_of(text)
    assert str(refused.value) == f"{text!r} is not a duration; write it as 90s, 30m or 1h30m"


def test_a_wrong_duration_removes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "emulation.json").write_text("{}")
    for words in (["--for", "soon"], ["--kills", "often"], ["--rates", "cde=0.9"]):
        assert run(["emulate", "soak", "--home", str(tmp_path), *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["emulation.json"]


def test_a_soak_needs_an_event_for_each_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["emulate", "soak", "--home", str(tmp_path / "new"), "--for", "3s", "--rate", "1"]) == 2
    assert "soak needs an event for each topic: a longer --for or a higher --rate" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_the_rate_is_kept_and_what_was_missed_is_made_up_for() -> None:
    clock = Clock()
    pace, sent = Pace(500, 10, clock), 0
    most = 0
    while not pace.is_over:
        clock.now += 3.0 if 104 < clock.now < 105 else 0.02
        owed = pace.owed(sent)
        most, sent = max(most, owed), sent + owed
        assert sent <= 500 * pace.elapsed
    assert sent == 5_000
    assert most >= 1_500


def test_nothing_is_owed_for_the_time_after_the_end() -> None:
    clock = Clock()
    pace = Pace(100, 10, clock)
    clock.now += 60
    assert (pace.is_over, pace.owed(0), pace.owed(1_000)) == (True, 1_000, 0)


def drawn(seed: int, seconds: float, every_s: float = 20) -> list[tuple[float, str]]:
    """The kills of a stretch, with their moments."""
    clock, found = Clock(), []
    kills = Kills(every_s, ["processor", "delivery", "cycles"], seed, clock)
    while clock.now < 100 + seconds:
        clock.now += 0.1
        if name := kills.due():
            found.append((clock.now, name))
    return found


def test_kills_come_about_as_often_as_was_asked_and_hit_everybody_alike() -> None:
    found = drawn(1, 2_000)
    moments = [moment for moment, _ in found]
    gaps = [after - before for before, after in pairwise(moments)]
    assert 80 <= len(found) <= 125
    assert min(gaps) >= 9.9
    assert max(gaps) <= 30.2
    names = [name for _, name in found]
    assert all(set(names[at : at + 3]) == {"processor", "delivery", "cycles"} for at in range(0, len(names) - 2, 3))


def test_the_same_seed_kills_the_same_workers() -> None:
    assert drawn(3, 500) == drawn(3, 500)
    assert [name for _, name in drawn(3, 500)] != [name for _, name in drawn(4, 500)]


def test_without_the_option_nobody_is_killed() -> None:
    assert drawn(1, 2_000, every_s=math.inf) == []


def test_a_kill_takes_the_children_too_and_restarts_the_worker(tmp_path: Path) -> None:
    with Crew(tmp_path, {"parent": PARENT}) as crew:
        until(lambda: len(living(tmp_path)) == 2)
        before = living(tmp_path)
        crew.kill("parent")
        until(lambda: len(living(tmp_path)) == 2 and not set(before) & set(living(tmp_path)))
        assert crew.kills == {"parent": 1}
    until(lambda: not living(tmp_path))


def test_a_worker_that_ends_by_itself_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Crew(tmp_path, {"patient": PATIENT, "brief": BRIEF}) as crew:
        for name, line in (("patient", "at work"), ("brief", "I give up")):
            until(lambda name=name, line=line: line in (tmp_path / "logs" / f"{name}.log").read_text())
        with pytest.raises(EmulationError, match=r"the worker brief ended by itself with 7; .*: I give up$"):
            until(crew.check)
    assert not living(tmp_path)


def test_workers_are_asked_to_stop_and_only_a_deaf_one_is_killed(tmp_path: Path) -> None:
    with Crew(tmp_path, {"patient": PATIENT, "stubborn": STUBBORN}) as crew:
        until(lambda: "deaf" in (tmp_path / "logs" / "stubborn.log").read_text())
        crew.stop(patience_s=1.0)
        assert crew.kills == {"stubborn": 1}
        assert not living(tmp_path)


def test_a_worker_that_fails_when_it_is_asked_to_stop_is_told(tmp_path: Path) -> None:
    failing = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit('I cannot stop')); "
        "print('at work', flush=True); time.sleep(600)",
    )
    with Crew(tmp_path, {"patient": PATIENT, "failing": failing}) as crew:
        until(lambda: "at work" in (tmp_path / "logs" / "failing.log").read_text())
        with pytest.raises(EmulationError, match=r"the worker failing ended by itself with 1; .*I cannot stop$"):
            crew.stop(patience_s=30.0)
    assert not living(tmp_path)


OWNER = """
import sys, time
from pathlib import Path
from leanops.emulation.play.crew import Crew
with Crew(Path(sys.argv[1]), {"parent": sys.argv[2:]}):
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_owner_however_that_ends(tmp_path: Path, number: int) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path, *PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert owner.stdout is not None
    with owner.stdout:
        assert owner.stdout.readline() == b"begun\n"
        until(lambda: len(living(tmp_path)) == 2)
        owner.send_signal(number)
        owner.wait(30)
    until(lambda: not living(tmp_path))


def test_a_worker_whose_owner_is_gone_before_it_starts_ends_at_once() -> None:
    watched = [sys.executable, "-c", WATCHED + PATIENT[0]]
    assert subprocess.run(watched, input=b"", timeout=60).returncode == -signal.SIGKILL


def test_the_first_interrupt_ends_publishing_and_the_second_everything() -> None:
    wishes = Wishes(has_workers=True, is_publishing=True)
    wishes.interrupt()
    wishes.look()
    assert wishes.stop
    wishes.interrupt()
    with pytest.raises(KeyboardInterrupt):
        wishes.look()


def test_where_no_worker_can_stay_behind_an_interrupt_ends_at_once() -> None:
    for wish in (Wishes.interrupt, Wishes.end):
        with pytest.raises(KeyboardInterrupt):
            wish(Wishes())


def soaking(seed: int = 1, topics: int = 2, rate: int = 400, seconds: int = 10) -> Scenario:
    return Scenario(seed=seed, topics=topics, rate=rate, events={SOAK: rate * seconds})


def test_a_chunk_of_a_soak_depends_on_nothing_that_was_made_before() -> None:
    stream = soaking().stream("orders", SOAK)
    assert stream.size == 20
    assert stream.chunk(57) == soaking().stream("orders", SOAK).chunk(57)
    originals = [message for message in stream.chunk(57) if message.kind not in (Kind.DUPLICATE, Kind.REDELIVERY)]
    assert originals == stream.chunk(57, with_copies=False)


def test_a_soak_sends_again_and_corrects_what_it_sent_long_before() -> None:
    messages = messages_of(soaking(rate=1_000, seconds=20), "orders", SOAK)
    kinds = Counter(message.kind for message in messages)
    assert set(RATES) - {Kind.OVERSIZED} <= set(kinds)
    places: dict[str, int] = {}
    again = []
    for place, message in enumerate(messages):
        if message.kind in (Kind.DUPLICATE, Kind.REDELIVERY):
            assert message.message_id in places
            again.append(place - places[message.message_id])
        else:
            places[message.message_id] = place
    assert max(again) > 5_000
    versions = Counter(message.key for message in messages if message.message_id in places and message.key)
    assert max(versions.values()) > 2


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Embedded]:
    runtime = Embedded(create_home(tmp_path / "home"))
    yield runtime
    runtime.close()


def test_the_publisher_sends_every_event_once_and_the_ledger_has_them(runtime: Embedded) -> None:
    scenario = soaking(topics=3, rate=100, seconds=7)
    add_topics(runtime.platform, dict.fromkeys(scenario.names()))
    publisher, sizes = Publisher(runtime, scenario), []
    while not publisher.is_done:
        sizes.append(publisher.next_size)
        publisher.send_next()
        assert publisher.has_begun == (len(sizes) >= 3)
    publisher.write()
    assert (sum(sizes), publisher.sent, publisher.next_size) == (700, 700, 0)
    assert sum(depth.messages for depth in runtime.queue.depths().values()) == 700
    for topic in scenario.names():
        parts = f"{runtime.home}/ledger/{topic}/*.parquet"
        written = duckdb.sql(f"SELECT message_id, kind FROM read_parquet('{parts}')").fetchall()
        assert Counter(written) == Counter(
            (sent.message_id, sent.kind.value) for sent in messages_of(scenario, topic, SOAK)
        )


def test_the_environment_names_the_home(tmp_path: Path) -> None:
    seen = ("import os, time; print(os.environ['LEANOPS_HOME'], flush=True); time.sleep(600)",)
    with Crew(tmp_path, {"seen": seen}):
        until(lambda: (tmp_path / "logs" / "seen.log").read_text() == f"{tmp_path}\n")
        assert os.environ.get("LEANOPS_HOME") != str(tmp_path)


@pytest.mark.parametrize("every_s", [math.inf, 0.5])
def test_a_soak_that_breaks_off_remembers_that_its_workers_were_killed(tmp_path: Path, every_s: float) -> None:
    workers = {"processor": PATIENT, "delivery": PATIENT}
    home = fresh_home(tmp_path / "home", soaking(rate=100, seconds=2), SETTINGS)
    emulation = Emulation(home)
    try:
        with pytest.raises(EmulationError, match=r"there are still \d+ in the queues"):
            Soak(emulation, every_s, workers=workers, land_s=0.5).run()
    finally:
        emulation.close()
    kills = scenario_of(home).kills
    assert set(kills) == {"processor", "delivery"}
    assert sum(kills.values()) > 2 if every_s < math.inf else kills == {"processor": 1, "delivery": 1}
