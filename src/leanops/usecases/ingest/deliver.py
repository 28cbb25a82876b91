"""Our own delivery stream: what the buffer holds lands in RAW, each flush exactly once in each table."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Annotated

from annotated_types import Ge, Le

from leanops.domain.event.record import RawRecord, Unroutable, encode, routed
from leanops.domain.table.batch import STANDARDIZED, new_batch_id
from leanops.domain.table.definitions import RAW
from leanops.domain.table.history import TableView, expirable, valid_watermark
from leanops.ports.delivery import Buffer, Waiting
from leanops.ports.files import Files
from leanops.usecases.ingest.archive import archive, unroutable
from leanops.usecases.journal import open_batch
from leanops.usecases.platform import Platform
from leanops.usecases.retry import Renewal
from leanops.usecases.topics.registry import list_topics

FLUSH_ID = "leanops.flush-id"
SNAPSHOTS_BEFORE_EXPIRY = 40
UNROUTABLE = "events of no topic"
RENEW_S = 10.0
RETRY_S = 60.0


@dataclass(frozen=True)
class DeliveryRules:
    """When the delivery buffer is flushed."""

    flush_mb: Annotated[int, Ge(1), Le(128), "Megabytes in the delivery buffer that start a flush."] = 64
    flush_s: Annotated[int, Ge(1), Le(900), "Seconds in the delivery buffer that start a flush."] = 300
    held_snapshots: int = 200
    """How far back unfinished flushes hold snapshots: each is tried every minute, and may wait days for a table."""


@dataclass(frozen=True)
class Stream:
    """What the delivery stream works with."""

    platform: Platform
    buffer: Buffer
    files: Files
    rules: DeliveryRules = field(default_factory=DeliveryRules)


@dataclass
class Flushed:
    """What a flush did."""

    flush_id: str
    records: int = 0
    unroutable: int = 0
    tables: dict[str, float] = field(default_factory=dict)
    """Topic → seconds of its commit."""
    failures: dict[str, str] = field(default_factory=dict)
    """Topic (or UNROUTABLE) → why its records were not landed; they are kept and tried again."""


def is_due(waiting: Waiting, now_ms: int, rules: DeliveryRules) -> bool:
    """Whether the buffer must be flushed; a put later than now was made before the clock was set back."""
    if waiting.oldest_ms is None:
        return False
    age_ms = now_ms - waiting.oldest_ms
    return waiting.bytes >= rules.flush_mb * 1_000_000 or age_ms >= rules.flush_s * 1000 or age_ms < 0


def deliver(stream: Stream, *, now: bool = False) -> Flushed | None:
    """Begin a flush if one is due (or `now`), and finish it; None if there is nothing to flush."""
    buffer, platform = stream.buffer, stream.platform
    if not (now or is_due(buffer.waiting(), platform.now_ms(), stream.rules)):
        return None
    flush_id = new_batch_id(platform.clock())
    platform.step("before claim")
    if not buffer.claim(flush_id, stream.rules.flush_mb * 1_000_000):
        return None
    platform.step("after claim")
    return _flush(stream, flush_id)


def resume(stream: Stream) -> Flushed | None:
    """Finish a flush that a worker abandoned, or whose tables failed; None if none can be tried now."""
    flush_id = stream.buffer.take_over()
    return _flush(stream, flush_id) if flush_id else None


def _flush(stream: Stream, flush_id: str) -> Flushed:
    """Land every table, then forget the claim; only the records of tables that fail stay claimed."""
    platform, buffer = stream.platform, stream.buffer
    result, keep = Flushed(flush_id), Renewal(partial(buffer.renew, flush_id), RENEW_S)
    rows, unroutables = _routed(platform, buffer.lines(flush_id))
    left = []
    for record in unroutables:
        keep()
        try:
            archive([unroutable(record)], stream.files, platform.state, platform.clock)
        except Exception as failure:  # noqa: BLE001 - a dead letter that cannot be archived stops no table
            result.failures[UNROUTABLE] = platform.explain(failure)
            left.append(record.record)
    result.unroutable = len(unroutables) - len(left)
    for topic, records in rows.items():
        keep()
        started = time.perf_counter()
        try:
            _land(stream, topic, records, flush_id)
        except Exception as failure:  # noqa: BLE001 - a table that fails does not stop the others
            result.failures[topic] = platform.explain(failure)
            left += map(encode, records)
            continue
        result.records += len(records)
        result.tables[topic] = time.perf_counter() - started
    with platform.durable("forget"):
        if left:
            buffer.keep(flush_id, left, RETRY_S)
        else:
            buffer.forget(flush_id)
    return result


def _routed(platform: Platform, puts: Iterable[bytes]) -> tuple[dict[str, list[RawRecord]], list[Unroutable]]:
    """The records by topic, and those that no table takes."""
    registered = {topic.name for topic in list_topics(platform)}
    rows: dict[str, list[RawRecord]] = defaultdict(list)
    rest: list[Unroutable] = []
    for lines in puts:
        put = routed(lines, registered)
        rest += put.rest
        for topic, records in put.rows.items():
            rows[topic] += records
    return rows, rest


def _land(stream: Stream, topic: str, records: Sequence[RawRecord], flush_id: str) -> None:
    """Append once, unless an earlier try of this flush did; the same commit expires snapshots nobody needs."""
    platform = stream.platform

    def plan(table: TableView) -> Sequence[int] | None:
        if any(snapshot.summary.get(FLUSH_ID) == flush_id for snapshot in table.ancestors()):
            return None
        # Another worker took the claim over and finished it; its snapshot may be expired by now.
        if flush_id not in stream.buffer.unfinished():
            return None
        return _expired(stream, topic, table)

    with platform.durable("land"):
        columns = {name: list(map(attrgetter(name), records)) for name in RAW.columns}
        platform.catalog.land(platform.rules.databases.raw_table(topic), RAW, columns, {FLUSH_ID: flush_id}, plan)


def _looked_at(platform: Platform, topic: str) -> int | None:
    """How far in RAW Curated knows all versions; None if that is unknown, and it will then read all of RAW."""
    try:
        schema = platform.schemas.active(topic)
        curated = platform.catalog.load(platform.rules.databases.curated_table(schema.table_name)) if schema else None
    except Exception:  # noqa: BLE001 - events land whatever is wrong with a schema or with Curated
        return None
    mark = valid_watermark(curated) if curated else None
    return mark.raw_to if mark else None


def _expired(stream: Stream, topic: str, raw: TableView) -> Sequence[int]:
    """The snapshots to expire: none since Standardized's watermark, none of an open batch's range.

    Those that unfinished flushes have landed stay as well: whoever takes a flush over must see them. So do those that
    Curated has not looked at, but no more than that: of a Curated that lags far behind, all of RAW is looked at.
    """
    if len(raw.snapshots) <= SNAPSHOTS_BEFORE_EXPIRY:
        return []
    platform = stream.platform
    standardized = platform.catalog.load(platform.rules.databases.standardized_table(topic))
    mark = valid_watermark(standardized) if standardized else None
    batch = open_batch(platform, topic, STANDARDIZED)
    # Read after the table was loaded: a claim that is not listed now was finished, or has landed nothing in it.
    unfinished = stream.buffer.unfinished()
    lately = raw.ancestors()[: stream.rules.held_snapshots]
    needed = [snapshot.snapshot_id for snapshot in lately if snapshot.summary.get(FLUSH_ID) in unfinished]
    needed += [mark.source_to] if mark else []
    looked_at = _looked_at(platform, topic)
    needed += [snapshot.snapshot_id for snapshot in lately if snapshot.snapshot_id == looked_at]
    return expirable(raw, [*needed, *([batch.source_from, batch.source_to] if batch else [])])
