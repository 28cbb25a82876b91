"""Unfinished operations: what holds a topic up, who works on it, and what to do."""

from dataclasses import dataclass
from datetime import UTC, datetime

from leanops.domain.leases import holder
from leanops.domain.table.operation import Stage, UnfinishedOperation, Work, unfinished_from
from leanops.ports.clock import millis
from leanops.ports.state import LOCKS, OPERATIONS
from leanops.views.sources import Sources

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
    """In two words or so."""
    stage: Stage
    begun_at: datetime
    actor: str
    worker: str | None
    """Who works on it now; None where it stopped."""
    blocked: str | None
    """Why it waits for a person."""
    sentence: str
    """What holds the topic up, and what to do about it."""


def unfinished(sources: Sources) -> dict[str, Unfinished]:
    """Every unfinished operation by its topic."""
    every = [unfinished_from(stored.row) for stored in sources.state.rows(OPERATIONS)]
    return {one.operation.topic: _unfinished(one, worker_of(sources, one.operation.topic)) for one in every if one}


def _unfinished(begun: UnfinishedOperation, worker: str | None) -> Unfinished:
    operation = begun.operation
    stopped = "waits for you" if begun.blocked else f"{operation.work.value} stopped"
    is_beside = begun.stage == Stage.BUILDING
    readers = "readers have the tables as they were" if is_beside else "the new tables are taking their place"
    return Unfinished(
        work=operation.work,
        state=_DOING[operation.work] if worker else stopped,
        stage=begun.stage,
        begun_at=datetime.fromtimestamp(operation.begun_ms / 1000, UTC),
        actor=operation.actor,
        worker=worker,
        blocked=begun.blocked,
        sentence=f"{begun.begun} is at work ({worker}); {readers}" if worker else begun.sentence(),
    )


def worker_of(sources: Sources, topic: str) -> str | None:
    """Who works on a topic now, whatever it is."""
    stored = sources.state.get(LOCKS, (f"topic/{topic}",))
    if stored is None:
        return None
    found = holder(stored.row, millis(sources.clock()), sources.lease_s * 1000, sources.processes.has_ended)
    return found.owner if found else None
