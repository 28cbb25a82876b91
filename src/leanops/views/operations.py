"""Operations that stand: what holds a topic up, who works on it, and what to do."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from leanops.domain.leases import holder
from leanops.domain.table.operation import Stage, Standing, Work, standing_from
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
    """The operation of a topic that was begun and is not finished."""

    standing: Standing
    worker: str | None
    """Who works on it now; None where it stopped."""

    @property
    def state(self) -> str:
        """In two words or so."""
        if self.worker:
            return _DOING[self.standing.operation.work]
        return "waits for you" if self.standing.blocked else f"{self.standing.operation.work.value} stopped"

    def sentence(self) -> str:
        """What holds the topic up, and what to do about it."""
        if self.worker is None:
            return self.standing.sentence()
        is_beside = self.standing.stage == Stage.BUILDING
        readers = "readers have the tables as they were" if is_beside else "the new tables are taking their place"
        return f"{self.standing.begun} is at work ({self.worker}); {readers}"

    def as_json(self) -> dict[str, Any]:
        operation = self.standing.operation
        return {
            "work": operation.work.value,
            "state": self.state,
            "stage": self.standing.stage.value,
            "begun_at": datetime.fromtimestamp(operation.begun_ms / 1000, UTC),
            "actor": operation.actor,
            "worker": self.worker,
            "blocked": self.standing.blocked,
            "sentence": self.sentence(),
        }


def unfinished(sources: Sources) -> dict[str, Unfinished]:
    """Every operation that stands, by its topic."""
    found = [standing_from(stored.row) for stored in sources.state.rows(OPERATIONS)]
    return {one.operation.topic: Unfinished(one, worker_of(sources, one.operation.topic)) for one in found if one}


def worker_of(sources: Sources, topic: str) -> str | None:
    """Who works on a topic now, whatever it is."""
    stored = sources.state.get(LOCKS, (f"topic/{topic}",))
    if stored is None:
        return None
    found = holder(stored.row, millis(sources.clock()), sources.lease_s * 1000, sources.processes.has_ended)
    return found.owner if found else None
