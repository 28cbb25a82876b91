"""A whole story, told once for all tests of verification, and opened where each of them wants it."""

from collections.abc import Iterator

import pytest

from leanops.emulation.play.homes import fresh_home
from leanops.emulation.play.phases import Emulation
from leanops.emulation.scenario import Scenario
from leanops.runtimes.embedded import Embedded
from tests.support.emulation.emulated import DONE, LANDED, SCHEMA, SIZES, WHOLE, Story, opened
from tests.support.sparkling import SETTINGS


@pytest.fixture(scope="session")
def story(embedded: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A whole story on Spark, kept where it has its schemas, where day 2 has landed, and at its end."""
    folder = tmp_path_factory.mktemp("story")
    scenario = Scenario(WHOLE.seed, WHOLE.topics, WHOLE.rates)
    made = Story(fresh_home(folder / "home", scenario, SETTINGS), folder, embedded.spark())
    emulation = made.opened()
    try:
        list(emulation.day1(SIZES["day1"]))
        list(emulation.schema())
        made.keep(SCHEMA)
        day2 = emulation.day("day2", SIZES["day2"])
        next(day2)
        made.keep(LANDED)
        list(day2)
        list(emulation.day("day4", SIZES["day4"]))
        made.keep(DONE)
    finally:
        emulation.close()
    return made


@pytest.fixture
def schema_active(story: Story) -> Iterator[Emulation]:
    yield from opened(story, SCHEMA)


@pytest.fixture
def landed(story: Story) -> Iterator[Emulation]:
    yield from opened(story, LANDED)


@pytest.fixture
def done(story: Story) -> Iterator[Emulation]:
    yield from opened(story, DONE)
