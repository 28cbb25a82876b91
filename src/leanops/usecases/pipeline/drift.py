"""Drift: what is remembered of a topic's paths, and the rows it gives drift_log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from leanops.domain.payload.evolution import (
    ADDED,
    MEMORY_SIZE,
    Drift,
    MemorySize,
    PathMemory,
    drift_between,
    last_batch_of,
    remember,
)
from leanops.domain.payload.flatten import NULL, Kind
from leanops.domain.table.history import TableView
from leanops.ports.state import DRIFT_STATE, Row
from leanops.usecases.platform import Platform

Paths = dict[str, PathMemory]


@dataclass(frozen=True)
class Memory:
    """Paths before and after the newest batch, so that a repeated batch starts from the same memory.

    Written, a path is there once: `[kinds, batch]`, and behind that what it was before the newest batch, if different.
    """

    batch_id: str = ""
    earlier: Paths = field(default_factory=dict)
    paths: Paths = field(default_factory=dict)
    logged: frozenset[str] = frozenset()
    """The columns drift_log has, as marks of their paths: one for each, however long it is."""
    last_batch: int = 0
    """The number of the batch before the newest."""
    revision: int | None = None

    @staticmethod
    def load(platform: Platform, topic: str) -> "Memory":
        """What is remembered of a topic; nothing before its first batch."""
        stored = platform.state.get(DRIFT_STATE, (topic,))
        if stored is None:
            return Memory()
        memory = json.loads(str(stored.row["paths"]))
        if "seen" not in memory:
            # Written by an earlier version: starting over costs one batch without drift, and doubles no row.
            return Memory(revision=stored.revision)
        earlier = {path: _before(*entry) for path, entry in memory["seen"].items()}
        return Memory(
            memory["batch_id"],
            {path: seen for path, seen in earlier.items() if seen},
            {path: _path_memory(*entry[:2]) for path, entry in memory["seen"].items()},
            frozenset(memory["logged"]),
            memory["last_batch"],
            stored.revision,
        )

    def before(self, batch_id: str) -> Paths:
        """The memory a batch starts from."""
        return self.earlier if self.batch_id == batch_id else self.paths

    def save(self, platform: Platform, topic: str) -> None:
        """Write the memory; under the topic's lease nobody else does."""
        memory = {
            "batch_id": self.batch_id,
            "seen": {path: _entry(seen, self.earlier.get(path)) for path, seen in self.paths.items()},
            "logged": sorted(self.logged),
            "last_batch": self.last_batch,
        }
        text = json.dumps(memory, separators=(",", ":"))
        row: Row = {"topic_name": topic, "paths": text, "updated_at": platform.now_ms()}
        platform.state.put(DRIFT_STATE, row, expected=self.revision)


def expected_kinds(platform: Platform, topic: str, table: TableView, batch_id: str = "") -> dict[str, Kind]:
    """What earlier batches had; a path first seen in this batch still gets its cells, only more slowly."""
    memory = Memory.load(platform, topic).before(batch_id)
    is_known = table.paths.keys() | {path for path, seen in memory.items() if seen.kinds == (NULL,)}
    return {path: seen.kinds[-1] for path, seen in sorted(memory.items()) if path in is_known}


def note_kinds(
    platform: Platform, topic: str, batch_id: str, kinds: Mapping[str, set[Kind]], size: MemorySize = MEMORY_SIZE
) -> None:
    """Remember the paths of a batch, before it is committed; noting them twice is the same as once."""
    memory = Memory.load(platform, topic)
    earlier = memory.before(batch_id)
    last_batch = memory.last_batch if batch_id == memory.batch_id else last_batch_of(memory.paths)
    paths = remember(earlier, kinds, lambda path: _mark(path) in memory.logged, last_batch, size)
    Memory(batch_id, earlier, paths, memory.logged, last_batch, memory.revision).save(platform, topic)


def drift_rows(platform: Platform, topic: str, columns: Mapping[str, str], detected: datetime) -> list[dict[str, Any]]:
    """The rows drift_log lacks: columns not logged yet, and what the newest batch changed."""
    memory = Memory.load(platform, topic)
    patience = platform.rules.pipeline.removed_after_batches
    changed = drift_between(memory.earlier, memory.paths, patience)
    news = sorted(path for path in columns if _mark(path) not in memory.logged)
    added = [Drift(path, ADDED, None, _kinds(memory.paths, path)) for path in news]
    return [_row(topic, drift, columns, memory.batch_id, detected) for drift in (*added, *changed)]


def has_logged(platform: Platform, topic: str) -> bool:
    """Whether the memory tells which columns drift_log has."""
    return bool(Memory.load(platform, topic).logged)


def mark_logged(platform: Platform, topic: str, paths: Sequence[str]) -> None:
    """Note that drift_log has these columns and the newest batch's changes."""
    memory = Memory.load(platform, topic)
    logged = memory.logged | {_mark(path) for path in paths}
    after = replace(memory, earlier=memory.paths, logged=logged, last_batch=last_batch_of(memory.paths))
    after.save(platform, topic)


def _mark(path: str) -> str:
    return sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _entry(now: PathMemory, before: PathMemory | None) -> list[str | int]:
    """A path as it is written; what it was before is left out where it is the same."""
    entry: list[str | int] = ["|".join(now.kinds), now.last_batch]
    if before is None:
        return [*entry, 0]
    if before == now:
        return entry
    return [*entry, before.last_batch, *(["|".join(before.kinds)] if before.kinds != now.kinds else [])]


def _before(kinds: str, batch: int, earlier: int | None = None, earlier_kinds: str | None = None) -> PathMemory | None:
    """What a path was before the newest batch, read from its entry; 0 says that it was not there."""
    if earlier == 0:
        return None
    return _path_memory(earlier_kinds or kinds, batch if earlier is None else earlier)


def _path_memory(kinds: str, batch: int) -> PathMemory:
    return PathMemory(tuple(kinds.split("|")), batch)


def _kinds(paths: Paths, path: str) -> str | None:
    return "|".join(paths[path].kinds) if path in paths else None


def _row(topic: str, drift: Drift, columns: Mapping[str, str], batch_id: str, detected: datetime) -> dict[str, Any]:
    return {
        "detected_ts": detected,
        "topic_name": topic,
        "column_name": columns.get(drift.path, drift.path),
        "action": drift.action,
        "source_layer": "standardized",
        "old_value": drift.old_value,
        "new_value": drift.new_value,
        "details": json.dumps({"path": drift.path, "batch_id": batch_id}, ensure_ascii=False),
    }
