"""Some of the stories of work abandoned at any step, with the tasks on Spark."""

import os

import pytest

from tests.crash.cycles.test_abandonment import abandoned_somewhere
from tests.support.world import World

SEEDS = 8 if os.environ.get("CI") else 2


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_on_spark_either(spark_world: World, seed: int) -> None:
    abandoned_somewhere(spark_world, seed)
