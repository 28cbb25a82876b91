"""What an emulation is made of: its topics, its sizes, and the file that remembers both."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import UsageError
from leanops.emulation.phases import fresh_home, scenario_of
from leanops.emulation.profiles import PROFILES
from leanops.emulation.scenario import DAYS, FILE, Scenario, Step
from tests.stories import is_copy, story, told


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
        for message in told(scenario, topic, phase)
        if not is_copy(message)
    ]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("later", [{"day2": 500}, {"day2": 500, "day4": 80}])
def test_the_events_of_a_phase_do_not_depend_on_what_comes_after_it(later: dict[str, int]) -> None:
    alone, whole = story(topics=2, day1=400), story(topics=2, day1=400, **later)
    assert told(alone, "payments", "day1") == told(whole, "payments", "day1")


def test_a_scenario_is_read_as_it_was_saved(tmp_path: Path) -> None:
    scenario = Scenario(7, 3, "late=0.2", events={"day1": 10}, steps=[Step("day1", "publish and land", 1.5, 10)])
    scenario.save(tmp_path)
    assert scenario_of(tmp_path) == scenario


@pytest.mark.parametrize("text", [None, "", "{", '{"seed": "one"}'])
def test_a_folder_without_a_scenario_is_no_emulation(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / FILE).write_text(text)
    with pytest.raises(UsageError, match="is no emulation; make one with: leanops emulate clean"):
        scenario_of(tmp_path)


def test_a_home_half_made_can_be_made_anew(tmp_path: Path) -> None:
    Scenario(seed=1).save(tmp_path)
    fresh_home(tmp_path, Scenario(seed=2))
    assert scenario_of(tmp_path).seed == 2


def test_a_file_in_the_place_of_the_home_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("mine")
    with pytest.raises(UsageError, match="choose another folder"):
        fresh_home(tmp_path / "home", Scenario())
    assert (tmp_path / "home").read_text() == "mine"
