"""Drift: what is remembered of a topic's paths, and the rows it gives drift_log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from leanops.domain.evolution import ADDED, Drift, PathMemory, drift_between, remember
from leanops.domain.flatten import Kind
from leanops.ports.state import DRIFT_STATE, Row
from leanops.usecases.platform import Platform

Paths = dict[str, PathMemory]


@dataclass(frozen=True)
class Memory:
    """Paths before and after the newest batch, so that a repeated batch starts from the same memory."""

    batch_id: str = ""
    earlier: Paths = field(default_factory=dict)
    paths: Paths = field(default_factory=dict)
    logged: tuple[str, ...] = ()
    revision: int | None = None

    @staticmethod
    def load(platform: Platform, topic: str) -> "Memory":
        """What is remembered of a topic; nothing before its first batch."""
        stored = platform.state.get(DRIFT_STATE, (topic,))
        if stored is None:
            return Memory()
        said = json.loads(str(stored.row["paths"]))
        earlier, paths = (
            {p: PathMemory(tuple(k), n) for p, (k, n) in said[key].items()} for key in ("earlier", "paths")
        )
        return Memory(said["batch_id"], earlier, paths, tuple(said["logged"]), stored.revision)

    def before(self, batch_id: str) -> Paths:
        """The memory a batch starts from."""
        return self.earlier if self.batch_id == batch_id else self.paths

    def save(self, platform: Platform, topic: str) -> None:
        """Write the memory; under the topic's lease nobody else does."""
        said = {
            "batch_id": self.batch_id,
            "earlier": {path: [seen.kinds, seen.last_batch] for path, seen in self.earlier.items()},
            "paths": {path: [seen.kinds, seen.last_batch] for path, seen in self.paths.items()},
            "logged": self.logged,
        }
        row: Row = {"topic_name": topic, "paths": json.dumps(said), "updated_at": platform.now_ms()}
        platform.state.put(DRIFT_STATE, row, expected=self.revision)


def note_kinds(platform: Platform, topic: str, batch_id: str, kinds: Mapping[str, set[Kind]]) -> None:
    """Remember the paths of a batch, before it is committed; noting them twice is the same as once."""
    memory = Memory.load(platform, topic)
    earlier = memory.before(batch_id)
    Memory(batch_id, earlier, remember(earlier, kinds), memory.logged, memory.revision).save(platform, topic)


def drift_rows(platform: Platform, topic: str, columns: Mapping[str, str], detected: datetime) -> list[dict[str, Any]]:
    """The rows drift_log lacks: columns not logged yet, and what the newest batch changed."""
    memory = Memory.load(platform, topic)
    patience = platform.rules.removed_after_batches
    changed = drift_between(memory.earlier, memory.paths, patience)
    added = [Drift(path, ADDED, None, _kinds(memory.paths, path)) for path in sorted(set(columns) - set(memory.logged))]
    return [_row(topic, drift, columns, memory.batch_id, detected) for drift in (*added, *changed)]


def has_logged(platform: Platform, topic: str) -> bool:
    """Whether the memory tells which columns drift_log has."""
    return bool(Memory.load(platform, topic).logged)


def mark_logged(platform: Platform, topic: str, paths: Sequence[str]) -> None:
    """Note that drift_log has these columns and the newest batch's changes."""
    memory = Memory.load(platform, topic)
    logged = tuple(sorted({*memory.logged, *paths}))
    Memory(memory.batch_id, memory.paths, memory.paths, logged, memory.revision).save(platform, topic)


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
