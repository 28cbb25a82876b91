"""What every view reads from."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from leanops.domain.event.names import Databases
from leanops.ports.clock import Clock
from leanops.ports.processes import Processes, UnknownProcesses
from leanops.ports.query import Query
from leanops.ports.schemas import Schemas
from leanops.ports.state import StateStore
from leanops.ports.tables import Catalog


@dataclass(frozen=True)
class Sources:
    """Ports and database names; views only read."""

    catalog: Catalog
    state: StateStore
    schemas: Schemas
    query: Query
    databases: Databases
    warning_share: float
    lease_s: int
    clock: Clock = lambda: datetime.now(UTC)
    processes: Processes = field(default_factory=UnknownProcesses)


def time_of(epoch_ms: int) -> datetime:
    """Milliseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
