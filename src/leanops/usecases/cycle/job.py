"""One topic on its way through a bin, and how its cycle ended."""

from dataclasses import dataclass, field
from typing import Any

from leanops.domain.table.outcome import Outcome
from leanops.ports.engine import Fold
from leanops.usecases.cycle.plan import TopicPlan
from leanops.usecases.leases import HeldTopic
from leanops.usecases.pipeline.prepared import Prepared
from leanops.usecases.pipeline.run_history import LayerResult


@dataclass
class TopicResult:
    """How a topic's cycle ended."""

    topic: str
    outcome: Outcome
    reason: str | None = None
    layers: dict[str, LayerResult] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    """What a person should know though nothing failed."""
    failure: Exception | None = field(default=None, repr=False)

    def sentence(self) -> str:
        """The outcome in a line."""
        counts = [
            f"{name} {', '.join(f'{count:,} {what}' for what, count in layer.counts.items() if count)}"
            for name, layer in self.layers.items()
        ]
        reason = [self.reason] if self.reason else []
        return "; ".join([f"{self.topic}: {self.outcome.value}", *counts, *reason, *self.warnings])

    def as_json(self) -> dict[str, object]:
        """Each layer under its own name, and no exception: its reason is the text of it."""
        ended = {"topic": self.topic, "outcome": self.outcome, "reason": self.reason, "warnings": self.warnings}
        return {**ended, **self.layers}


@dataclass
class Job:
    """One topic on its way through a bin."""

    plan: TopicPlan
    held: HeldTopic
    result: TopicResult
    begun: Any = None
    work: Any = None
    answer: Any = None
    """The batch on record, what the engine is asked to do for it, and what it answered."""
    prepared: Prepared | None = None
    standardized: Prepared | None = None
    """The batch of Standardized that this cycle wrote."""
    is_handed_over: bool = False
    """Whether a commit of the prepared batch was tried."""
    folds: list[Fold] = field(default_factory=list)
    """Tables of many small files."""
    started: float = 0.0

    @property
    def failed(self) -> bool:
        return self.result.outcome == Outcome.FAILED

    def fail(self, failure: Exception, reason: str) -> None:
        self.result.outcome, self.result.reason = Outcome.FAILED, reason
        self.result.failure = failure
