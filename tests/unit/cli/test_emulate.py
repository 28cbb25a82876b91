"""`leanops emulate` where it is not its turn, or not its folder: one line says what to do, and nothing is touched."""

import subprocess
import sys
from pathlib import Path

import pytest

from leanops.emulation.play.homes import fresh_home, held, scenario_of
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
    assert_refused(leanops("emulate", phase), "create one with: leanops emulate clean")
    assert not place.exists()


def test_clean_makes_a_home_that_remembers_what_it_is_made_of(leanops: Leanops, place: Path) -> None:
    ran = leanops("emulate", "clean", "--topics", "6", "--seed", "9", "--rates", "cde=0.5")
    assert ran.code == 0, ran.err
    scenario = scenario_of(place)
    assert (scenario.seed, scenario.topics, scenario.rates, scenario.events) == (9, 6, "cde=0.5", {})


def test_clean_replaces_an_earlier_emulation(leanops: Leanops, place: Path) -> None:
    leanops("emulate", "clean", "--seed", "1")
    (place / "report.html").write_text("of the first")
    assert leanops("emulate", "clean", "--seed", "2").code == 0
    assert not (place / "report.html").exists()
    assert scenario_of(place).seed == 2


@pytest.mark.parametrize("command", ["clean", "full"])
def test_a_folder_that_is_no_emulation_is_left_alone(leanops: Leanops, place: Path, command: str) -> None:
    (place / "photos").mkdir(parents=True)
    (place / "photos" / "cat.jpg").write_bytes(b"a cat")
    before = content(place)
    assert_refused(leanops("emulate", command), "exists and is not an emulation")
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
        ({"day1": 100}, "day1", "day1 has already been started"),
        ({"day1": 100}, "day2", "leanops emulate schema"),
        ({"day1": 100, "day2": 50}, "day2", "day2 has already been started"),
        ({"day1": 100, "day4": 50}, "day4", "day4 has already been started"),
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


def test_full_needs_an_event_for_each_topic_and_says_so_before_anything_is_removed(
    leanops: Leanops, place: Path
) -> None:
    leanops("emulate", "clean", "--seed", "5")
    before = content(place)
    assert_refused(leanops("emulate", "full", "--topics", "4", "--events", "3"), "--events 4 or more")
    assert_refused(leanops("emulate", "full", "--topics", "1000", "--events", "100"), "--events 1000 or more")
    assert content(place) == before


def test_a_topic_of_which_nothing_was_published_cannot_be_verified(leanops: Leanops, place: Path) -> None:
    fresh_home(place, Scenario(topics=1, events={"day1": 100}))
    assert_refused(leanops("emulate", "verify"), "orders: none of its events was published")


@pytest.mark.parametrize("command", ["clean", "day1", "verify", "full", "soak"])
def test_a_home_in_which_another_command_is_at_work_is_left_to_it(leanops: Leanops, place: Path, command: str) -> None:
    with held(place, Scenario(seed=5)):
        before = content(place)
        assert_refused(leanops("emulate", command), "another command is at work in")
        assert content(place) == before


def test_a_home_is_free_for_the_next_command_and_at_any_time_for_those_that_only_look(
    leanops: Leanops, place: Path
) -> None:
    for seed in (5, 6):
        with held(place, Scenario(seed=seed)):
            assert leanops("status").code == 0
            assert leanops("sql", "select 1 as one").code == 0
    with held(place):
        assert scenario_of(place).seed == 6


def test_the_home_of_another_process_is_free_as_soon_as_that_one_is_killed(leanops: Leanops, place: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from leanops.emulation.play.homes import held; "
        "from leanops.emulation.scenario import Scenario\n"
        "with held(Path(sys.argv[1]), Scenario()): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, place], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert_refused(leanops("emulate", "clean"), "another command is at work in")
        other.kill()
    assert leanops("emulate", "clean").code == 0


def test_an_interrupted_command_says_so(leanops: Leanops, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.mkdir", interrupt)
    ran = leanops("emulate", "clean")
    assert (ran.code, ran.out, ran.err) == (130, "", "error: interrupted\n")


@pytest.mark.parametrize("command", ["clean", "full", "soak"])
def test_a_folder_that_cannot_be_made_is_told_in_a_line(leanops: Leanops, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("mine")
    ran = leanops("emulate", command, "--home", str(tmp_path / "file" / "home"))
    assert_refused(ran, "cannot be created (Not a directory); choose another folder")


def test_the_folder_itself_stays_for_those_who_are_in_it(
    leanops: Leanops, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.mkdir()
    monkeypatch.chdir(place)
    before = place.stat().st_ino
    for seed in ("1", "2"):
        assert leanops("emulate", "clean", "--home", ".", "--seed", seed).code == 0
    assert place.stat().st_ino == before
    assert scenario_of(Path()).seed == 2
