"""What crosses a bridge: the bridge in a process of its own, and the wait until everything has arrived."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import duckdb

from leanops.domain.errors import EmulationError
from leanops.emulation import ledger
from leanops.emulation.play.crew import LOGS, Crew
from leanops.emulation.verify.tables import listed
from leanops.runtimes.embedded import Embedded

PATIENCE_S = 180.0
"""Several times what Pub/Sub waits before it delivers a message again."""
PAUSE_S, STOP_S = 0.5, 60.0
_BRIDGE = "import sys; from leanops.emulation.play.pubsub import run_bridge; run_bridge(sys.argv[1])"


class Crossing:
    """A bridge in a process of its own, and the wait for what it has to bring."""

    def __init__(self, runtime: Embedded, land: Callable[[], None]) -> None:
        self._runtime, self._land = runtime, land
        self._crew = Crew(runtime.home, {"bridge": (_BRIDGE, str(runtime.home))})
        self._crew.start()

    def close(self) -> None:
        """Let the bridge hand on what it holds, then end it."""
        with suppress(EmulationError):
            self._crew.stop(STOP_S)
        self._crew.close()

    def wait(self, topics: Sequence[str], progress: Callable[[int], None], patience_s: float = PATIENCE_S) -> None:
        """Land what arrives until every message of the ledger is in RAW or a dead letter; raise if none arrives.

        `progress` gets the number of messages that have not arrived.
        """
        left, deadline = missing(self._runtime, topics), time.monotonic() + patience_s
        while left:
            self._crew.check()
            if time.monotonic() > deadline:
                raise EmulationError(
                    f"{left:,} of the published events did not arrive within {patience_s:.0f} s of the last one; see "
                    f"{self._runtime.home / LOGS}, and list them with: leanops emulate verify"
                )
            progress(left)
            time.sleep(PAUSE_S)
            self._land()
            before, left = left, missing(self._runtime, topics)
            deadline = time.monotonic() + patience_s if left < before else deadline


def missing(runtime: Embedded, topics: Iterable[str]) -> int:
    """The number of messages in the ledger that are neither in RAW nor among the dead letters."""
    databases = runtime.platform.rules.databases
    dead, count = _files(runtime, databases.dlq_errors), 0
    with duckdb.connect() as connection:
        for topic in topics:
            if parts := ledger.parts(runtime.home, topic):
                landed = [*_files(runtime, databases.raw_table(topic)), *dead]
                sent = f"SELECT message_id FROM read_parquet({listed(parts)})"
                arrived = f" EXCEPT SELECT message_id FROM read_parquet({listed(landed)})" if landed else ""
                count += connection.execute(f"SELECT count(*) FROM ({sent}{arrived})").fetchall()[0][0]
    return count


def _files(runtime: Embedded, table: str) -> list[str]:
    """The files of a table; none if it does not exist yet."""
    if runtime.platform.catalog.load(table) is None:
        return []
    tasks = runtime.catalog.load_table(table).scan().plan_files()
    return [task.file.file_path.removeprefix("file://") for task in tasks]
