"""Real processes, killed and stopped for real."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leanops.usecases.operation_log import unfinished_operations
from tests.crash.batches import BY_ORDER, KILLS, SCHEMA, planned_batches
from tests.oracle.model import Model
from tests.support.verify import assert_settled, assert_tables, replayed
from tests.support.world import PII_KEY, World

START_S = 180


class Worker:
    """One worker process and everything it says."""

    def __init__(self, world: World, hours: int, mode: str) -> None:
        command = [sys.executable, "-m", "tests.crash.kills.worker", str(world.embedded.home), str(world.folder)]
        self.process = subprocess.Popen(
            [*command, str(world.number), str(hours), mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.said: dict[str, Any] = {}
        self._heard = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._heard:
                self.said.update(json.loads(line))
                self._heard.notify_all()
        with self._heard:
            self.said.setdefault("ended", True)
            self._heard.notify_all()

    def wait_for(self, word: str, seconds: float = START_S) -> bool:
        """Whether the worker says the word within the time; it also stops waiting when the process ends."""
        with self._heard:
            self._heard.wait_for(lambda: word in self.said or "ended" in self.said, timeout=seconds)
            return word in self.said

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> None:
        self.process.wait(timeout=START_S)
        if self.process.stdout:
            self.process.stdout.close()


def test_sigkill_at_random_moments_loses_and_doubles_nothing(world: World) -> None:
    chance = random.Random(7)
    world.add("orders", json.dumps(SCHEMA))
    hours = 1
    for _ in range(KILLS):
        worker = Worker(world, hours, "run")
        assert worker.wait_for("ready"), "the worker did not start"
        assert not worker.wait_for("finished", chance.uniform(0.1, 4)), "plan more batches: there was nothing to kill"
        worker.signal(signal.SIGKILL)
        worker.end()
        hours += 1
    last = Worker(world, hours, "run")
    assert last.wait_for("finished", 600)
    last.end()
    world.know_published("orders", planned_batches())
    model = replayed(world, "orders", SCHEMA, pii_key=PII_KEY)
    assert model.totals["read"] == sum(len(batch) for batch in planned_batches())
    assert_tables(world, "orders", model)
    assert_settled(world, "orders")


@pytest.mark.slow
def test_sigkill_during_deploys_with_a_rebuild_leaves_nothing_half(world: World) -> None:
    chance = random.Random(8)
    rows = [row for batch in planned_batches()[:8] for row in batch]
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", rows)
    world.cycle()
    for hours in range(1, max(2, KILLS // 3) + 1):
        worker = Worker(world, hours, "operate")
        assert worker.wait_for("ready"), "the worker did not start"
        assert not worker.wait_for("ended", chance.uniform(1, 20))
        worker.signal(signal.SIGKILL)
        worker.end()
    world.now += timedelta(hours=100)
    world.settle()
    active = world.platform().schemas.active("orders")
    assert active
    model = Model("orders", SCHEMA, pii_key=PII_KEY)
    model.standardize(rows)
    model.curate()
    for version in range(2, active.version + 1):
        model.set_schema({**(SCHEMA if version % 2 else BY_ORDER), "version": version})
        model.rebuild(rows)
    assert_tables(world, "orders", model)
    assert unfinished_operations(world.platform()) == {}


def test_a_writer_stopped_between_its_check_and_its_commit_is_refused_by_the_table(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", planned_batches()[0])
    stalled = Worker(world, 1, "stall")
    planned = world.folder / "planned"
    try:
        assert stalled.wait_for("ready")
        _wait_for_file(planned)
        stalled.signal(signal.SIGSTOP)
        world.now = world.now.replace(year=2027)
        assert world.cycle()["orders"].outcome == "done"
        (world.folder / "gate").touch()
    finally:
        (world.folder / "gate").touch()
        stalled.signal(signal.SIGCONT)
    assert stalled.wait_for("outcome")
    stalled.end()
    assert (world.folder / "refusal").read_text() == "CommitRefusedError"
    assert stalled.said["outcome"] == "failed"
    model = replayed(world, "orders", SCHEMA, pii_key=PII_KEY)
    assert_tables(world, "orders", model)
    assert_settled(world, "orders")


def _wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + START_S
    while not path.exists():
        if time.monotonic() > deadline:
            pytest.fail(f"{path.name} did not appear")
        time.sleep(0.05)
