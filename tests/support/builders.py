"""Small builders for tests: events, schemas, histories of tables, and a platform without Spark in a folder."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from leanops.adapters.files.folder import Folder
from leanops.adapters.files.schemas import SchemaFiles
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.local import LocalCatalog
from leanops.adapters.sql.state import SqlState
from leanops.domain.event.lines import Event
from leanops.domain.schema.model import Schema, schema_from_json
from leanops.domain.table.batch import STANDARDIZED, Batch
from leanops.domain.table.history import Snapshot, TableView, Watermark
from leanops.ports.engine import Engine
from leanops.usecases.leases import HeldTopic, Lease
from leanops.usecases.platform import Actor, OperationRules, Platform, Rules, Secret

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
NOW_MS = 1_794_729_600_000
RAW_UUID = "raw-uuid"


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def event(message_id: str = "m1", payload: str = "{}", **rest: Any) -> Event:
    """An event published now."""
    return Event(**{"message_id": message_id, "publish_time": NOW, "payload": payload, "ingestion_ts": NOW_MS, **rest})


def raw_row(sent: Event, topic: str = "orders") -> dict[str, Any]:
    """The RAW row of an event."""
    return {
        "message_id": sent.message_id,
        "publish_time": sent.publish_time,
        "topic_name": topic,
        "json_payload": sent.payload,
        "ingestion_ts": sent.ingestion_ts,
        "idempotency_key": sent.idempotency_key,
        "attributes": json.dumps(sent.attributes, separators=(",", ":")) if sent.attributes else None,
    }


def land(platform: Platform, topic: str, events: Iterable[Event]) -> None:
    """Events straight into RAW, in one append."""
    platform.catalog.append(platform.rules.databases.raw_table(topic), [raw_row(sent, topic) for sent in events])


def column(name: str = "c", **rest: Any) -> dict[str, Any]:
    """A payload column as a schema file writes it."""
    return {"name": name, "path": f"$.{name}", "type": "STRING", **rest}


def schema_text(*columns: Mapping[str, Any], **members: Any) -> str:
    """The text of a schema file; without columns it has one."""
    said = {"table_name": "orders", "envelope_columns": [], "payload_columns": columns or [column()], **members}
    return json.dumps(said)


def schema(*columns: Mapping[str, Any], **members: Any) -> Schema:
    """A schema as it is read from its file."""
    return schema_from_json(schema_text(*columns, **members), "schema.json")


def snapshot(snapshot_id: int, parent_id: int | None, operation: str = "append", **summary: Any) -> Snapshot:
    """A snapshot; `added_records=3` becomes the summary's `added-records`, `leanops_kind` its `leanops.kind`."""
    texts = {name.replace("leanops_", "leanops.").replace("_", "-"): str(value) for name, value in summary.items()}
    return Snapshot(snapshot_id, parent_id, snapshot_id, operation, texts)


def table(*snapshots: Snapshot, uuid: str = RAW_UUID, head: int | None = None, **rest: Any) -> TableView:
    """A table with these snapshots; the last one is its head."""
    newest = head if head is not None else snapshots[-1].snapshot_id if snapshots else None
    numbers = [found.sequence_number for found in snapshots]
    view = TableView("db.t", uuid, newest, max(numbers, default=0), {s.snapshot_id: s for s in snapshots}, {}, {})
    return replace(view, **rest)


def watermark(source_to: int = 1, batch_seq: int = 1, **rest: Any) -> Watermark:
    """A watermark of a batch that read up to a snapshot."""
    start = Watermark(f"b{batch_seq}", batch_seq, RAW_UUID, None, source_to, source_to, {})
    return replace(start, **rest)


def batch(batch_id: str = "b1", topic: str = "orders", layer: str = STANDARDIZED, **rest: Any) -> Batch:
    """A first batch of one row."""
    said = {"source_uuid": RAW_UUID, "source_from": None, "source_to": 1, "source_snapshot": 1, "rows": 1}
    numbers = {"batch_seq": 1, "batch_time_ms": NOW_MS, "schema_version": 1}
    return Batch(**{"batch_id": batch_id, "topic": topic, "layer": layer, **said, **numbers, **rest})


def no_engine() -> Engine:
    """An engine for use cases that must not need one."""
    raise AssertionError("this use case must not start Spark")


def changed(rules: Rules, **sections: dict[str, Any]) -> Rules:
    """The rules with other values in some sections."""
    return replace(rules, **{name: replace(getattr(rules, name), **values) for name, values in sections.items()})


def held_by(platform: Platform, lease: Lease) -> HeldTopic:
    """The topic a lease is for, as its holder works on it."""
    return HeldTopic(platform, lease.resource.removeprefix("topic/"), lease)


@contextmanager
def platform_in(
    folder: Path,
    *,
    clock: Callable[[], datetime] | None = None,
    owner: str = "worker-1",
    secret: Secret | None = None,
    sync: Callable[[Path], None] = lambda _folder: None,
    **sections: dict[str, Any],
) -> Iterator[Platform]:
    """Every port on its embedded adapter in one folder, which several platforms may share; no test waits for disks."""
    folder.mkdir(parents=True, exist_ok=True)
    state = SqlState(f"sqlite:///{folder}/state.db")
    catalog = LocalCatalog("leanops", folder, sync)
    try:
        yield Platform(
            catalog=IcebergCatalog(catalog),
            engine=no_engine,
            state=state,
            schemas=SchemaFiles(Folder(folder / "schemas")),
            clock=clock or Clock(),
            owner=owner,
            actor=Actor("someone", "files"),
            rules=changed(Rules(operations=OperationRules(wait_s=0)), **sections),
            secret=secret,
        )
    finally:
        state.close()
        catalog.engine.dispose()


def native(platform: Platform) -> Any:
    """PyIceberg's catalog under that of a platform, for what other tools do to tables."""
    catalog: Any = platform.catalog
    return catalog.native


class Stalling:
    """A PyIceberg catalog whose user stalls once, with a table that was just loaded: `meanwhile` others go on."""

    def __init__(self, catalog: Any, meanwhile: Callable[[], object], *, at: str, armed: bool = True) -> None:
        self._catalog, self._meanwhile, self._at = catalog, meanwhile, at
        self.armed = armed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def load_table(self, name: str) -> Any:
        found = self._catalog.load_table(name)
        if name == self._at and self.armed:
            self.armed = False
            self._meanwhile()
        return found


def stalled(platform: Platform, meanwhile: Callable[[], object], *, at: str, after: str) -> Platform:
    """A platform that stalls once after a step, between its look at a table and the commit that is based on it."""
    catalog: Any = Stalling(native(platform), meanwhile, at=at, armed=False)

    def step(name: str) -> None:
        catalog.armed = catalog.armed or name == after
        platform.step(name)

    return replace(platform, catalog=IcebergCatalog(catalog), step=step)
