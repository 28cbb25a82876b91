"""What crosses a bridge: the bridge in a process of its own, and the wait until everything has come."""

import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import get_context

import duckdb

from leanops.domain.errors import EmulationError
from leanops.emulation import ledger
from leanops.emulation.play.homes import BRIDGE_LOG
from leanops.emulation.play.pubsub import project, run_bridge
from leanops.emulation.verify.fates import listed
from leanops.runtimes.embedded import Embedded

PATIENCE_S = 180.0
"""Some times longer than Pub/Sub waits before it delivers again."""
PAUSE_S = 0.5
STOP_S = 60.0


class Crossing:
    """A bridge in a process of its own, and the wait for what it has to bring."""

    def __init__(self, runtime: Embedded, land: Callable[[], None]) -> None:
        self._runtime, self._land, self._log = runtime, land, runtime.home / BRIDGE_LOG
        self._bridge = get_context("spawn").Process(
            target=run_bridge, args=(runtime.home, project()), name="bridge", daemon=True
        )
        self._bridge.start()

    def close(self) -> None:
        """Let the bridge hand on what it holds, and end."""
        self._bridge.terminate()
        self._bridge.join(STOP_S)
        self._bridge.kill()

    def wait(self, topics: Sequence[str], tell: Callable[[int], None], patience_s: float = PATIENCE_S) -> None:
        """Land what comes until every message of the ledger is in RAW or a dead letter; raises where none comes.

        `tell` is told how many have not.
        """
        left, deadline = missing(self._runtime, topics), time.monotonic() + patience_s
        while left:
            if not self._bridge.is_alive():
                raise EmulationError(f"the bridge has ended by itself; see why in {self._log}")
            if time.monotonic() > deadline:
                raise EmulationError(
                    f"of the events published, {left:,} did not come within {patience_s:.0f} s of the last one; see "
                    f"{self._log}, and have them named with: leanops emulate verify"
                )
            tell(left)
            time.sleep(PAUSE_S)
            self._land()
            before, left = left, missing(self._runtime, topics)
            deadline = time.monotonic() + patience_s if left < before else deadline


def missing(runtime: Embedded, topics: Iterable[str]) -> int:
    """How many messages of the ledger are neither in RAW nor among the dead letters."""
    databases = runtime.platform.rules.databases
    dead = _files(runtime, databases.dlq_errors)
    with duckdb.connect() as connection:
        found = 0
        for topic in topics:
            if not ledger.parts(runtime.home, topic):
                continue
            landed = [*_files(runtime, databases.raw_table(topic)), *dead]
            sent = f"SELECT message_id FROM read_parquet({listed(ledger.parts(runtime.home, topic))})"
            came = f" EXCEPT SELECT message_id FROM read_parquet({listed(landed)})" if landed else ""
            found += connection.execute(f"SELECT count(*) FROM ({sent}{came})").fetchall()[0][0]
    return found


def _files(runtime: Embedded, table: str) -> list[str]:
    """The files of a table; none of one that is not there yet."""
    if runtime.platform.catalog.load(table) is None:
        return []
    tasks = runtime.catalog.load_table(table).scan().plan_files()
    return [task.file.file_path.removeprefix("file://") for task in tasks]
