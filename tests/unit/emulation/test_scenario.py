"""What an emulation is made of: its topics, its sizes, and the file that remembers both."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import UsageError
from leanops.emulation.events.profiles import PROFILES
from leanops.emulation.play.homes import fresh_home, scenario_of
from leanops.emulation.scenario import DAYS, FILE, Scenario, Step
from tests.support.emulation.stories import is_copy, messages_of, story


@given(topics=st.integers(1, 50))
def test_the_profiles_take_turns_and_each_topic_has_a_name_of_its_own(topics: int) -> None:
    names = Scenario(topics=topics).names()
    assert len(names) == topics
    assert list(names.values()) == [PROFILES[at % len(PROFILES)] for at in range(topics)]
    assert all(name.startswith(profile.name) for name, profile in names.items())


@given(topics=st.integers(1, 12), events=st.integers(0, 10_000))
def test_the_topics_share_the_events_of_a_phase_evenly(topics: int, events: int) -> None:
    scenario = story(topics=topics, day1=events)
    shares = [scenario.stream(topic, "day1").events for topic in scenario.names()]
    assert sum(shares) == events
    assert max(shares) - min(shares) <= 1


def test_no_message_of_any_topic_or_phase_has_the_id_of_another() -> None:
    scenario = story(topics=6, day1=300, day2=900, day4=300)
    made = [
        message.message_id
        for topic in scenario.names()
        for phase in DAYS
        for message in messages_of(scenario, topic, phase)
        if not is_copy(message)
    ]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("later", [{"day2": 500}, {"day2": 500, "day4": 80}])
def test_the_events_of_a_phase_do_not_depend_on_what_comes_after_it(later: dict[str, int]) -> None:
    alone, whole = story(topics=2, day1=400), story(topics=2, day1=400, **later)
    assert messages_of(alone, "payments", "day1") == messages_of(whole, "payments", "day1")


def test_a_scenario_is_read_as_it_was_saved(tmp_path: Path) -> None:
    scenario = Scenario(7, 3, "late=0.2", events={"day1": 10}, steps=[Step("day1", "publish and land", 1.5, 10)])
    scenario.save(tmp_path)
    assert scenario_of(tmp_path) == scenario


@pytest.mark.parametrize(
    "text", [None, "", "{", "{}", '{"electrons": 3}', '{"seed": 1}', '{"made_by": "leanops emulate", "seed": "one"}']
)
def test_a_folder_without_a_scenario_is_no_emulation(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / FILE).write_text(text)
    with pytest.raises(UsageError, match="is not an emulation; create one with: leanops emulate clean"):
        scenario_of(tmp_path)


def test_a_home_half_made_can_be_re_created(tmp_path: Path) -> None:
    Scenario(seed=1).save(tmp_path)
    fresh_home(tmp_path, Scenario(seed=2))
    assert scenario_of(tmp_path).seed == 2


def test_a_file_in_the_place_of_the_home_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("mine")
    with pytest.raises(UsageError, match="choose another folder"):
        fresh_home(tmp_path / "home", Scenario())
    assert (tmp_path / "home").read_text() == "mine"


@pytest.mark.parametrize(
    "text",
    ["{}", '{"electrons": 3}', '{"seed": 1}', '{"made_by": "somebody"}', '{"made_by": "leanops emulate", "a": 1}'],
)
def test_a_file_of_the_same_name_makes_no_emulation_of_a_folder(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    (tmp_path / "precious.py").write_text("mine")
    with pytest.raises(UsageError, match="exists and is not an emulation; remove it, or choose another"):
        fresh_home(tmp_path, Scenario())
    assert (tmp_path / FILE).read_text() == text
    assert (tmp_path / "precious.py").read_text() == "mine"


def test_what_somebody_put_into_an_emulation_is_not_removed_with_it(tmp_path: Path) -> None:
    fresh_home(tmp_path, Scenario(seed=1))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds notes.txt, which no emulation wrote; move it"):
        fresh_home(tmp_path, Scenario(seed=2))
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert scenario_of(tmp_path).seed == 1


@pytest.mark.parametrize("removals", range(10))
def test_a_home_half_removed_can_be_re_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removals: int) -> None:
    fresh_home(tmp_path, Scenario(seed=1))
    for name in ("ledger/orders/a.parquet", "catalog.db", "catalog.db-wal", "report.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    unlink, left = os.unlink, iter(range(removals))

    def interrupted(*arguments: Any, **options: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        unlink(*arguments, **options)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(os, "unlink", interrupted)
        fresh_home(tmp_path, Scenario(seed=2))
    fresh_home(tmp_path, Scenario(seed=3))
    assert scenario_of(tmp_path).seed == 3
    assert not (tmp_path / "catalog.db").exists()


def test_a_disk_that_is_full_does_not_take_the_scenario(tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys; from pathlib import Path; from leanops.emulation.scenario import Scenario\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "Scenario(seed=2).save(Path(sys.argv[1]))"
    )
    Scenario(seed=1).save(tmp_path)
    ran = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert "File too large" in ran.stderr
    assert scenario_of(tmp_path) == Scenario(seed=1)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
