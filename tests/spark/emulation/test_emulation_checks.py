"""Every check can fail: where the tables of a finished story are changed a little, the right one says so."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from leanops.adapters.sql.buffer import SqlBuffer
from leanops.emulation.play.phases import Emulation
from leanops.emulation.verify.tables import Check
from leanops.emulation.verify.verdict import Verdict
from leanops.usecases.ingest import deliver
from tests.support.emulation.emulated import DONE, SIZES, WHOLE, Story, of, opened
from tests.support.emulation.stories import messages_of
from tests.support.emulation.tampered import (
    Change,
    Row,
    Tampered,
    changed,
    doubled,
    failing,
    lost,
    nameless,
    removed,
    twice,
)

# What a check says is DuckDB's doing and the same on any Spark: once in CI is enough.
pytestmark = pytest.mark.slow

MAIL = "person-000001@people.example"


@dataclass(frozen=True)
class Case:
    """A change, the check that must find it, and parts of what that must say of what it was done to."""

    check: str
    change: Change
    said: tuple[str, ...] = ()


def unlike_its_archive(tables: Tampered) -> str:
    row, files = tables.some("dead"), tables.emulation.runtime.files
    body = files.get(row["source"])
    assert body
    files.put(row["source"], body.replace(b"order", b"ordex"))
    return str(row["message_id"])


def run(layer: str, at: int, **more: int) -> Change:
    """Other numbers in the record of a run."""

    def change(tables: Tampered) -> str:
        row = tables.rows("runs", f"layer = '{layer}'")[at]
        tables.change("runs", row, **{name: (row[name] or 0) + number for name, number in more.items()})
        return str(row["batch_id"])

    return change


def forgotten_run(tables: Tampered) -> str:
    for layer in ("curated", "standardized"):
        tables.remove("runs", tables.rows("runs", f"layer = '{layer}'")[-1])
    return min(message.message_id for message in messages_of(WHOLE, tables.topic, "day4") if not message.is_dead)


def no_longer_behind(tables: Tampered) -> str:
    """A key that shows an older version shows none any more."""
    current = {row["idempotency_key"]: row["message_id"] for row in tables.rows("standardized")}
    behind = next(row for row in tables.rows("curated") if current[row["idempotency_key"]] != row["message_id"])
    tables.remove("curated", behind)
    return str(current[behind["idempotency_key"]])


def unexplained(tables: Tampered) -> str:
    """A version that fails has no error row."""
    current = {row["message_id"] for row in tables.rows("standardized")}
    tables.remove("refused", next(row for row in tables.rows("refused") if row["message_id"] in current))
    return ""


def altered(table: str, name: str, change: Callable[[Any], Any]) -> Change:
    def alter(tables: Tampered) -> str:
        with tables.table(table).update_schema(allow_incompatible_changes=True) as update:
            change(update)
        return name if name.startswith("$") else f"{tables.names[table]}.{name}"

    return alter


def text_in_a_file(tables: Tampered) -> str:
    tables.rewrite("curated", "order_quantity", lambda column: column.cast(pa.string()))
    return f"{tables.names['curated']}.order_quantity"


def text_for_a_number(tables: Tampered) -> str:
    """What is a text is no number, whatever it says."""
    text_in_a_file(tables)
    return str(tables.some("standardized")["message_id"])


def drift(action: str, **values: Any) -> Change:
    def change(tables: Tampered) -> str:
        row = tables.some("drift", f"action = '{action}'")
        tables.change("drift", row, **values)
        return str(values["column_name"]) if "details" in values else path_of(row)

    return change


def more_drift(**values: Any) -> Change:
    def change(tables: Tampered) -> str:
        row = tables.some("drift", "action = 'ADDED'")
        tables.add("drift", row | values)
        return path_of(row)

    return change


def no_drift(tables: Tampered) -> str:
    row = tables.some("drift", "action = 'ADDED'")
    tables.remove("drift", row)
    return path_of(row)


def path_of(row: Row) -> str:
    return str(json.loads(row["details"])["path"])


def marked(name: str) -> Change:
    """One more in a number that the watermark carries, by a later batch: of two with one number the first counts."""

    def change(tables: Tampered) -> str:
        tables.mark({"batch-seq": 1, name: 1})
        return ""

    return change


def errors(check: str, table: str, *words: str, **values: Any) -> list[list[Case]]:
    """Everything an error row must say."""
    values |= {"error_id": "0" * 32, "layer": "bronze", "record_key": "key:another", "status": "DISCARDED"}
    values |= {"ingestion_ts": 7, "source": "elsewhere", "schema_version": 9, "publish_time": None}
    said = (*(f"its {name}" for name in values if name != "source"), *words)
    return [
        [
            Case(check, removed(table), ("is missing",)),
            Case(check, doubled(table), ("the number of its rows",)),
            Case(check, doubled(table, message_id="orders-never"), ("must not be there",)),
        ],
        [
            Case(check, changed(table, **values), said),
            Case(check, failing(table, rule="unknown_field", path="$.elsewhere"), ("its rules", "its paths")),
        ],
    ]


def rows(check: str, table: str, key: str, **values: Any) -> list[list[Case]]:
    """Everything a row of a layer must hold."""
    values |= {"topic_name": "ordres", "_batch_id": "another", "_batch_seq": 9, "first_seen_ts": 7}
    return [
        [
            Case(check, removed(table), ("is missing",)),
            Case(check, doubled(table, **{key: "key:another", "message_id": "orders-never"}), ("must not be there",)),
            *(Case(check, changed(table, **{name: value}), (spoken(name),)) for name, value in values.items()),
        ],
        [Case(check, lost(table), ("",))],
    ]


def spoken(column: str) -> str:
    """What is said of a column; payload columns of Standardized are called by their paths."""
    return "$.order.lines" if column == "order_lines" else column


STANDARDIZED, CURATED = "rows of Standardized", "rows of Curated"
TOGETHER = [
    *errors("dead letters", "dead", "its archived text"),
    [Case("dead letters", unlike_its_archive, ("its archived text",))],
    *errors("parse errors", "unparsed", "its source", batch_id="another"),
    *errors("quarantined rows", "refused", "its source", batch_id="another"),
    [
        Case(
            "columns",
            altered("curated", "order_quantity", lambda update: update.update_column("order_quantity", LongType())),
            ("is long, not int",),
        ),
        Case(
            "columns",
            altered("curated", "shipping_city", lambda update: update.delete_column("shipping_city")),
            ("is missing, not string",),
        ),
        Case(
            "columns",
            altered("standardized", "more", lambda update: update.add_column("more", StringType())),
            ("is string, not to be there",),
        ),
        Case(
            "columns",
            altered("standardized", "$.order.amount", lambda update: update.rename_column("order_amount", "money")),
            ("must not have the column money",),
        ),
        Case(
            "columns",
            altered("standardized", "$.order.note", lambda update: update.delete_column("order_note")),
            ("has no column",),
        ),
    ],
    [Case("columns", text_in_a_file, ("is VARCHAR in its files, not INTEGER",))],
    [Case(CURATED, text_for_a_number, ("order_quantity",))],
    *rows(STANDARDIZED, "standardized", "record_key", _rescued="{}", order_lines="[]"),
    *rows(CURATED, "curated", "idempotency_key", _schema_version=2, order_status="LOST"),
    [
        Case(
            "keys of Standardized, over all periods",
            doubled("standardized", period_reference="1999-01"),
            ("its key has 2 rows",),
        ),
        Case(
            "keys of Curated, over all periods", doubled("curated", period_reference="1999-01"), ("its key has 2 rows",)
        ),
        Case("Standardized rows = distinct keys", lambda _: ""),
        Case("Curated rows = distinct keys", lambda _: ""),
    ],
    [
        Case("keys of Standardized, over all periods", twice("standardized"), ("its key has 2 rows",)),
        Case("keys of Curated, over all periods", twice("curated"), ("its key has 2 rows",)),
    ],
    [
        Case("batches of Standardized", run("standardized", 0, inserted=1), ("inserted, the ledger",)),
        Case("batches of Curated", run("curated", 1, errors=1), ("errors, the ledger",)),
        Case("no gap between batches", run("standardized", -1, source_from=1), ("began at",)),
        Case("rows moved to other periods, day4", nameless(run("curated", -1, cross_period=1)), ("day4 moved",)),
    ],
    [Case("messages on their way", forgotten_run, ("was not read by a finished batch",))],
    [Case("keys behind", no_longer_behind, ("is missing",))],
    [
        Case("drift", no_drift, ("is not in drift_log as ADDED",)),
        Case("drift", more_drift(), ("is in drift_log 2 times as ADDED",)),
        Case("drift", more_drift(action="REMOVED"), ("must not be in drift_log as REMOVED",)),
        Case("drift", drift("TYPE_CHANGED", new_value="array"), ("with other kinds",)),
        Case("drift", drift("ADDED", column_name="elsewhere"), ("with another column",)),
        Case("drift", drift("ADDED", details=None, column_name="no path"), ("must not be in drift_log",)),
    ],
    [
        Case("personal data in plain text", changed("curated", shipping_city=MAIL), ("in iceberg_curated_db.orders",)),
        Case("personal data in plain text", changed("refused", source=MAIL), ("in iceberg_curated_db.errors",)),
        Case("rows of no topic", doubled("refused", topic_name="ordres"), ("under an unknown topic",)),
        Case(
            "personal data in plain text in any error row",
            doubled("refused", topic_name="ordres", source=MAIL),
            ("in plain text",),
        ),
        Case("what became of each message", removed("refused"), (", not quarantined",)),
    ],
    [
        Case("rows carried in the watermark = rows in Standardized", nameless(removed("standardized"))),
        Case("failing keys without an error row", unexplained),
    ],
    [
        Case(
            "Standardized rows = Curated rows + failing - behind",
            nameless(doubled("curated", idempotency_key="another")),
        )
    ],
    [Case("read since the base = found in Standardized", marked("read"))],
    [Case("read and before the base = RAW rows", marked("base_raw_rows"))],
    [Case("balance", marked("batch-seq"), ("Curated has not read",))],
]


def checks(verdict: Verdict, topic: str = "orders") -> list[Check]:
    return [*of(verdict, topic).checks, *verdict.checks]


def assert_said(verdict: Verdict, check: str, named: str, said: tuple[str, ...]) -> None:
    """The check has failed, and says all this of what it names."""
    found = [one for one in checks(verdict) if one.name == check and not one.passed]
    assert found, (check, [one for one in checks(verdict) if not one.passed])
    sentences = [wrong.what for one in found for wrong in one.examples if wrong.message_id == named or not named]
    assert any(all(word in sentence for word in said) for sentence in sentences) or not said, (named, said, found)


@pytest.mark.parametrize("cases", TOGETHER, ids=lambda cases: cases[0].check.replace(" ", "-"))
def test_a_change_to_a_table_is_found_by_its_check(done: Emulation, cases: list[Case]) -> None:
    tables = Tampered(done)
    named = [case.change(tables) for case in cases]
    verdict = done.verify()
    assert not verdict.passed
    for case, name in zip(cases, named, strict=True):
        assert_said(verdict, case.check, name, case.said)


Spoil = Callable[[Any], None]


class Everything(frozenset[str]):
    """Any flush id is one that is not finished yet."""

    def __contains__(self, _flush_id: object) -> bool:
        return True


def spoilt(emulation: Emulation, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, chosen: str, times: int = 1) -> Verdict:
    """The verdict after day 2 has landed, with a record of one message that is not what was sent."""
    right = deliver._land

    def land(platform: Any, topic: str, records: Any, flush_id: str) -> None:
        for record in records:
            if record.message_id == chosen:
                spoil(record)
        for time in range(times if topic == "orders" else 1):
            right(platform, topic, records, f"{flush_id}-{time}")

    monkeypatch.setattr(deliver, "_land", land)
    monkeypatch.setattr(SqlBuffer, "unfinished", lambda _self: Everything())
    next(emulation.day("day2", SIZES["day2"]))
    return emulation.verify()


def with_value(name: str, value: Any) -> Spoil:
    return lambda record: setattr(record, name, value)


RAW, KILLED = "messages in RAW", "copies made by kills"
SPOILT = {
    "its text": with_value("json_payload", "{}"),
    "its publish_time": with_value("publish_time", 1_700_000_000_000_000),
    "its ingestion_ts": with_value("ingestion_ts", 7),
    "its envelope": with_value("topic_name", "payments"),
    "its envelope, too": with_value("idempotency_key", "another"),
    "its envelope as well": with_value("attributes", "{}"),
}


def somebody() -> str:
    """A message of day 2 that is sent once."""
    names = [message.message_id for message in messages_of(WHOLE, "orders", "day2") if not message.is_dead]
    return next(name for name in names if "day2" in name and names.count(name) == 1)


@pytest.mark.parametrize("said", SPOILT)
def test_a_record_that_is_not_what_was_sent_is_found(
    schema_active: Emulation, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    chosen = somebody()
    verdict = spoilt(schema_active, monkeypatch, SPOILT[said], chosen)
    (wrong,) = next(check for check in checks(verdict) if check.name == RAW).examples
    assert (wrong.message_id, wrong.what) == (chosen, f"differs in {' '.join(said.split(',')[0].split()[:2])}")


def test_more_copies_than_a_kill_can_make_are_found(schema_active: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    schema_active.scenario.kills["processor"] = 1
    verdict = spoilt(schema_active, monkeypatch, lambda _: None, "", times=3)
    assert_said(verdict, KILLED, "", ("came 2 times more often than sent",))
    assert next(check for check in checks(verdict) if check.name == RAW).passed


def test_every_check_has_a_case_in_which_it_fails(story: Story) -> None:
    (emulation,) = opened(story, DONE)
    verdict = emulation.verify()
    assert [check for check in checks(verdict) if not check.passed] == []
    broken = {RAW, KILLED} | {case.check for cases in TOGETHER for case in cases}
    assert {check.name for check in checks(verdict)} == broken - {KILLED, "balance"}
