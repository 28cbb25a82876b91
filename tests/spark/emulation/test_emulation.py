"""A law broken on purpose: verification fails, names the check, and names exactly the messages it happened to."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from leanops.domain.table.definitions import ERRORS as ERROR_ROWS
from leanops.domain.table.definitions import RAW
from leanops.domain.table.outcome import Outcome
from leanops.emulation.events.kinds import Kind
from leanops.emulation.play.homes import fresh_home
from leanops.emulation.play.phases import Emulation
from leanops.emulation.scenario import DAYS, Scenario
from leanops.emulation.verify.verdict import Verdict
from leanops.runtimes.embedded import Embedded
from leanops.transforms import curate, standardize
from leanops.transforms.judge import Judged, Source
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.ingest import deliver
from leanops.usecases.pipeline import commit
from leanops.usecases.pipeline.prepared import Prepared
from tests.oracle.model import Model
from tests.oracle.rows import Row
from tests.support.emulation.emulated import SIZES, TOPICS, WHOLE, Story, assert_names, failed, of
from tests.support.emulation.stories import messages_of, raw_row
from tests.support.sparkling import SETTINGS


def cycled(emulation: Emulation) -> Verdict:
    """The verdict after a cycle that found nothing wrong itself."""
    results = run_cycle(emulation.runtime.platform, list(TOPICS))
    assert [result.outcome for result in results] == [Outcome.DONE] * len(TOPICS), results
    return emulation.verify()


def sent(topic: str, *days: str) -> set[str]:
    """The messages of these days that RAW can hold."""
    return {message.message_id for day in days for message in messages_of(WHOLE, topic, day) if not message.is_dead}


def expected(emulation: Emulation, topic: str, *days: str) -> Model:
    """What the oracle makes of these days, a batch each."""
    secret = emulation.runtime.platform.secret
    assert secret is not None
    return _expected(topic, days, secret.key)


@cache
def _expected(topic: str, days: tuple[str, ...], key: bytes) -> Model:
    model = Model(topic, WHOLE.names()[topic].schema(topic), pii_key=key)
    for day in days:
        model.standardize(raw_row(topic, message) for message in messages_of(WHOLE, topic, day) if not message.is_dead)
        model.curate()
    return model


def rows_of(emulation: Emulation, table: str, topic: str, message: str) -> list[dict[str, Any]]:
    """Whole error rows of a message."""
    return emulation.runtime.platform.catalog.select(table, list(ERROR_ROWS.columns), where(topic, message))


def where(topic: str, message: str) -> dict[str, object]:
    """What tells the error rows of a message from all others."""
    return {"topic_name": topic, "message_id": message}


def test_an_untouched_story_is_verified_in_every_check(done: Emulation) -> None:
    verdict = done.verify()
    assert [(found.topic, check) for found in verdict.topics for check in found.checks if not check.passed] == []
    assert [found.topic for found in verdict.topics] == list(TOPICS)
    for found in verdict.topics:
        counts = {check.name: check.found for check in found.checks}
        model = expected(done, found.topic, *DAYS)
        assert counts["rows of Standardized"] == len(model.standardized)
        assert counts["rows of Curated"] == len(model.curated) == sum(found.periods.values())
        assert counts["quarantined rows"] == len(model.errors)
        assert counts["keys behind"] == len(model.behind()) > 0
        assert counts["dead letters"] == sum(found.kinds.values()) - len(sent(found.topic, *DAYS))
    assert any(fate == "dead letter" for found in verdict.topics for _, fate in found.kinds)


def test_a_first_day_without_a_schema_is_verified_with_nothing_in_standardized(story: Story, tmp_path: Path) -> None:
    home = fresh_home(tmp_path / "first", Scenario(seed=3, topics=2), SETTINGS)
    emulation = Emulation(home, runtime=Embedded(home, spark=story.spark))
    try:
        list(emulation.day1(400))
        verdict = emulation.verify()
    finally:
        emulation.close()
    assert [(found.topic, check) for found in verdict.topics for check in found.checks if not check.passed] == []
    for found in verdict.topics:
        counts = {check.name: check.found for check in found.checks}
        assert (counts["messages in RAW"], counts["rows of Standardized"], counts["rows of Curated"]) == (200, 0, 0)


Order = Callable[[Row], Any]


def by(*names: str) -> Order:
    return attrgetter(*names)


def with_ties_reversed(row: Row) -> Any:
    return row.last_updated_ts, row.publish_time, *(-letter for letter in row.message_id.encode())


def from_last_to_first(texts: pa.ChunkedArray) -> pa.Array:
    return pa.array([bytes(255 - letter for letter in text.encode()) for text in texts.to_pylist()])


ORDERS: dict[str, tuple[Order, Callable[[pa.Table], dict[str, Any]]]] = {
    "the last id": (
        by("message_id", "publish_time", "last_updated_ts"),
        lambda rows: {"_version": rows["message_id"]},
    ),
    "the last one published": (
        by("publish_time", "last_updated_ts", "message_id"),
        lambda rows: {"last_updated_ts": rows["publish_time"], "publish_time": rows["last_updated_ts"]},
    ),
    "of equally new ones the last id": (
        by("last_updated_ts", "message_id", "publish_time"),
        lambda rows: {"publish_time": pa.repeat(0, len(rows))},
    ),
    "of equal ones the lesser id": (
        with_ties_reversed,
        lambda rows: {"message_id": from_last_to_first(rows["message_id"])},
    ),
}
"""What orders versions, and what stands for what they are ordered by."""


@pytest.mark.parametrize("name", ORDERS)
def test_dedup_in_another_order_is_found(landed: Emulation, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (order, stand_ins), right = ORDERS[name], standardize.verdicts

    def in_another_order(rows: pa.Table) -> pa.Table:
        changes = stand_ins(rows)
        if "publish_time" in changes:
            # No row is ahead of its clock, whatever its time is now.
            changes["order_ts"] = changes["publish_time"]
        return right(pa.table({column: changes.get(column, rows[column]) for column in rows.column_names}))

    monkeypatch.setattr(standardize, "verdicts", in_another_order)
    verdict = cycled(landed)
    found = set[str]()
    for topic in TOPICS:
        right_rows = expected(landed, topic, "day1", "day2").standardized
        last: dict[str, Row] = dict(expected(landed, topic, "day1").standardized)
        for row in arrivals(topic, "day2"):
            last[row.record_key] = max(last.get(row.record_key, row), row, key=order)
        affected = {row.message_id for key, row in right_rows.items() if last[key].message_id != row.message_id}
        found |= affected
        if affected:
            assert_names(failed(verdict, topic)["rows of Standardized"], affected, "differs in message_id")
        else:
            assert of(verdict, topic).passed
    assert found


def arrivals(topic: str, day: str) -> list[Row]:
    """Each event of a day as a row of its own."""
    found: list[Row] = []
    for message in messages_of(WHOLE, topic, day):
        alone = Model(topic, WHOLE.names()[topic].schema(topic))
        alone.standardize([raw_row(topic, message)])
        found += alone.standardized.values()
    return found


def test_a_search_in_the_rows_own_period_alone_is_found(landed: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    right = curate._against

    def own_period_only(rows: pa.Table, stored: pa.Table | None) -> Any:
        found = right(rows, stored)
        is_here = found.months == 0
        flags = {name: getattr(found, name) & is_here for name in ("is_stored", "is_newer", "is_same")}
        return found._replace(**flags, months=found.months * is_here)

    monkeypatch.setattr(curate, "_against", own_period_only)
    verdict = cycled(landed)
    for topic in TOPICS:
        before, after = expected(landed, topic, "day1").curated, expected(landed, topic, "day1", "day2").curated
        moved = {key for key in before if before[key].source.period_reference != after[key].source.period_reference}
        wrong = failed(verdict, topic)
        stays = {before[key].source.message_id for key in moved}
        assert_names(wrong["keys of Curated, over all periods"], stays, "its key has 2 rows")
        # Of the two rows the new one is right; the old one differs from it.
        assert_names(wrong["rows of Curated"], {after[key].source.message_id for key in moved}, "differs in message_id")
        assert wrong["batches of Curated"].wrong


def test_a_batch_of_standardized_that_loses_rows_is_found(landed: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    right = standardize.judge

    def some_lost(events: pa.Table, stored: pa.Table) -> standardize.Judged:
        done = right(events, stored)
        won = events.take(pc.index_in(done.winners["at"], value_set=events["at"].combine_chunks()).combine_chunks())
        is_lost = pc.ends_with(won["message_id"], "7")
        lost, old = won["record_key"].filter(is_lost), stored["record_key"].take(done.replaced)
        stays = pc.is_in(old, value_set=lost.combine_chunks()).combine_chunks()
        left = done.winners.filter(pc.invert(is_lost))
        return done._replace(winners=left, replaced=done.replaced.filter(pc.invert(stays)))

    monkeypatch.setattr(standardize, "judge", some_lost)
    # What files hold, what a commit added and what it replaced are counted, and each would stop the topics; and so is
    # what Curated reads.
    monkeypatch.setattr(Prepared, "check", lambda prepared: prepared.counts.check())
    monkeypatch.setattr(commit, "check_added", lambda *_: None)
    monkeypatch.setattr(commit, "check_replaced", lambda *_: None)
    results = run_cycle(landed.runtime.platform, list(TOPICS))
    assert all("rows of Standardized batch" in (result.reason or "") for result in results), results
    verdict = landed.verify()
    for topic in TOPICS:
        rows = expected(landed, topic, "day1", "day2").standardized
        lost = {row.message_id for row in rows.values() if row.batch_seq == 2 and row.message_id.endswith("7")}
        check = failed(verdict, topic)["rows of Standardized"]
        assert_names(check, lost, "")
        assert "is missing" in {wrong.what for wrong in check.examples}


Land = Callable[..., None]


def with_landing(monkeypatch: pytest.MonkeyPatch, change: Callable[[Land], Land]) -> None:
    monkeypatch.setattr(deliver, "_land", change(deliver._land))


def published(emulation: Emulation) -> Verdict:
    """The verdict after the events of day 2 were published and landed, and nothing else."""
    next(emulation.day("day2", SIZES["day2"]))
    return emulation.verify()


def test_a_flush_that_forgets_without_landing_is_found(
    schema_active: Emulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(right: Land) -> Land:
        def land(platform: Any, topic: str, *rest: Any) -> None:
            if topic != "payments":
                right(platform, topic, *rest)

        return land

    with_landing(monkeypatch, lose)
    verdict = published(schema_active)
    assert of(verdict, "orders").passed
    check, first = failed(verdict, "payments")["messages in RAW"], sent("payments", "day1")
    assert_names(check, sent("payments", "day2"), "")
    # What was sent again lacks a copy only.
    assert all((wrong.what == "is missing") == (wrong.message_id not in first) for wrong in check.examples)


def test_a_flush_that_is_landed_twice_is_found(schema_active: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    def double(right: Land) -> Land:
        def land(stream: deliver.Stream, topic: str, records: Any, flush_id: str) -> None:
            right(stream, topic, records, flush_id)
            if topic == "orders":
                raw, catalog = stream.platform.rules.databases.raw_table(topic), stream.platform.catalog
                columns = {name: [getattr(record, name) for record in records] for name in RAW.columns}
                catalog.land(raw, RAW, columns, {deliver.FLUSH_ID: f"{flush_id}-again"}, lambda _: [])

        return land

    with_landing(monkeypatch, double)
    verdict = published(schema_active)
    assert of(verdict, "payments").passed
    check = failed(verdict, "orders")["messages in RAW"]
    assert_names(check, sent("orders", "day2"), "differs in its copies")
    # Whatever the batches make of it, RAW has too much.
    assert "messages in RAW" in failed(cycled(schema_active), "orders")


def test_one_wrong_byte_of_a_text_is_found(schema_active: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = next(
        message for message in messages_of(WHOLE, "orders", "day2") if message.kind == Kind.CORRECTION
    ).message_id

    def spoil(right: Land) -> Land:
        def land(platform: Any, topic: str, records: Any, flush_id: str) -> None:
            for record in records:
                if record.message_id == chosen:
                    record.json_payload = record.json_payload.replace("order-", "ordex-")
            right(platform, topic, records, flush_id)

        return land

    with_landing(monkeypatch, spoil)
    check = failed(published(schema_active), "orders")["messages in RAW"]
    assert_names(check, {chosen}, "differs in its text")


def test_a_decimal_that_is_cut_off_is_found(landed: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    right = curate.judged

    def cut_off(rows: pa.RecordBatch, sources: Sequence[Source], secret: bytes | None) -> Judged:
        done = right(rows, sources, secret)
        columns = zip(done.values, sources, strict=True)
        cut = [pc.floor(value) if one.column.type.scale == 2 else value for value, one in columns]
        return done._replace(values=cut)

    monkeypatch.setattr(curate, "judged", cut_off)
    verdict = cycled(landed)
    amounts = ("order_amount", "shipping_cost")
    affected = {
        row.source.message_id
        for row in expected(landed, "orders", "day1", "day2").curated.values()
        if row.source.batch_seq == 2 and any((row.values[name] or 0) % 1 for name in amounts)
    }
    wrong = failed(verdict, "orders")
    assert set(wrong) == {"rows of Curated"}
    assert_names(wrong["rows of Curated"], affected, "differs in ")
    said = {one.what.removeprefix("differs in ") for one in wrong["rows of Curated"].examples}
    assert said <= {*amounts, ", ".join(amounts)}
    assert of(verdict, "payments").passed


def unprotected(sources: Sequence[Source]) -> list[Source]:
    return [replace(one, column=one.column.model_copy(update={"pii": None})) for one in sources]


def test_personal_data_in_clear_is_found(landed: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    right = curate.judged

    def in_clear(rows: pa.RecordBatch, sources: Sequence[Source], secret: bytes | None) -> Judged:
        # Only what goes into the table is in plain text: no error of a personal column shows its value.
        shown = right(rows, unprotected(sources), secret)
        return right(rows, sources, secret)._replace(values=shown.values)

    monkeypatch.setattr(curate, "judged", in_clear)
    verdict = cycled(landed)
    for topic, columns in {"orders": "customer_email, customer_phone", "payments": "card_number"}.items():
        rows = expected(landed, topic, "day1", "day2").curated.values()
        affected = {row.source.message_id for row in rows if row.source.batch_seq == 2}
        wrong = failed(verdict, topic)
        assert set(wrong) == {"personal data in plain text", "rows of Curated"}
        assert_names(wrong["personal data in plain text"], affected, f"is in plain text in iceberg_curated_db.{topic}")
        assert_names(wrong["rows of Curated"], affected, f"differs in {columns}")


def test_personal_data_in_clear_in_an_error_is_found(landed: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    right = curate.judged

    def showing(rows: pa.RecordBatch, sources: Sequence[Source], secret: bytes | None) -> Judged:
        shown = right(rows, unprotected(sources), secret)
        return right(rows, sources, secret)._replace(failures=shown.failures)

    monkeypatch.setattr(curate, "judged", showing)
    verdict = cycled(landed)
    for topic in TOPICS:
        personal = {leaf.column for leaf in WHOLE.names()[topic].leaves if leaf.pii}
        errors = expected(landed, topic, "day1", "day2").errors
        affected = {message for message, failures in errors.items() if personal & {column for _, column in failures}}
        wrong = failed(verdict, topic)
        assert set(wrong) == {"personal data in plain text"}
        assert_names(wrong["personal data in plain text"], affected, "is in plain text in iceberg_curated_db.errors")


PARSE_ERRORS, ERRORS = "iceberg_standardized_db.parse_errors", "iceberg_curated_db.errors"


def some_error(emulation: Emulation, topic: str, table: str) -> str:
    model = expected(emulation, topic, *DAYS)
    return min(model.parse_errors if table == PARSE_ERRORS else model.errors)


@pytest.mark.parametrize(("table", "name"), [(PARSE_ERRORS, "parse errors"), (ERRORS, "quarantined rows")])
def test_an_error_row_that_is_missing_or_doubled_is_found(done: Emulation, table: str, name: str) -> None:
    chosen = {topic: some_error(done, topic, table) for topic in TOPICS}
    catalog = done.runtime.platform.catalog
    catalog.delete(table, where("orders", chosen["orders"]))
    catalog.append(table, rows_of(done, table, "payments", chosen["payments"]))
    verdict = done.verify()
    assert_names(failed(verdict, "orders")[name], {chosen["orders"]}, "is missing")
    assert_names(failed(verdict, "payments")[name], {chosen["payments"]}, "differs in the number of its rows")


@pytest.mark.parametrize(("table", "name"), [(PARSE_ERRORS, "parse errors"), (ERRORS, "quarantined rows")])
def test_an_error_row_with_another_rule_is_found(done: Emulation, table: str, name: str) -> None:
    chosen = some_error(done, "orders", table)
    (row,) = rows_of(done, table, "orders", chosen)
    renamed = [{**failure, "rule": "unknown_field"} for failure in row["failures"]]
    catalog = done.runtime.platform.catalog
    head = catalog.load(table)
    assert head is not None
    catalog.replace(table, where("orders", chosen), [{**row, "failures": renamed}], only_at=head.head)
    verdict = done.verify()
    assert_names(failed(verdict, "orders")[name], {chosen}, "differs in its rules")
    assert of(verdict, "payments").passed
