"""A worker in a process of its own, to be killed or stopped: a cycle after every batch it publishes."""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from leanops.domain.table.operation import Accept
from leanops.ports.tables import Merge
from leanops.runtimes.embedded import Embedded
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from tests.crash.batches import BY_ORDER, SCHEMA, planned_batches
from tests.support.world import World

TOPIC = "orders"
PATIENCE_S = 120


class GatedLake:
    """A lake whose MERGE waits, planned but not committed, until a file appears."""

    def __init__(self, lake: Any, folder: Path) -> None:
        self._lake, self._folder = lake, folder

    def merge(self, rows: Any, into: Merge) -> None:
        try:
            self._lake.merge(rows.mapInArrow(_Gate(str(self._folder)), rows.schema), into)
        except Exception as refusal:
            (self._folder / "refusal").write_text(type(refusal).__name__)
            raise
        (self._folder / "refusal").write_text("none")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)


class _Gate:
    """Runs inside the tasks of the MERGE, so that its plan is made when it waits."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, batches: Any) -> Any:
        folder = Path(self.folder)
        (folder / "planned").touch()
        deadline = time.monotonic() + PATIENCE_S
        while not (folder / "gate").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        yield from batches


def main() -> None:
    home, folder, number, hours, mode = sys.argv[1:]
    embedded = Embedded(Path(home))
    embedded.spark()
    world = World(embedded, Path(folder), int(number))
    world.now += timedelta(hours=int(hours))
    say({"ready": os.getpid()})
    if mode == "stall":
        lake = GatedLake(embedded.lake(), Path(folder))
        result = world.cycle(world.platform(lake=lambda: lake))[TOPIC]
        say({"outcome": result.outcome.value, "reason": result.reason})
    elif mode == "operate":
        operate(world)
    else:
        run(world)
        say({"finished": True})
    embedded.close()


def run(world: World) -> None:
    """Publish the planned batches that RAW does not have yet, with a cycle after each."""
    world.cycle()
    view = world.embedded.platform.catalog.load(world.databases.raw_table(TOPIC))
    there = len(view.ancestors()) if view else 0
    for batch in planned_batches()[there:]:
        world.publish(TOPIC, batch)
        world.cycle()
    world.settle()


def operate(world: World) -> None:
    """One breaking deploy after the other, until somebody ends it."""
    world.with_rules(operations={"rebuild_rows": 20})
    world.cycle()
    while True:
        platform = world.platform()
        active = platform.schemas.active(TOPIC)
        schema = SCHEMA if active and active.keys.idempotency_key == BY_ORDER["keys"]["idempotency_key"] else BY_ORDER
        deploy_schema(platform, TOPIC, json.dumps(schema), "worker", Consent(rebuild=True, missing=Accept.ALL))


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
