"""What every use case works with: ports and settings, put together by a runtime."""

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Le

from leanops.domain.errors import UsageError, WrongKeyError, reason_of
from leanops.domain.event.names import Databases
from leanops.domain.limits import ColumnLimits, Limits
from leanops.ports.clock import Clock, millis
from leanops.ports.engine import Engine
from leanops.ports.processes import Processes, UnknownProcesses
from leanops.ports.schemas import Schemas
from leanops.ports.state import StateStore
from leanops.ports.tables import Catalog

SHORTEST_KEY = 16
"""Bytes. With a shorter key, values could be recovered by trying all keys."""


def no_step(_name: str) -> None:
    """Ignore a step; only tests watch them."""


@dataclass(frozen=True)
class PipelineRules:
    """How cycles work on topics."""

    workers: Annotated[int, Ge(1), "Topics worked on at the same time in one application."] = 4
    explore: Annotated[bool, "Standardize topics that have no schema yet."] = False
    cycle_s: Annotated[int, Ge(1), "Seconds between the starts of two cycles of `leanops serve`."] = 900
    tries: Annotated[int, Ge(1), "A layer that failed this often is parked until it is retried."] = 5
    backoff_s: Annotated[int, Ge(0), "Seconds before a failed layer is tried again; doubles each time."] = 60
    lease_s: Annotated[
        int, Ge(3), "Seconds until the lease of a lost worker expires; one killed on this host loses it at once."
    ] = 300
    warning_share: Annotated[float, Ge(0), Le(1), "Share of unusual rows in a batch that causes a warning."] = 0.01
    removed_after_batches: Annotated[int, Ge(1), "A path not seen for this many batches counts as REMOVED."] = 10


@dataclass(frozen=True)
class OperationRules:
    """How deploys, rebuilds and rollbacks work."""

    wait_s: Annotated[int, Ge(0), "Seconds an operation waits for a cycle to release its topic."] = 120
    rebuild_rows: Annotated[int, Ge(1), "Rows a rebuild processes at a time; progress is kept."] = 2_000_000


@dataclass(frozen=True)
class PiiRules:
    """How PII is sealed."""

    key_id: Annotated[str, "Name of the key in use, recorded with what it sealed."] = "local-1"


@dataclass(frozen=True)
class Rules:
    """The sections of the settings that every use case may ask for."""

    databases: Databases = field(default_factory=Databases)
    limits: Limits = field(default_factory=Limits)
    tables: ColumnLimits = field(default_factory=ColumnLimits)
    pipeline: PipelineRules = field(default_factory=PipelineRules)
    operations: OperationRules = field(default_factory=OperationRules)


@dataclass(frozen=True)
class Actor:
    """A person or a program, and the way it came."""

    name: str
    channel: str = "cli"


SYSTEM = Actor("leanops", "system")


@dataclass(frozen=True)
class Secret:
    """The key of HMACs and its name; the key itself is never in a table, plan or log."""

    key: bytes
    key_id: str

    @property
    def check(self) -> str:
        """A value that identifies the key without revealing it."""
        return hmac.digest(self.key, b"leanops key check", "sha256").hex()[:16]


@dataclass(frozen=True)
class Platform:
    """Ports and settings; `engine` starts Spark when it is first needed."""

    catalog: Catalog
    engine: Callable[[], Engine]
    state: StateStore
    schemas: Schemas
    clock: Clock
    owner: str
    actor: Actor = SYSTEM
    """Who is on record for what is done through this platform."""
    rules: Rules = field(default_factory=Rules)
    secret: Secret | None = None
    processes: Processes = field(default_factory=UnknownProcesses)
    """Tells whether the process that holds a lease is still running."""
    explain: Callable[[Exception], str] = reason_of
    """One line for a failure that stops only a part of the work; a runtime may keep its trace too."""
    step: Callable[[str], None] = no_step
    """Called before and after every durable step; tests stop the work here as a kill would."""

    @contextmanager
    def durable(self, name: str) -> Iterator[None]:
        """A durable step, with a place before and after it where a test can stop the work."""
        self.step(f"before {name}")
        yield
        self.step(f"after {name}")

    def now_ms(self) -> int:
        return millis(self.clock())


def secret_key(platform: Platform, topic: str) -> bytes:
    """The key of HMACs; raises if a schema needs it and none is set, or it is too short."""
    if platform.secret is None:
        raise UsageError(f"topic {topic!r} seals PII with an HMAC and no key is set; set LEANOPS_PII_KEY")
    if len(platform.secret.key) < SHORTEST_KEY:
        raise UsageError(
            f"topic {topic!r} seals PII with an HMAC and the key has {len(platform.secret.key)} bytes; set "
            f"LEANOPS_PII_KEY to one of {SHORTEST_KEY} or more, like the output of: openssl rand -hex 32"
        )
    return platform.secret.key


def key_check(platform: Platform, topic: str, *, seals: bool, before: str) -> str:
    """The check value a commit records; raises WrongKeyError if existing rows were sealed with another key."""
    if not seals:
        return before
    secret_key(platform, topic)
    assert platform.secret is not None
    if before not in ("", platform.secret.check):
        raise WrongKeyError(topic, before, platform.secret.check)
    return platform.secret.check
