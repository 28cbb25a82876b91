"""The embedded runtime: everything in one folder, on this machine, with Python alone."""

import os
import secrets
import shutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from leanops.adapters.files.folder import Folder, write_new
from leanops.adapters.files.schemas import SchemaFiles
from leanops.adapters.host.processes import HostProcesses
from leanops.adapters.host.scratch import fresh_scratch
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.local import LocalCatalog
from leanops.adapters.iceberg.options import CATALOG
from leanops.adapters.sql.buffer import SqlBuffer
from leanops.adapters.sql.state import SqlState
from leanops.domain.errors import UsageError
from leanops.ports.clock import millis
from leanops.ports.engine import Engine
from leanops.ports.queue import Queue
from leanops.runtimes.failures import explain
from leanops.runtimes.queues import open_queue
from leanops.settings import FILE, load_settings
from leanops.usecases.ingest.room import Room
from leanops.usecases.platform import SYSTEM, Actor, Platform, Secret, no_step
from leanops.views.background import Background, background
from leanops.views.sources import Sources

HOME = ".leanops"
SETTINGS = """\
# Settings of this home; docs/reference/settings.md lists them all.
# On a laptop events should be seen soon; without these two settings it takes up to 300 and 900 seconds.
[delivery]
flush_s = 5

[pipeline]
cycle_s = 30
"""
SHADOW = """\
Leave these files alone: live tables may consist of them.
A rebuild writes new tables here and then gives their files to the live ones, without copying any.
"""


def find_home() -> Path:
    """LEANOPS_HOME (or .leanops in it), else the nearest .leanops upwards from here; raises where there is none."""
    chosen = os.environ.get("LEANOPS_HOME")
    if chosen:
        place = Path(chosen).expanduser().resolve()
        for home in (place, place / HOME):
            if (home / FILE).exists():
                return home
        raise UsageError(f"LEANOPS_HOME={chosen} is not a Lean-Ops home; create it with: leanops init")
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / HOME / FILE).exists():
            return _ours(folder / HOME)
    raise UsageError(f"no {HOME} here or above; create one with: leanops init")


def _ours(home: Path) -> Path:
    """A home that nobody named; its settings become options of our Java, so it must be our own."""
    me = os.geteuid()
    for path in (home, home / FILE):
        owners = {path.stat().st_uid, path.lstat().st_uid} - {me}
        if owners:
            raise UsageError(
                f"{path} belongs to user {owners.pop()}, you are {me}; if you trust it, set LEANOPS_HOME={home}"
            )
    return home


def create_home(home: Path) -> Path:
    """An empty home that only its owner can read; an existing home stays as it is."""
    if not (home / FILE).exists():
        make_private(home)
    for part in ("warehouse", "schemas", "scratch", "files"):
        (home / part).mkdir(mode=0o700, exist_ok=True)
    for name, text in (("pii.key", secrets.token_hex(32)), (FILE, SETTINGS)):
        if not (home / name).exists():
            # Whole or not at all, and once: two processes that create a home at the same moment must have one key.
            write_new(home / name, text.encode())
    return home


def make_private(home: Path) -> None:
    """A folder for a home, closed to others; where it is a mount of somebody else's, `doctor` says what is wrong."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(PermissionError):
        home.chmod(0o700)


def open_embedded(actor: Actor) -> "Embedded":
    """The home of this folder, or the one that LEANOPS_HOME names."""
    return Embedded(find_home(), actor=actor)


class Embedded:
    """Adapters and use cases on one home; Spark starts when it is first needed."""

    def __init__(
        self,
        home: Path,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        step: Callable[[str], None] = no_step,
        owner: str | None = None,
        actor: Actor = SYSTEM,
        spark: Any = None,
    ) -> None:
        self.home = home.resolve()
        self.name = str(self.home)
        self.settings = load_settings(home)
        self.catalog = LocalCatalog(CATALOG, self.home)
        self.state = SqlState(f"sqlite:///{self.home}/state.db")
        self.room = Room(lambda: shutil.disk_usage(self.home).free, self.settings.ingest)
        self.queue: Queue = open_queue(
            f"sqlite:///{self.home}/queue.db", lambda: millis(clock()), lambda: self.room.shortage()
        )
        self.buffer = SqlBuffer(f"sqlite:///{self.home}/delivery.db", lambda: millis(clock()))
        self.files = Folder(self.home / "files")
        self._spark: Any = spark
        self._is_lent = spark is not None
        self._starting = threading.Lock()
        self.platform = Platform(
            catalog=IcebergCatalog(self.catalog),
            engine=self.engine,
            state=self.state,
            schemas=SchemaFiles(Folder(self.home / "schemas")),
            clock=clock,
            owner=owner or f"{socket.gethostname()}/{os.getpid()}",
            actor=actor,
            rules=self.settings,
            secret=self._secret(),
            processes=HostProcesses(),
            explain=partial(explain, self.home, self.engine_ended),
            step=step,
        )

    def engine(self) -> Engine:
        """The work on the rows of batches, as tasks of the Spark application."""
        from leanops.adapters.iceberg.batches.engine import TaskEngine
        from leanops.adapters.iceberg.batches.spark import SparkRunner

        return TaskEngine(self.catalog, SparkRunner(self.spark), self.settings.spark)

    def spark(self) -> Any:
        """The Spark application, started at the first call, and again where its Java has ended."""
        from leanops.adapters.iceberg.session import end_of_java, forget_session, start_session

        with self._starting:
            if self._spark is not None and not self._is_lent and end_of_java(self._spark):
                forget_session(self._spark)
                self._spark = None
            if self._spark is None:
                _explain(self.home / "warehouse" / self.settings.databases.shadow)
                scratch = fresh_scratch(self.home / "scratch", self.platform.processes)
                self._spark = start_session(self.settings.spark, self.catalog_properties(), scratch)
            return self._spark

    def engine_ended(self, failure: Exception) -> str | None:
        """Where a failure is the end of Spark's Java: what may have ended it, and what to do."""
        if self._spark is None:
            return None
        from leanops.adapters.iceberg.session import end_of_java

        how = end_of_java(self._spark, failure)
        place = f"now {self.settings.spark.driver_memory}; set it in leanops.toml or LEANOPS_SPARK_DRIVER_MEMORY"
        return how and f"Spark's Java {how} ({place}); the next try starts a new one"

    @property
    def scratch(self) -> Path:
        """Where this process keeps what does not fit into memory; all share it where processes have no marks."""
        return self.home / "scratch" / self.platform.processes.mark

    def sources(self) -> Sources:
        """What the views read from; SQL is answered without Spark."""
        from leanops.adapters.iceberg.query import DuckQuery

        platform = self.platform
        query = DuckQuery(self.catalog, self.scratch)
        return Sources(
            platform.catalog,
            platform.state,
            platform.schemas,
            query,
            platform.rules.databases,
            warning_share=platform.rules.pipeline.warning_share,
            lease_s=platform.rules.pipeline.lease_s,
            processes=platform.processes,
        )

    def background(self) -> Background:
        """What is on its way to RAW, and who brings it there."""
        platform = self.platform
        waiting, shortage = self.buffer.waiting(), self.room.shortage()
        return background(platform.state, self.queue.depths(), waiting, platform.clock, shortage)

    def catalog_properties(self) -> dict[str, str]:
        """The Iceberg catalog as Spark is configured for it; PyIceberg opens the same file under the same name."""
        return {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.home}/catalog.db?journal_mode=WAL&busy_timeout=30000&synchronous=FULL",
            "jdbc.schema-version": "V1",
            "warehouse": f"file://{self.home}/warehouse",
        }

    def _secret(self) -> Secret | None:
        key = os.environ.get("LEANOPS_PII_KEY") or _text(self.home / "pii.key")
        return Secret(key.encode(), self.settings.pii.key_id) if key else None

    def close(self) -> None:
        """Close the files, and stop Spark unless the caller gave it."""
        if self._spark is not None and not self._is_lent:
            from leanops.adapters.iceberg.session import stop_session

            stop_session(self._spark)
        self._spark = None
        if self.platform.processes.mark:
            # Java may still use it; whoever starts Spark next removes what is left.
            with suppress(OSError):
                self.scratch.rmdir()
        for store in (self.state, self.queue, self.buffer):
            store.close()
        self.catalog.engine.dispose()


def _explain(shadow: Path) -> None:
    """A note for people who tidy up, before anything is built there."""
    if not (shadow / "README.txt").exists():
        shadow.mkdir(parents=True, exist_ok=True)
        (shadow / "README.txt").write_text(SHADOW)


def _text(path: Path) -> str | None:
    return path.read_text().strip() if path.exists() else None
