"""A large batch of events: flattened where its files are read, judged where all events of a key have come together."""

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from leanops.adapters.iceberg.batches.plan import BatchPlan
from leanops.adapters.iceberg.batches.runner import Runner, portable
from leanops.adapters.iceberg.tasks.places import Place
from leanops.adapters.iceberg.tasks.raw import flatten_plan
from leanops.adapters.iceberg.tasks.units import Unit, gathered, sampled, spread
from leanops.domain.payload.flatten import Kind
from leanops.ports.engine import StandardizeWork, Written, union
from leanops.transforms.flatten import FlattenPlan

Whole = Callable[[BatchPlan, Sequence[Written | Exception]], Written | Exception]
TASKS_PER_PART = 12
"""How much more a task can hold of flattened events than it reads at once."""


def standardize_large(runner: Runner, plan: BatchPlan, whole: Whole) -> Written | Exception:
    """The files of a batch whose events are too many for one task; `whole` puts its parts together."""
    work: StandardizeWork = plan.units[0].work
    sample = sampled(plan.units[0])
    if work.columns(sample).added:
        # Better found out now than when everything was read.
        return Written(kinds=sample, lacks_columns=True)
    expected = work.expected or {path: sorted(kinds)[-1] for path, kinds in sample.items()}
    flatten = flatten_plan(work, plan.secret, expected)
    # The same number for every core, so that none waits for another.
    parts = runner.cores * -(-len(plan.units) // (TASKS_PER_PART * runner.cores))
    # Reading events needs nothing of the tables they are compared with.
    readers = [replace(unit, target=_only_layout(unit.target), errors=_only_layout(unit.errors)) for unit in plan.units]
    shuffled = runner.shuffle(_Spread(flatten, parts), readers, parts)
    kinds = union(_read(packed) for packed in shuffled.part(parts))
    if work.columns(kinds).added:
        return Written(kinds=kinds, lacks_columns=True)
    part = replace(plan.units[0], source=_only_layout(plan.units[0].source))
    # The key of HMACs has done its work, and code as long as a list of files may be written to disk.
    judge = _Gather(part, replace(flatten, key_secret=None), kinds)
    written = whole(plan, shuffled.gather(judge, range(parts)))
    return written if isinstance(written, Exception) else replace(written, kinds=kinds)


def _only_layout(place: Place) -> Place:
    return replace(place, files=())


def _read(packed: bytes) -> Mapping[str, set[Kind]]:
    """The kinds of paths that a task reports; raises what it failed with."""
    kinds: Mapping[str, set[Kind]] | Exception = pickle.loads(packed)
    if isinstance(kinds, Exception):
        raise kinds
    return kinds


@dataclass(frozen=True)
class _Spread:
    plan: FlattenPlan
    parts: int

    def __call__(self, unit: Unit) -> Iterable[tuple[int, bytes]]:
        try:
            yield from spread(unit, self.plan, self.parts)
        except Exception as failure:  # noqa: BLE001 - raised again on the driver
            yield self.parts, pickle.dumps(portable(failure))


@dataclass(frozen=True)
class _Gather:
    unit: Unit
    plan: FlattenPlan
    kinds: Mapping[str, set[Kind]]

    def __call__(self, _part: int, packed: Iterable[bytes]) -> Written:
        return gathered(self.unit, self.plan, self.kinds, packed)
