"""A topic's tables back to an earlier moment: what that would change, and doing it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from typing import Any

import msgspec

from leanops.domain.errors import UsageError
from leanops.domain.schema.model import Schema
from leanops.domain.table.balance import new_keys
from leanops.domain.table.batch import STANDARDIZED
from leanops.domain.table.history import TableView, Watermark, is_ancestor, new_range, valid_watermark, watermark_from
from leanops.domain.table.operation import Accept, Accepted, Operation, Place, Scope, Stage, Work, agrees
from leanops.domain.words import counted
from leanops.usecases.audit import record_action
from leanops.usecases.journal import schema_of_version
from leanops.usecases.leases import HeldTopic, hold_topic
from leanops.usecases.operation_log import begin, check_free
from leanops.usecases.operations.execute import execute
from leanops.usecases.operations.shadow import Progress, quiet
from leanops.usecases.operations.start import new_operation, settle
from leanops.usecases.pipeline.late_batches import has_late_batches
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import check_running, find_topic


@dataclass(frozen=True)
class Rollback:
    """What going back changes, as the tables' own history tells it."""

    topic: str
    snapshot: int
    """The snapshot of Standardized that comes back."""
    curated_snapshot: int | None
    """The snapshot of Curated that goes with it; None if Curated is rebuilt from Standardized."""
    rows_now: int
    rows_then: int
    batches: tuple[str, ...]
    """The batches of Standardized that are undone, newest first."""
    read_again: int
    """RAW rows that the next cycle reads again."""
    by_replace: bool
    """Whether a rebuild lies between, so that the table is brought back by a commit of its own."""
    leaving: int | None = None
    """Keys that leave Curated; None if only the rebuild can tell."""

    @property
    def changes_nothing(self) -> bool:
        return not self.batches and not self.by_replace

    def as_json(self) -> dict[str, Any]:
        """The fields, but ids of snapshots are texts: JSON readers round such numbers."""
        curated = None if self.curated_snapshot is None else str(self.curated_snapshot)
        return {**asdict(self), "snapshot": str(self.snapshot), "curated_snapshot": curated}


def plan_rollback(platform: Platform, topic: str, *, snapshot: int | None = None, at_ms: int | None = None) -> Rollback:
    """What going back to a snapshot of Standardized, or to a moment, would change; nothing is touched."""
    find_topic(platform, topic)
    schema = _active(platform, topic)
    view = platform.catalog.load(platform.rules.databases.standardized_table(topic))
    now = valid_watermark(view) if view else None
    if view is None or now is None:
        raise UsageError(f"topic {topic!r} has no tables to roll back yet")
    target = snapshot if snapshot is not None else _head_at(view, at_ms or 0)
    if target not in view.snapshots:
        raise UsageError(f"{view.name} has no snapshot {target}; leanops topics show {topic} lists those it has")
    then = _then(platform, topic, view, target, now)
    by_replace = not is_ancestor(view, target)
    if by_replace:
        _check_same_keys(platform, topic, schema, then)
    undone = [] if by_replace else _undone(view, then)
    curated = platform.catalog.load(platform.rules.databases.curated_table(schema.table_name))
    curated_at = _curated_at(curated, view, target, then) if curated and not by_replace else None
    return Rollback(
        topic=topic,
        snapshot=target,
        curated_snapshot=curated_at,
        rows_now=now.totals.rows,
        rows_then=then.totals.rows,
        batches=tuple(mark.batch_id for mark in undone),
        read_again=_read_again(platform, topic, then, now, None if by_replace else undone),
        by_replace=by_replace,
        leaving=_leaving(curated, curated_at) if curated and curated_at is not None else None,
    )


def roll_back_topic(
    platform: Platform, plan: Rollback, progress: Progress = quiet, *, accept: Accepted = Accept.NONE
) -> Rollback:
    """Go back; the topic stays paused, because the next cycle would redo what is undone here."""
    topic = plan.topic
    with hold_topic(platform, topic, wait_s=platform.rules.operations.wait_s) as held:
        check_free(platform, topic)
        check_running(platform, topic)
        schema = _active(platform, topic)
        settle(held, schema)
        # Settling may have committed nothing, but it may have recorded; and others may have come before us.
        fresh = plan_rollback(platform, topic, snapshot=plan.snapshot)
        check_agreed(fresh, accept)
        operation = _operation(held, fresh, schema, accept)
        stage = Stage.GOING if operation.scope == Scope.NONE else Stage.BUILDING
        execute(held, begin(held, operation, stage), progress)
    record_action(platform, "rollback", [topic], fresh.as_json())
    return fresh


def check_agreed(plan: Rollback, accept: Accepted) -> None:
    """Raise if keys would leave Curated without consent."""
    if plan.leaving is not None and not agrees(accept, plan.leaving):
        raise UsageError(
            f"{plan.topic}: {counted(plan.leaving, 'key')} would leave Curated until the topic is resumed; allow it "
            f"with --accept-missing {plan.leaving}"
        )


def _operation(held: HeldTopic, plan: Rollback, schema: Schema, accept: Accepted) -> Operation:
    scope = Scope.NONE if plan.curated_snapshot is not None else Scope.CURATED
    operation = new_operation(held, Work.ROLLBACK, schema=schema, active=schema, scope=scope, accept=accept)
    view = held.platform.catalog.load(held.platform.rules.databases.standardized_table(plan.topic))
    assert view is not None
    mark = valid_watermark(replace(view, head=plan.snapshot))
    assert mark is not None
    return msgspec.structs.replace(
        operation,
        standardized=Place(view.uuid, plan.snapshot, mark.batch_seq, plan.rows_then),
        back_to=plan.snapshot,
        curated_back_to=plan.curated_snapshot,
        columns=dict(view.paths),
    )


def _active(platform: Platform, topic: str) -> Schema:
    schema = platform.schemas.active(topic)
    if schema is None:
        raise UsageError(f"topic {topic!r} has no schema, so it has no tables to roll back")
    return schema


def _then(platform: Platform, topic: str, view: TableView, target: int, now: Watermark) -> Watermark:
    """The watermark at the snapshot to go back to; raises if that snapshot must not come back."""
    back = replace(view, head=target)
    if has_late_batches(platform, topic, STANDARDIZED, back):
        raise UsageError(
            f"snapshot {target} of {view.name} holds an abandoned batch that was committed late; choose one "
            "from before it"
        )
    then = valid_watermark(back)
    if then is None:
        raise UsageError(
            f"snapshot {target} of {view.name} is older than its first batch; there is nothing to go back to"
        )
    if then.key_check and now.key_check and then.key_check != now.key_check:
        raise UsageError(
            f"{topic}: its tables were sealed with another key since then, so rows sealed with the old one would "
            f"return; set LEANOPS_PII_KEY to the old key and use: leanops rebuild {topic} --new-key"
        )
    return then


def _head_at(view: TableView, at_ms: int) -> int:
    """The snapshot that was the head at a moment."""
    before = [snapshot for when, snapshot in view.history if when <= at_ms]
    if not before:
        raise UsageError(f"{view.name} had no snapshot yet at that time; choose a later one")
    return before[-1]


def _undone(view: TableView, then: Watermark) -> list[Watermark]:
    marks = [mark for snapshot in view.ancestors() if (mark := watermark_from(snapshot))]
    return [mark for mark in marks if mark.batch_seq > then.batch_seq]


def _read_again(
    platform: Platform, topic: str, then: Watermark, now: Watermark, undone: Sequence[Watermark] | None
) -> int:
    """RAW rows the next cycle reads a second time; all of them if RAW's history does not reach back that far."""
    raw = platform.catalog.load(platform.rules.databases.raw_table(topic))
    before, after = (new_range(raw, mark) if raw else None for mark in (then, now))
    rows = (before.rows if before else 0) - (after.rows if after else 0)
    if undone is None or (before and before.is_gap):
        # The batches do not count it: a rebuild has read them all, or everything is read again.
        return rows
    return sum(mark.counts["read"] for mark in undone)


def _curated_at(view: TableView, standardized: TableView, target: int, then: Watermark) -> int | None:
    """The newest ancestor of Curated that has read nothing beyond the target, if any."""
    back = replace(standardized, head=target)
    for snapshot in view.ancestors():
        mark = watermark_from(snapshot)
        if mark and mark.source_to <= then.batch_seq and is_ancestor(back, mark.source_snapshot):
            return snapshot.snapshot_id
    return None


def _leaving(view: TableView, target: int) -> int:
    """Keys that came into Curated after a snapshot; no batch removes any."""
    later = takewhile(lambda snapshot: snapshot.snapshot_id != target, view.ancestors())
    marks = [mark for snapshot in later if (mark := watermark_from(snapshot))]
    return sum(new_keys(mark.counts) for mark in marks)


def _check_same_keys(platform: Platform, topic: str, schema: Schema, then: Watermark) -> None:
    """Raise if rows keyed by another rule would come back."""
    if then.schema_version and schema_of_version(platform, topic, then.schema_version).keys == schema.keys:
        return
    raise UsageError(
        f"{topic}: a rebuild changed the keys since then; use: leanops schema rollback {topic} "
        f"--to {then.schema_version or 'VERSION'} --rebuild"
    )
