"""What every use case works with: ports and settings, put together by a runtime."""

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from leanops.domain.errors import UsageError, WrongKeyError, reason_of
from leanops.domain.event.names import Databases
from leanops.domain.limits import ColumnLimits, Limits
from leanops.ports.clock import Clock, millis
from leanops.ports.processes import Processes, UnknownProcesses
from leanops.ports.schemas import Schemas
from leanops.ports.state import StateStore
from leanops.ports.tables import Catalog, Lake

SHORTEST_KEY = 16
"""Bytes. Values of few kinds fall to whoever can try all keys."""


def no_step(_name: str) -> None:
    """The steps of a batch are only watched by tests."""


@dataclass(frozen=True)
class Rules:
    """Settings that change what a cycle does."""

    databases: Databases = field(default_factory=Databases)
    limits: Limits = field(default_factory=Limits)
    column_limits: ColumnLimits = field(default_factory=ColumnLimits)
    removed_after_batches: int = 10
    tries: int = 5
    backoff_s: int = 60
    lease_s: int = 300
    found_keys: int = 2_000
    warning_share: float = 0.01
    """More odd rows than this share of a batch are told."""
    explore: bool = False
    workers: int = 4
    wait_s: float = 0
    """How long an operation waits for a cycle to let go of its topic."""
    rebuild_rows: int = 2_000_000
    """About as many rows are made anew at a time; what is done need not be done again after a crash."""


@dataclass(frozen=True)
class Actor:
    """A person or a program, and the way it came."""

    name: str
    channel: str = "cli"


SYSTEM = Actor("leanops", "system")


@dataclass(frozen=True)
class Secret:
    """The key of HMACs, and its name; the key itself stands in no table, plan or log."""

    key: bytes
    key_id: str

    @property
    def check(self) -> str:
        """A value that tells this key from another and gives nothing of it away."""
        return hmac.digest(self.key, b"leanops key check", "sha256").hex()[:16]


@dataclass(frozen=True)
class Platform:
    """Ports and settings; `lake` starts Spark when it is first called, and gives each thread its own."""

    catalog: Catalog
    lake: Callable[[], Lake]
    state: StateStore
    schemas: Schemas
    clock: Clock
    owner: str
    actor: Actor = SYSTEM
    """Who is on record for what is done through this platform."""
    rules: Rules = field(default_factory=Rules)
    secret: Secret | None = None
    processes: Processes = field(default_factory=UnknownProcesses)
    """Tells a lease of a process that runs from one of a process that was killed."""
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
    """The key of HMACs; raises where a schema asks for it and none is set, or one that can be guessed."""
    if platform.secret is None:
        raise UsageError(f"topic {topic!r} seals PII with an HMAC and no key is set; set LEANOPS_PII_KEY")
    if len(platform.secret.key) < SHORTEST_KEY:
        raise UsageError(
            f"topic {topic!r} seals PII with an HMAC and the key has {len(platform.secret.key)} bytes; set "
            f"LEANOPS_PII_KEY to one of {SHORTEST_KEY} or more, like the output of: openssl rand -hex 32"
        )
    return platform.secret.key


def key_check(platform: Platform, topic: str, *, seals: bool, before: str) -> str:
    """What a commit notes of the key; raises WrongKeyError where what is there was sealed with another one."""
    if not seals:
        return before
    secret_key(platform, topic)
    assert platform.secret is not None
    if before not in ("", platform.secret.check):
        raise WrongKeyError(topic, before, platform.secret.check)
    return platform.secret.check
