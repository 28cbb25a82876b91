"""Builds a new Standardized from RAW in portions; a finished portion is not repeated."""

from dataclasses import replace

import msgspec

from leanops.domain.errors import OperationBlockedError, UnbalancedBatchError
from leanops.domain.payload.columns import is_unusable, register
from leanops.domain.table.balance import BESIDE, StandardizedCounts, Totals
from leanops.domain.table.batch import STANDARDIZED, Batch
from leanops.domain.table.definitions import ERRORS, STANDARDIZED_SYSTEM_COLUMNS
from leanops.domain.table.definitions import STANDARDIZED as STANDARDIZED_TABLE
from leanops.domain.table.history import (
    TableView,
    has_batch,
    holds_all_read,
    retired_rows,
    valid_watermark,
    watermark_of,
)
from leanops.domain.table.operation import Place, agrees
from leanops.domain.words import counted
from leanops.ports.engine import Chosen, TableAt, Target
from leanops.usecases.operations.shadow import Portion, Shadow, portions
from leanops.usecases.pipeline import standardize
from leanops.usecases.pipeline.commit import alter
from leanops.usecases.pipeline.prepared import Prepared


def build_standardized(shadow: Shadow) -> None:
    """Build from all of RAW, continuing where an earlier attempt stopped, with the registered columns."""
    platform, place = shadow.platform, _raw(shadow)
    live = shadow.view(shadow.live_standardized)
    renamed = _renamed(live)
    payload = {renamed.get(name, name): kind for name, kind in live.columns.items()}
    columns = {
        **STANDARDIZED_TABLE.columns,
        **{name: kind for name, kind in payload.items() if name not in STANDARDIZED_TABLE.columns},
    }
    comments = {renamed.get(name, name): path for path, name in live.paths.items()}
    shadow.create(shadow.standardized, replace(STANDARDIZED_TABLE, columns=columns, comments=comments))
    shadow.create(shadow.parse_errors, ERRORS)
    _keep_retired(shadow)
    days = {values[0]: rows for values, rows in platform.catalog.partitions(shadow.raw, place.head).items()}
    done = 0
    for number, portion in enumerate(portions(days, shadow.operation.portion_rows), 1):
        shadow.progress(STANDARDIZED, done, place.rows)
        _standardize(shadow, number, portion)
        done += portion.rows
    shadow.progress(STANDARDIZED, done, done)
    counts, _ = standardized_counts(shadow)
    if counts.read != place.rows:
        raise UnbalancedBatchError(f"{shadow.operation.topic}: RAW has {place.rows} rows, {counts.read} were read")


def standardized_batch(shadow: Shadow, number: int = 0) -> Batch:
    """All of RAW as a batch; portions are numbered from 1, and the last one's number is the table's."""
    operation, place = shadow.operation, _raw(shadow)
    assert operation.standardized is not None
    return Batch(
        batch_id=operation.standardized_batch,
        topic=operation.topic,
        layer=STANDARDIZED,
        source_uuid=place.uuid,
        source_from=None,
        source_to=place.head,
        source_snapshot=place.head,
        rows=place.rows,
        batch_seq=operation.standardized.batch_seq + number,
        batch_time_ms=operation.begun_ms,
        schema_version=shadow.schema.version,
        contract=shadow.schema.policies.unknown_fields,
        limits=operation.limits,
        column_limits=operation.column_limits,
        starts_base=True,
        timeline=operation.standardized_batch,
        key_check=operation.key_check if shadow.schema.keys.pii else "",
    )


def standardized_counts(shadow: Shadow) -> tuple[StandardizedCounts, Totals]:
    """All portions as one batch into an empty table: what one portion replaced of another was superseded."""
    mark = valid_watermark(shadow.view(shadow.standardized))
    totals = mark.totals if mark else Totals()
    counts = StandardizedCounts(
        read=totals.read,
        inserted=totals.rows - totals.base_rows,
        updated=0,
        duplicates=totals.duplicates,
        superseded=totals.superseded + totals.updated,
        parse_errors=totals.parse_errors,
        **shadow.summed(shadow.standardized, [name for name in BESIDE if name != "unplaced_paths"]),
        # The portions have the same paths, or nearly so.
        unplaced_paths=max(shadow.each(shadow.standardized, "unplaced_paths"), default=0),
    )
    counts.check()
    before = retired_rows(replace(shadow.view(shadow.raw), head=_raw(shadow).head))
    return counts, replace(totals, updated=0, superseded=counts.superseded, base_raw_rows=before)


def _renamed(live: TableView) -> dict[str, str]:
    """Payload columns of the live table whose names are taken now, each with the name its path gets today."""
    broken = {path: name for path, name in live.paths.items() if is_unusable(name, STANDARDIZED_SYSTEM_COLUMNS)}
    sound = {path: name for path, name in live.paths.items() if path not in broken}
    return {broken[path]: name for path, name in register(sound, broken).items()}


def _raw(shadow: Shadow) -> Place:
    assert shadow.operation.raw is not None
    return shadow.operation.raw


def _standardize(shadow: Shadow, number: int, portion: Portion) -> None:
    """Bring one portion of RAW into the shadow, the way every batch goes."""
    target, mark = shadow.view(shadow.standardized), portion.mark(shadow.operation)
    if has_batch(target, mark):
        return
    batch = msgspec.structs.replace(
        standardized_batch(shadow, number),
        rows=portion.rows,
        starts_base=target.head is None,
        free_columns=standardize.free_columns(shadow.schema, target),
    )
    begun = standardize.StandardizeBatch(batch, shadow.schema, target)
    prepared = _written(shadow, begun, portion)
    shadow.append_errors(prepared.written, shadow.parse_errors)
    shadow.held.check()
    with shadow.platform.durable("shadow standardized"):
        summary = {**prepared.summary, "leanops.batch-id": mark}
        shadow.platform.engine().commit(prepared.target, prepared.written, summary)


def _written(shadow: Shadow, begun: standardize.StandardizeBatch, portion: Portion) -> Prepared:
    """The files of a portion; where the table lacks columns for it, they are added first."""
    for _ in range(3):
        work = standardize.work_of(shadow.platform, begun, shadow.parse_errors)
        work = replace(work, days=portion.values)
        (answer,) = shadow.platform.engine().standardize([work])
        if isinstance(answer, Exception):
            raise answer
        if not answer.lacks_columns:
            return standardize.prepared(shadow.platform, begun, work, answer)
        added = standardize.added_columns(work, answer)
        begun = replace(begun, target=alter(shadow.held, begun.target, added))
    raise UnbalancedBatchError(f"{shadow.operation.topic}: the shadow still lacks columns that were added")


def _keep_retired(shadow: Shadow) -> None:
    """Rows whose event is no longer in RAW come from the live table, before anything else: they are the base."""
    live = shadow.operation.standardized
    if shadow.view(shadow.standardized).head is not None or live is None or live.snapshot is None:
        return
    raw = replace(shadow.view(shadow.raw), head=_raw(shadow).head)
    if holds_all_read(raw, replace(shadow.view(shadow.live_standardized), head=live.snapshot)):
        return
    kept = shadow.platform.engine().retired(TableAt(shadow.live_standardized, live.snapshot), shadow.raw_rows())
    if not shadow.keeps_keys and not agrees(shadow.operation.accept, kept.rows):
        raise OperationBlockedError(
            shadow.operation.topic,
            f"{counted(kept.rows, 'row')} of {shadow.live_standardized} cannot be given new keys, because the events "
            "are no longer in RAW",
        )
    if kept.rows and shadow.keeps_keys:
        _write_base(shadow, kept)


def _write_base(shadow: Shadow, kept: Chosen) -> None:
    batch, view, engine = standardized_batch(shadow), shadow.view(shadow.standardized), shadow.platform.engine()
    mark = watermark_of(batch, StandardizedCounts(0, 0, 0, 0, 0, 0), Totals(rows=kept.rows, base_rows=kept.rows))
    target = Target(view.name, view.uuid, view.head, shadow.parse_errors)
    written = engine.keep(kept, batch, target, _renamed(shadow.view(shadow.live_standardized)))
    if written.added != kept.rows:
        engine.discard(target, written)
        raise UnbalancedBatchError(f"{batch.topic}: {kept.rows} rows have left RAW, {written.added} were kept")
    summary = {**mark.summary(), "leanops.batch-id": f"{shadow.operation.operation_id}/retired"}
    shadow.held.check()
    with shadow.platform.durable("shadow base"):
        engine.commit(target, written, summary)
