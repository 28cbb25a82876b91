"""New paths of a batch: which get a column, which are rescued, which quarantine their row; and drift."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from leanops.domain.limits import ColumnLimits
from leanops.domain.payload.columns import register
from leanops.domain.payload.flatten import NULL, Kind

MEMORY_BYTES = 260_000
"""A row of DynamoDB has at most 400 KB."""
ENTRY_BYTES = 40
ADDED, REMOVED, TYPE_CHANGED = "ADDED", "REMOVED", "TYPE_CHANGED"
OBJECT: Kind = "object"
"""No cell has it: an object is the paths below it."""


@dataclass(frozen=True)
class ColumnPlan:
    """Where each path of a batch goes."""

    columns: Mapping[str, str]
    added: Mapping[str, str]
    rescued: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def free_paths(known: Iterable[str], named: Collection[str]) -> list[str]:
    """The paths that count against the limits: those that nobody names."""
    return [path for path in known if path not in named]


def plan_columns(
    known: Mapping[str, str],
    seen: Iterable[str],
    named: Collection[str],
    contract: str,
    limits: ColumnLimits,
    begun_with: int | None = None,
) -> ColumnPlan:
    """Columns for the paths seen in a batch: `named` ones always, the others by contract and within the limits.

    A path that no event has takes no name: the next path that asks for the same one would never get it. `begun_with`
    is how many free columns there were when the batch began: an earlier try of it may have added some.
    """
    without = set(seen) - known.keys()
    always = without & set(named)
    unknown = sorted(without - always, key=str.encode)
    room = 0
    if contract == "evolve":
        free = len(free_paths(known, set(named)))
        added = 0 if begun_with is None else free - begun_with
        room = max(0, min(limits.new_columns - added, limits.columns - free))
    first = register(known, always)
    second = register({**known, **first}, unknown[:room])
    rest = tuple(unknown[room:])
    new = {**first, **second}
    refused = rest if contract == "quarantine" else ()
    return ColumnPlan({**known, **new}, new, () if refused else rest, refused)


@dataclass(frozen=True)
class PathMemory:
    """What is remembered of a path: the kinds of the last batch that had it, and that batch's number."""

    kinds: tuple[Kind, ...]
    last_batch: int


@dataclass(frozen=True)
class Drift:
    """One row of drift_log, still without its topic and batch."""

    path: str
    action: str
    old_value: str | None
    new_value: str | None


Memory = Mapping[str, PathMemory]


class MemorySize(NamedTuple):
    """How many paths are remembered."""

    paths: int = 1_500
    others: int = 500
    """Paths without a column, beside any number of columns."""


MEMORY_SIZE = MemorySize()


def remember(
    memory: Memory,
    kinds: Mapping[str, set[Kind]],
    has_column: Callable[[str], bool] = lambda _path: False,
    last_batch: int = 0,
    size: MemorySize = MEMORY_SIZE,
) -> dict[str, PathMemory]:
    """The memory after a batch that had these paths, as far as it fits into a row of the state store.

    `last_batch` is the number of the batch before, where no path is left that has it.
    """
    now = 1 + max(last_batch_of(memory), last_batch)
    known = {path: seen - {NULL} or seen for path, seen in kinds.items()}
    news = {path: seen for path, seen in known.items() if seen != {NULL} or path not in memory}
    after = {**memory, **{path: PathMemory(tuple(sorted(seen)), now) for path, seen in news.items()}}
    return _fitting(after, has_column, size)


def _fitting(memory: Memory, has_column: Callable[[str], bool], size: MemorySize) -> dict[str, PathMemory]:
    """Paths that have a column, then those seen last, in the order in which a batch gives out its columns."""
    columns = {path for path in memory if has_column(path)}
    order = sorted(memory, key=lambda path: (path not in columns, -memory[path].last_batch, path))
    kept, room = {}, MEMORY_BYTES
    for path in order[: max(len(columns) + size.others, size.paths)]:
        length = len(json.dumps(path)) + ENTRY_BYTES
        if length <= room:
            kept[path], room = memory[path], room - length
    return kept


def real_paths(kinds: Mapping[str, set[Kind]]) -> dict[str, set[Kind]]:
    """The paths that have cells: one that is only ever null asks for no column."""
    return {path: seen for path, seen in kinds.items() if seen != {NULL}}


def drift_between(before: Memory, after: Memory, patience: int) -> list[Drift]:
    """What one batch changed: paths with a kind they did not have, and paths now unseen for `patience` batches.

    The first batch of a topic changes nothing: there was nothing before it.
    """
    now = last_batch_of(after)
    drift: list[Drift] = []
    if not before or now == last_batch_of(before):
        return drift
    objects = _became_objects(before, after, now)
    for path, seen in sorted(after.items()):
        if seen.kinds == (NULL,):
            continue
        # A path that is new, or was only null, may still arrive with two kinds at once.
        is_known = path in before and before[path].kinds != (NULL,)
        known = before[path].kinds if is_known else seen.kinds[:1]
        arrived = {*(seen.kinds if seen.last_batch == now else ()), *((OBJECT,) if path in objects else ())}
        if arrived - set(known):
            drift.append(Drift(path, TYPE_CHANGED, "|".join(known), "|".join(sorted(arrived))))
        elif now - seen.last_batch == patience:
            drift.append(Drift(path, REMOVED, "|".join(seen.kinds), None))
    return drift


def _became_objects(before: Memory, after: Memory, now: int) -> set[str]:
    """Paths that held a value, and below which paths arrive that were never there."""
    fresh = [path for path, seen in after.items() if seen.last_batch == now and path not in before]
    return {above for path in fresh for above in _above(path)} & before.keys()


def _above(path: str) -> set[str]:
    """The texts before each step of a path; one that is cut within a quoted step is not a path, and equals none."""
    return {path[:at] for at, character in enumerate(path) if character in ".["}


def last_batch_of(memory: Memory) -> int:
    """The number of the newest batch that is remembered."""
    return max((seen.last_batch for seen in memory.values()), default=0)
