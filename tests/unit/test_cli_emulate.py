"""`leanops emulate` where it is not its turn, or not its folder: one line says what to do, and nothing is touched."""

from pathlib import Path

import pytest

from leanops.emulation.phases import fresh_home, scenario_of
from leanops.emulation.scenario import Scenario
from tests.unit.conftest import Leanops, Ran


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the emulation of a test is or will be."""
    home = tmp_path / "emulation"
    monkeypatch.setenv("LEANOPS_HOME", str(home))
    return home


def assert_refused(ran: Ran, what: str) -> None:
    """A usage error, told in one line."""
    assert ran.code == 2
    assert ran.out == ""
    assert what in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("phase", ["day1", "schema", "day2", "day4", "verify"])
def test_a_phase_needs_a_home_that_was_made(leanops: Leanops, place: Path, phase: str) -> None:
    assert_refused(leanops("emulate", phase), "make one with: leanops emulate clean")
    assert not place.exists()


def test_clean_makes_a_home_that_remembers_what_it_is_made_of(leanops: Leanops, place: Path) -> None:
    ran = leanops("emulate", "clean", "--topics", "6", "--seed", "9", "--rates", "cde=0.5")
    assert ran.code == 0, ran.err
    scenario = scenario_of(place)
    assert (scenario.seed, scenario.topics, scenario.rates, scenario.events) == (9, 6, "cde=0.5", {})


def test_clean_replaces_an_earlier_emulation(leanops: Leanops, place: Path) -> None:
    leanops("emulate", "clean", "--seed", "1")
    (place / "left.txt").write_text("of the first")
    assert leanops("emulate", "clean", "--seed", "2").code == 0
    assert not (place / "left.txt").exists()
    assert scenario_of(place).seed == 2


@pytest.mark.parametrize("command", ["clean", "full"])
def test_a_folder_that_is_no_emulation_is_left_alone(leanops: Leanops, place: Path, command: str) -> None:
    (place / "photos").mkdir(parents=True)
    (place / "photos" / "cat.jpg").write_bytes(b"a cat")
    before = content(place)
    assert_refused(leanops("emulate", command), "is there already and is no emulation")
    assert content(place) == before


@pytest.mark.parametrize("command", ["clean", "full"])
@pytest.mark.parametrize(
    ("rates", "what"),
    [
        ("cds=0.1", "did you mean 'cde'?"),
        ("cde=3", "must be a number from 0 to 1"),
        ("cde", "must be a number from 0 to 1"),
        ("cde=0.6,drift=0.6", "at most 1 is possible"),
    ],
)
def test_rates_nobody_can_follow_are_refused(
    leanops: Leanops, place: Path, command: str, rates: str, what: str
) -> None:
    assert_refused(leanops("emulate", command, "--rates", rates), what)
    assert not place.exists()


def test_rates_that_are_refused_leave_an_earlier_emulation(leanops: Leanops, place: Path) -> None:
    leanops("emulate", "clean", "--seed", "5")
    leanops("emulate", "clean", "--seed", "6", "--rates", "cds=0.1")
    assert scenario_of(place).seed == 5


@pytest.mark.parametrize("option", [("--events", "0"), ("--events", "many"), ("--topics", "0"), ("--seed", "x")])
def test_an_option_out_of_range_is_refused(leanops: Leanops, place: Path, option: tuple[str, str]) -> None:
    assert leanops("emulate", "full", *option).code == 2
    assert not place.exists()


@pytest.mark.parametrize(
    ("published", "command", "what"),
    [
        ({}, "schema", "run first: leanops emulate day1"),
        ({}, "day2", "run first: leanops emulate day1"),
        ({}, "day4", "run first: leanops emulate day1"),
        ({}, "verify", "run first: leanops emulate day1"),
        ({"day1": 100}, "day1", "day1 was begun already"),
        ({"day1": 100}, "day2", "leanops emulate schema"),
        ({"day1": 100, "day2": 50}, "day2", "day2 was begun already"),
        ({"day1": 100, "day4": 50}, "day4", "day4 was begun already"),
    ],
)
def test_a_phase_out_of_turn_is_refused_before_anything_is_done(
    leanops: Leanops, place: Path, published: dict[str, int], command: str, what: str
) -> None:
    scenario = Scenario(events=published)
    fresh_home(place, scenario)
    assert_refused(leanops("emulate", command), what)
    assert scenario_of(place) == scenario
    assert not (place / "ledger").exists()


def test_a_phase_needs_an_event_for_each_topic(leanops: Leanops, place: Path) -> None:
    leanops("emulate", "clean", "--topics", "5")
    assert_refused(leanops("emulate", "day1", "--events", "4"), "--events 5 or more")
    assert scenario_of(place).events == {}
