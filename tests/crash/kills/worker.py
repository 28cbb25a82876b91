"""A worker in a process of its own, to be killed or stopped: a cycle after every batch it publishes."""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from leanops.domain.table.operation import Accept
from leanops.ports.engine import Engine
from leanops.runtimes.embedded import Embedded
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from tests.crash.batches import BY_ORDER, SCHEMA, planned_batches
from tests.support.world import World, Wrapped

TOPIC = "orders"
PATIENCE_S = 120


class Gated(Wrapped):
    """An engine whose commit, planned and written, waits until a file appears."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        super().__init__(engine)
        self.folder = folder

    def commit(self, *args: Any) -> None:
        (self.folder / "planned").touch()
        deadline = time.monotonic() + PATIENCE_S
        while not (self.folder / "gate").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        try:
            self.engine.commit(*args)
        except Exception as refusal:
            (self.folder / "refusal").write_text(type(refusal).__name__)
            raise
        (self.folder / "refusal").write_text("none")


def main() -> None:
    home, folder, number, hours, mode = sys.argv[1:]
    embedded = Embedded(Path(home))
    embedded.spark()
    world = World(embedded, Path(folder), int(number))
    world.now += timedelta(hours=int(hours))
    say({"ready": os.getpid()})
    if mode == "stall":
        engine = Gated(world.engine(), Path(folder))
        result = world.cycle(world.platform(engine=lambda: engine))[TOPIC]
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
