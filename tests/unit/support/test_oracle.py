"""The oracle against expectations written by hand from the specification: it must be trusted before it judges."""

import ast
import hashlib
import hmac
import json
import sys
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import vocabulary as words
from tests.oracle.casts import check
from tests.oracle.flat import Limits, flatten
from tests.oracle.model import FIVE, FOUR, Model
from tests.oracle.rows import LANDED, RawRow
from tests.oracle.streams import SCHEMA, TOPIC, batched_streams, batches, cut, make_stream, streams
from tests.support.places import ROOT

SMALL = Limits(payload_bytes=4_000, depth=12, keys=80)
NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
KEYS = {"idempotency_key": "$.k", "version": "$.v", "period": "$.p"}


def raw(
    message_id: str, ingestion_ts: int = 0, publish_time: datetime = NOON, key: str | None = None, **payload: Any
) -> RawRow:
    return RawRow(message_id, publish_time, "t", json.dumps(payload), LANDED + ingestion_ts, key)


def schema(*columns: dict[str, Any], keys: dict[str, str] = KEYS, **policies: Any) -> dict[str, Any]:
    return {"table_name": "t", "version": 7, "keys": keys, "payload_columns": list(columns), "policies": policies}


def picked(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def column(type_name: str = "STRING", **rest: Any) -> dict[str, Any]:
    return {"name": "c", "path": "$.c", "type": type_name} | rest


# Standardized


def test_the_greatest_version_wins_whatever_order_brings_it() -> None:
    model = Model("t", schema())
    model.standardize([raw("m1", 1, k="a", v="2024-01-02T00:00:00Z"), raw("m2", 2, k="a", v="2024-01-03T00:00:00Z")])
    counts = model.standardize([raw("m3", 3, k="a", v="2024-01-01T00:00:00Z"), raw("m4", 4, k="b")])
    assert picked(counts) == {"read": 2, "inserted": 1, "superseded": 1, "version_missing": 1}
    assert {key: row.message_id for key, row in model.standardized.items()} == {"key:a": "m2", "key:b": "m4"}


def test_the_version_goes_before_publish_time() -> None:
    model = Model("t", schema())
    later = NOON + timedelta(hours=1)
    model.standardize([raw("m1", k="a", v="2024-01-03T00:00Z"), raw("m2", 0, later, k="a", v="2024-01-02T00:00Z")])
    assert model.standardized["key:a"].message_id == "m1"


def test_equal_versions_are_ordered_by_publish_time_then_by_the_bytes_of_message_id() -> None:
    model = Model("t", schema())
    version = "2024-01-02T00:00:00Z"
    model.standardize(
        [raw("z", k="a", v=version), raw("a", publish_time=NOON + timedelta(seconds=1), k="a", v=version)]
    )
    model.standardize([raw("é", k="b", v=version), raw("😀", k="b", v=version), raw("\uff5e", k="b", v=version)])
    assert [row.message_id for row in model.standardized.values()] == ["a", "😀"]


def test_copies_are_duplicates_only_of_their_batch_or_of_the_current_row() -> None:
    model = Model("t", schema())
    old, new = raw("m1", 1, k="a", v="2024-01-01T00:00Z"), raw("m2", 2, k="a", v="2024-01-02T00:00Z")
    assert picked(model.standardize([old, old, old])) == {"read": 3, "inserted": 1, "duplicates": 2}
    assert picked(model.standardize([old, new, new, old])) == {"read": 4, "updated": 1, "duplicates": 3}
    assert picked(model.standardize([old, old, new])) == {"read": 3, "duplicates": 2, "superseded": 1}
    assert picked(model.totals) == {"read": 10, "inserted": 1, "updated": 1, "duplicates": 7, "superseded": 1}


def test_the_first_copy_by_ingestion_time_is_stored_and_a_later_one_changes_nothing() -> None:
    model = Model("t", schema())
    model.standardize([raw("m1", 9, k="a"), raw("m1", 5, k="a")])
    model.standardize([raw("m1", 1, k="a")])
    row = model.standardized["key:a"]
    assert (row.ingestion_ts - LANDED, row.first_seen_ts - LANDED) == (5, 5)
    model.standardize([raw("m2", 20, NOON + timedelta(hours=1), k="a"), raw("m0", 3, k="a")])
    row = model.standardized["key:a"]
    assert (row.ingestion_ts - LANDED, row.first_seen_ts - LANDED) == (20, 3)


@pytest.mark.parametrize(
    ("in_payload", "in_envelope", "key"),
    [
        ("a", "e", "a"),
        (" a ", None, " a "),
        (5, None, "5"),
        (True, None, "true"),
        (None, "e", "e"),
        (" \t", "e", "e"),
        (["a"], "e", "e"),
        ({"x": 1}, "e", "e"),
        ("é" * 512, "e", "é" * 512),
        ("é" * 512 + "x", "e", "e"),
        (None, " ", None),
        (None, "x" * 1025, None),
        (None, None, None),
    ],
)
def test_the_key_comes_from_the_payload_then_the_envelope(
    in_payload: Any, in_envelope: str | None, key: str | None
) -> None:
    model = Model("t", schema())
    counts = model.standardize([raw("m1", key=in_envelope, k=in_payload)])
    (row,) = model.standardized.values()
    assert row.idempotency_key == key
    assert row.record_key == ("message:m1" if key is None else f"key:{key}")
    assert counts["missing_keys"] == (key is None)


def test_without_a_schema_the_default_paths_are_read() -> None:
    model = Model("t")
    model.standardize([raw("m1", _metadata={"idempotencyKeyResource": "a"}, period_reference="2023-05", v="x")])
    model.standardize([raw("m2", k="a", periodReference="2023-06", period_reference="2023-05")])
    assert [(row.record_key, row.period_reference) for row in model.standardized.values()] == [
        ("key:a", "2023-05"),
        ("message:m2", "2023-06"),
    ]
    assert picked(model.curate()) == {}


@pytest.mark.parametrize(
    ("text", "period"),
    [("2023-05", "2023-05"), ("1970-01", "1970-01"), ("2100-12", "2100-12")]
    + [(bad, "2024-01") for bad in ["1969-12", "2101-01", "2023-13", "2023-00", "2023-5", "2023-05\n", None, 202305]],
)
def test_an_invalid_period_is_the_month_of_publish_time(text: Any, period: str) -> None:
    model = Model("t", schema())
    model.standardize([raw("m1", p=text, periodReference="2020-01")])
    assert model.standardized["message:m1"].period_reference == period


@pytest.mark.parametrize(
    ("text", "version", "counted"),
    [
        ("2024-01-30T00:00:00Z", datetime(2024, 1, 30, tzinfo=UTC), 0),
        ("2024-02-01T12:00:00Z", NOON + timedelta(hours=24), 0),
        ("2024-02-01T12:00:00.000001Z", NOON, 1),
        ("soon", NOON, 1),
        ("", NOON, 1),
        (1706700000000, NOON, 1),
        (["2024-01-30T00:00:00Z"], NOON, 1),
        (None, NOON, 0),
        ({"x": 1}, NOON, 0),
    ],
)
def test_a_wrong_version_is_publish_time_and_counted(text: Any, version: datetime, counted: int) -> None:
    model = Model("t", schema())
    assert model.standardize([raw("m1", v=text)])["version_fallback"] == counted
    assert model.standardized["message:m1"].last_updated_ts == version


def test_parse_errors_count_rows_and_keep_one_entry_per_message() -> None:
    model = Model("t", schema())
    bad = RawRow("m1", NOON, "t", "{", LANDED)
    assert picked(model.standardize([bad, bad, raw("m2", k="a")])) == {
        "read": 3,
        "inserted": 1,
        "parse_errors": 2,
        "version_missing": 1,
    }
    assert model.parse_errors == {"m1": [("not_json", None)]}
    assert picked(model.standardize([bad])) == {"read": 1, "parse_errors": 1}


def test_a_batch_without_rows_changes_nothing() -> None:
    model = Model("t", schema())
    assert picked(model.standardize([])) == {}
    assert (model.batch_seq, model.names) == (0, {})


def test_quarantine_lists_every_path_without_a_column() -> None:
    model = Model("t", schema(column(), unknown_fields="quarantine"))
    counts = model.standardize([raw("m1", c=1, k="a", y=[1], x={"z": 1}), raw("m2", c=1, k="a", v="x", p="x")])
    odd = {"version_fallback": 1, "period_fallback": 1}
    assert picked(counts) == {"read": 2, "inserted": 1, "parse_errors": 1, **odd}
    assert model.parse_errors == {"m1": [("unknown_field", "$.x.z"), ("unknown_field", "$.y")]}


def test_beyond_a_column_limit_or_under_rescue_a_cell_is_rescued_and_never_lost() -> None:
    limited = Model("t", schema(column()), Limits(columns=3, new_columns=2))
    limited.standardize([raw("m1", c=1, x=1, y=2, z=3)])
    limited.standardize([raw("m2", w=1, x=1, y=2, z=3)])
    limited.standardize([raw("m3", z=3)])
    assert [row.rescued for row in limited.standardized.values()] == [{"$.z"}, {"$.z"}, {"$.z"}]
    assert [len(row.cells) for row in limited.standardized.values()] == [4, 4, 1]
    assert set(limited.names) == {"$.c", "$.w", "$.x", "$.y"}
    rescue = Model("t", schema(column("INT"), unknown_fields="rescue"))
    rescue.standardize([raw("m1", k="a", c=1, x=1)])
    assert rescue.standardized["key:a"].rescued == {"$.x"}


def test_key_columns_hold_the_hmac_from_standardized_on() -> None:
    model = Model("t", schema(column(), keys=KEYS | {"pii": "hmac"}), pii_key=b"key")
    model.standardize([raw("m1", k="a"), raw("m2", key="e"), raw("m3")])
    model.curate()
    hidden = [hmac.new(b"key", text, hashlib.sha256).hexdigest() for text in (b"a", b"e")]
    assert list(model.standardized) == [f"key:{hidden[0]}", f"key:{hidden[1]}", "message:m3"]
    assert list(model.curated) == hidden


# Curated


def test_every_failure_of_a_row_is_listed() -> None:
    model = Model("t", schema(column(name="a", path="$.a", cde=True), column("INT", name="b", path='$["b"]')))
    model.standardize([raw("m1", b="x"), raw("m2", k="a", a="x", b="1.0")])
    assert picked(model.curate()) == {"read": 2, "inserted": 1, "errors": 1}
    assert model.errors == {"m1": [("cde_missing", "idempotency_key"), ("cde_missing", "a"), ("cast_failed", "b")]}
    assert (model.curated["a"].values, model.curated["a"].schema_version) == ({"a": "x", "b": 1}, 7)


def test_a_column_without_a_path_reads_the_standardized_column_of_its_name() -> None:
    model = Model("t", schema({"name": "x_y", "type": "INT"}))
    model.standardize([raw("m1", k="a", x={"Y": 5}), raw("m2", k="b")])
    model.curate()
    assert [row.values for row in model.curated.values()] == [{"x_y": 5}, {"x_y": None}]


def test_a_newer_version_replaces_the_row_wherever_it_is_and_a_failing_one_leaves_it_behind() -> None:
    model = Model("t", schema(column("INT")))
    later = [NOON + timedelta(hours=hours) for hours in range(4)]
    model.standardize([raw("m0", 0, later[0], k="a", c=1, p="2024-01"), raw("n0", 0, k="b", c="x")])
    assert picked(model.curate()) == {"read": 2, "inserted": 1, "errors": 1}
    model.standardize([raw("m1", 1, later[1], k="a", c=2, p="2020-01")])
    assert picked(model.curate()) == {"read": 1, "updated": 1, "cross_period": 1}
    model.standardize([raw("m2", 2, later[2], k="a", c="x", p="2024-01")])
    assert picked(model.curate()) == {"read": 1, "errors": 1, "behind": 1}
    assert (model.failing(), model.behind()) == ({"key:a", "key:b"}, {"key:a"})
    assert (model.curated["a"].values, model.curated["a"].source.period_reference) == ({"c": 2}, "2020-01")
    model.assert_laws()
    model.standardize([raw("m3", 3, later[3], k="a", c=4, p="2024-01")])
    assert picked(model.curate()) == {"read": 1, "updated": 1, "cross_period": 1}
    assert (model.failing(), model.behind()) == ({"key:b"}, set())
    model.assert_laws()


def test_curated_reads_each_change_once_and_only_its_last_state() -> None:
    model = Model("t", schema(column()))
    model.standardize([raw("m1", k="a")])
    model.standardize([raw("m2", publish_time=NOON + timedelta(1), k="a")])
    model.assert_laws()
    assert picked(model.curate()) == {"read": 1, "inserted": 1}
    assert picked(model.curate()) == {}


def test_a_new_schema_applies_from_then_on_and_replay_repairs_under_it() -> None:
    model = Model("t", schema(column("INT", rules={"max": 5})))
    model.standardize([raw("m1", k="a", c=9), raw("m2", k="b", c=1)])
    model.curate()
    model.set_schema(schema(column("INT", rules={"min": 2})) | {"version": 8})
    assert picked(model.curate()) == {}
    assert picked(model.curate(again=["key:a"])) == {"read": 1, "inserted": 1}
    assert picked(model.curate(again=["key:a"])) == {"read": 1, "unchanged": 1}
    assert [row.schema_version for row in model.curated.values()] == [7, 8]
    model.assert_laws()


# Streams, laws, boundaries


def run(stream: list[list[RawRow]], active: dict[str, Any] | None = SCHEMA) -> Model:
    model = Model(TOPIC, active, SMALL, b"key")
    for batch in stream:
        model.standardize(batch)
        model.assert_laws()
        if len(batch) % 3:
            model.curate()
            model.assert_laws()
    model.curate()
    model.assert_laws()
    return model


def test_a_stream_is_the_same_for_the_same_seed_and_a_shorter_one_is_its_beginning() -> None:
    assert make_stream(Random(1), 50) == make_stream(Random(1), 50)
    assert make_stream(Random(1), 20) == make_stream(Random(1), 50)[:20]
    rows = make_stream(Random(2), 50, SMALL)
    assert [row for batch in cut(Random(3), rows) for row in batch] == rows


def test_copies_in_a_stream_differ_only_by_a_later_ingestion_time() -> None:
    seen: dict[str, RawRow] = {}
    rows = make_stream(Random(4), 300, SMALL)
    for row in rows:
        first = seen.setdefault(row.message_id, row)
        assert row is first or row.ingestion_ts > first.ingestion_ts
        assert RawRow(**{**vars(row), "ingestion_ts": 0}) == RawRow(**{**vars(first), "ingestion_ts": 0})
    assert 30 < len(rows) - len(seen) < 120


def test_streams_bring_every_count_and_every_rule() -> None:
    long = [make_stream(Random(seed), 400, SMALL) for seed in range(5)]
    models = [run([rows[start : start + 10] for start in range(0, 400, 10)]) for rows in long]
    counts = {name for model in models for name in [*picked(model.totals), *picked(model.curated_totals)]}
    assert counts >= {*FIVE, *FOUR, "version_fallback", "missing_keys", "behind", "cross_period"} - {"unchanged"}
    parse_rules = {rule for model in models for failures in model.parse_errors.values() for rule, _ in failures}
    assert parse_rules == {"not_json", "trailing_text", "not_object", "too_deep", "too_many_keys", "too_large"}
    rules = {rule for model in models for failures in model.errors.values() for rule, _ in failures}
    assert rules == {f"rule_{name}" for name in "min max allowed pattern length".split()} | {
        "cde_missing",
        "cast_failed",
    }


@pytest.mark.parametrize("field", words.ORDER)
def test_the_vocabulary_holds_what_it_says(field: str) -> None:
    (declared,) = [c for c in SCHEMA["payload_columns"] if c.get("path") in (f"$.order.{field}", f'$.order["{field}"]')]
    verdicts = []
    for texts in words.ORDER[field]:
        read = [flatten(f'{{"c":{text}}}', SMALL).cells.get("$.c") for text in texts]
        verdicts.append([bool(check(declared, text)[1]) for text in read])
    assert verdicts == [[False] * len(verdicts[0]), [True] * len(verdicts[1])]


RESCUE = SCHEMA | {"policies": {"unknown_fields": "rescue"}}
QUARANTINE = SCHEMA | {"policies": {"unknown_fields": "quarantine"}}
HIDDEN = SCHEMA | {"keys": SCHEMA["keys"] | {"pii": "hmac"}}


@given(st.data(), streams(limits=SMALL), st.sampled_from([SCHEMA, SCHEMA, HIDDEN, RESCUE, QUARANTINE, None]))
def test_what_is_boundary_free_is_equal_over_any_two_sets_of_boundaries(
    data: st.DataObject, rows: list[RawRow], active: dict[str, Any] | None
) -> None:
    one, other = data.draw(batches(rows)), data.draw(batches(rows))
    assert run(one, active).boundary_free() == run(other, active).boundary_free()


@given(batched_streams(limits=SMALL))
def test_the_laws_hold_after_every_batch_and_nothing_read_is_lost(stream: list[list[RawRow]]) -> None:
    model = run(stream)
    rows = [row for batch in stream for row in batch]
    assert model.totals["read"] == len(rows)
    valid = {row.message_id for row in rows} - set(model.parse_errors)
    assert {row.message_id for row in model.standardized.values()} <= valid
    assert (not valid) == (not model.standardized)


def test_the_oracle_knows_nothing_of_what_it_judges() -> None:
    allowed = {"tests", "hypothesis", *sys.stdlib_module_names}
    modules = [path for path in (ROOT / "tests/oracle").glob("*.py") if path.name != "test_cells.py"]
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, module
