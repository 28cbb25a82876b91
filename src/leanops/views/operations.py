"""Unfinished operations: why a topic waits, who works on it, and what to do."""

from dataclasses import dataclass
from datetime import datetime

from leanops.domain.leases import holder
from leanops.domain.table.operation import Stage, UnfinishedOperation, Work, unfinished_from
from leanops.ports.clock import millis
from leanops.ports.state import LOCKS, OPERATIONS
from leanops.views.sources import Sources, time_of

_DOING = {
    Work.DEPLOY: "deploying",
    Work.REBUILD: "rebuilding",
    Work.RECURATE: "re-curating",
    Work.ROLLBACK: "rolling back",
}


@dataclass(frozen=True)
class Unfinished:
    """The unfinished operation of a topic."""

    work: Work
    state: str
    """In a word or two."""
    stage: Stage
    begun_at: datetime
    actor: str
    worker: str | None
    """Who works on it now; None if it stopped."""
    blocked: str | None
    """Why it waits for a person."""
    sentence: str
    """Why the topic waits, and what to do."""


def unfinished(sources: Sources) -> dict[str, Unfinished]:
    """Every unfinished operation by its topic."""
    operations = filter(None, (unfinished_from(stored.row) for stored in sources.state.rows(OPERATIONS)))
    begun = {operation.operation.topic: operation for operation in operations}
    return {topic: _unfinished(operation, worker_of(sources, topic)) for topic, operation in begun.items()}


def _unfinished(begun: UnfinishedOperation, worker: str | None) -> Unfinished:
    operation = begun.operation
    stopped = "waits for a decision" if begun.blocked else f"{operation.work.value} stopped"
    is_beside = begun.stage == Stage.BUILDING
    readers = "readers use the live tables" if is_beside else "the new tables are replacing the live ones"
    return Unfinished(
        work=operation.work,
        state=_DOING[operation.work] if worker else stopped,
        stage=begun.stage,
        begun_at=time_of(operation.begun_ms),
        actor=operation.actor,
        worker=worker,
        blocked=begun.blocked,
        sentence=f"{begun.begun} is running ({worker}); {readers}" if worker else begun.sentence(),
    )


def worker_of(sources: Sources, topic: str) -> str | None:
    """Who holds the lease of a topic now."""
    stored = sources.state.get(LOCKS, (f"topic/{topic}",))
    if stored is None:
        return None
    lease = holder(stored.row, millis(sources.clock()), sources.lease_s * 1000, sources.processes.has_ended)
    return lease.owner if lease else None
