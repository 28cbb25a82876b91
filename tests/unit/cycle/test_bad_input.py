"""Rubbish in: every event ends in a table with a reason, or a clear line says what is wrong; nothing half-written."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from leanops.domain.errors import CommitRefusedError
from leanops.ports.engine import StandardizeWork
from leanops.ports.state import BATCHES
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from tests.oracle.model import Model
from tests.oracle.rows import LANDED, RawRow
from tests.support.verify import assert_tables
from tests.support.world import PII_KEY, Abandoned, World, Wrapped

SCHEMA: dict[str, Any] = {
    "table_name": "orders",
    "envelope_columns": [{"name": "message_id", "type": "STRING"}],
    "payload_columns": [
        {"name": "amount", "path": "$.amount", "type": "INT"},
        {"name": "email", "path": "$.email", "type": "STRING", "pii": "hmac", "rules": {"max_length": 12}},
    ],
}
DEEP = 10_000
BAD = {
    "empty": ("", "not_json"),
    "array": ("[1]", "not_object"),
    "number": ("7", "not_object"),
    "null": ("null", "not_object"),
    "truncated": ('{"a":{"b":1', "not_json"),
    "trailing": ('{"a":1} x', "trailing_text"),
    "two": ('{"a":1}{"a":2}', "trailing_text"),
    "single quotes": ("{'a':1}", "not_json"),
    "NaN": ('{"a":NaN}', "not_json"),
    "leading zero": ('{"a":01}', "not_json"),
    "lone surrogate": ('{"a":"\\ud83d"}', "not_json"),
    "broken inside an array": ('{"a":[1,"\\q"]}', "not_json"),
    "one byte too many": (json.dumps({"a": "x" * (1_000_000 - 8 + 1)}, separators=(",", ":")), "too_large"),
    "deep": ('{"a":' * DEEP + "1" + "}" * DEEP, "too_deep"),
    "deep array": ('{"a":' + "[" * 64 + "]" * 64 + "}", "too_deep"),
    "5,001 keys": (json.dumps({f"k{n}": 1 for n in range(5_001)}), "too_many_keys"),
}
GOOD = {
    "nul": '{"a":"x\\u0000y"}',
    "duplicate keys": '{"a":1,"a":2}',
    "exactly a million bytes": json.dumps({"a": "x" * (1_000_000 - 8)}, separators=(",", ":")),
    "exactly 64 deep": '{"a":' + "[" * 63 + "]" * 63 + "}",
    "odd keys": json.dumps(
        {
            "`": 1,
            '"': 2,
            "a.b": 3,
            "; DROP TABLE x;--": 4,
            "two\nlines": 5,
            "\u202ertl": 6,
            "k" * 300: 7,
            "${env:HOME}": 8,
            "": 9,
            "record_key": 10,
            "_file": 11,
            "message_id": 12,
        }
    ),
    "case": '{"userId":1,"userid":2,"user_id":3}',
    "scalar": '{"shape":1}',
    "object": '{"shape":{"inner":1}}',
    "bad period": '{"periodReference":"2026-13"}',
}


def event(name: str, payload: str, key: str | None = None) -> RawRow:
    return RawRow(name, datetime(2026, 5, 6, tzinfo=UTC), "orders", payload, LANDED, key)


def stop_at(wanted: str) -> Callable[[str], None]:
    """A step function that abandons the work at a step."""

    def step(name: str) -> None:
        if name == wanted:
            raise Abandoned(name)

    return step


def test_every_bad_document_is_a_parse_error_with_its_rule_and_the_good_ones_beside_it_arrive(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    world.publish(
        "orders", [*(event(name, text) for name, (text, _) in BAD.items()), *(event(n, t) for n, t in GOOD.items())]
    )
    counts = world.cycle()["orders"].layers["standardized"].counts
    assert (counts["read"], counts["parse_errors"], counts["inserted"]) == (len(BAD) + len(GOOD), len(BAD), len(GOOD))
    errors = {row["message_id"]: row for row in world.errors(world.databases.parse_errors, "orders")}
    assert {name: row["failures"][0]["rule"] for name, row in errors.items()} == {
        n: rule for n, (_, rule) in BAD.items()
    }
    assert {row["message_id"] for row in world.standardized("orders")} == GOOD.keys()


def test_odd_keys_each_have_a_column_of_their_own_and_keep_their_value(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", [event(name, text) for name, text in GOOD.items()])
    world.cycle()
    view = world.platform().catalog.load(world.databases.standardized_table("orders"))
    rows = {row["message_id"]: row for row in world.standardized("orders")}
    odd = {path: rows["odd keys"][name] for path, name in view.paths.items() if rows["odd keys"][name] is not None}
    assert sorted(odd.values(), key=int) == [str(n) for n in range(1, 13)]
    case = {path: rows["case"][view.paths[path]] for path in ("$.userId", "$.userid", "$.user_id")}
    assert case == {"$.userId": "1", "$.userid": "2", "$.user_id": "3"}
    assert rows["scalar"][view.paths["$.shape"]] == "1"
    assert rows["object"][view.paths["$.shape.inner"]] == "1"
    assert rows["bad period"]["period_reference"] == "2026-05"
    assert rows["nul"][view.paths["$.a"]] == "x\x00y"
    assert rows["duplicate keys"][view.paths["$.a"]] == "2"


def test_beyond_the_column_limits_values_are_rescued_and_schema_paths_still_have_columns(world: World) -> None:
    world.with_rules(tables={"columns": 250, "new_columns": 200})
    world.add("orders", json.dumps(SCHEMA))
    first = {f"n{number:04d}": number for number in range(200)}
    second = {f"x{number:04d}": number for number in range(201)}
    for number, payload in enumerate([first, second | {"amount": 5}]):
        world.publish("orders", [event(f"m{number}", json.dumps(payload), key=f"k{number}")])
        assert world.cycle()["orders"].outcome == "done"
    rows = {row["message_id"]: row for row in world.standardized("orders")}
    rescued = json.loads(rows["m1"]["_rescued"])
    assert rows["m0"]["_rescued"] is None
    assert len(rescued) == 201 - 50
    assert rescued["$.x0200"] == "200"
    assert [row["amount"] for row in world.curated("orders")] == [None, 5] or [
        row["amount"] for row in world.curated("orders")
    ] == [5, None]


def test_a_schema_column_is_read_from_rescued_values_too(world: World) -> None:
    world.with_rules(tables={"columns": 1, "new_columns": 1})
    world.with_rules(pipeline={"explore": True})
    world.add("orders")
    world.publish("orders", [event("m1", '{"a":"1","b":"2"}', key="k1")])
    assert world.cycle()["orders"].outcome == "standardized_only"
    assert [json.loads(row["_rescued"]) for row in world.standardized("orders")] == [{"$.b": "2"}]
    late = [{"name": name, "path": f"$.{name}", "type": "STRING"} for name in ("a", "b")]
    world.add("orders", json.dumps({**SCHEMA, "payload_columns": late}))
    world.publish("orders", [event("m2", '{"a":"3","b":"4"}', key="k2")])
    assert world.cycle()["orders"].outcome == "done"
    assert {row["idempotency_key"]: row["b"] for row in world.curated("orders")} == {"k1": "2", "k2": "4"}


@pytest.mark.parametrize(("contract", "errors"), [("rescue", 0), ("quarantine", 1)])
def test_unknown_fields_follow_the_contract(world: World, contract: str, errors: int) -> None:
    world.add("orders", json.dumps({**SCHEMA, "policies": {"unknown_fields": contract}}))
    world.publish(
        "orders", [event("known", '{"amount":1}', key="a"), event("unknown", '{"amount":2,"x":{"y":3}}', key="b")]
    )
    counts = world.cycle()["orders"].layers["standardized"].counts
    assert counts["parse_errors"] == errors
    rows = {row["message_id"]: row for row in world.standardized("orders")}
    if contract == "rescue":
        assert json.loads(rows["unknown"]["_rescued"]) == {"$.x.y": "3"}
    else:
        found = world.errors(world.databases.parse_errors, "orders")[0]
        assert [(f["rule"], f["path"]) for f in found["failures"]] == [("unknown_field", "$.x.y")]


def test_a_schema_that_names_a_column_that_is_not_there_fails_in_one_line_and_standardizes_all_the_same(
    world: World,
) -> None:
    world.add("orders", json.dumps({**SCHEMA, "payload_columns": [{"name": "ghost", "type": "STRING"}]}))
    world.publish("orders", [event("m1", '{"a":1}', key="k")])
    result = world.cycle()["orders"]
    assert result.outcome == "failed"
    assert "ghost" in str(result.reason)
    assert "\n" not in str(result.reason)
    assert len(world.standardized("orders")) == 1


def test_pii_never_stands_in_curated_or_in_an_error_row(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    secret = "canary@example.com"
    payloads = {"good": '{"email":"c@e.de"}', "bad": json.dumps({"amount": "x", "email": secret})}
    world.publish("orders", [event(name, text, key=name) for name, text in payloads.items()])
    world.cycle()
    tables = [world.curated("orders"), world.errors(world.databases.errors, "orders")]
    assert [len(table) for table in tables] == [1, 1]
    assert not any(text in str(tables) for text in (secret, "c@e.de"))


def test_error_rows_hide_what_becomes_pii_later(world: World) -> None:
    """Also where the row passes by then, so that nothing writes its errors again; and other topics are left alone."""
    clear = [
        {"name": "mail", "path": "$.mail", "type": "STRING", "rules": {"max_length": 5}},
        SCHEMA["payload_columns"][0],
    ]
    for topic in ("orders", "others"):
        world.add(topic, json.dumps({**SCHEMA, "payload_columns": clear, "table_name": topic}))
        payload = json.dumps({"mail": "canary@example.com", "amount": "much"})
        world.publish(topic, [event("m1", payload, key="k1"), event("m2", "{", key="k2")])
    world.cycle()
    errors = world.databases.errors
    assert "canary" in str(world.errors(errors, "orders"))

    sealed = [{"name": "contact", "path": "$.mail", "type": "STRING", "pii": "mask"}, clear[1]]
    text = json.dumps({**SCHEMA, "payload_columns": [{**sealed[0]}, {**clear[1], "type": "STRING"}]})
    stopped = world.platform(step=stop_at("after hide"))
    with pytest.raises(Abandoned):
        deploy_schema(stopped, "orders", text, "f", Consent(rebuild=True))
    world.wait_for_leases()
    world.settle()
    assert world.platform().schemas.active("orders").version == 2
    (row,) = world.errors(errors, "orders")
    shown = {(one["rule"], one["column"]): one["value"] for one in row["failures"]}
    assert shown == {("rule_length", "mail"): "***", ("cast_failed", "amount"): "much"}
    assert (row["status"], row["attempts"]) == ("OPEN", 1)
    assert "canary" in str(world.errors(errors, "others"))


def test_a_sealed_key_stands_in_clear_nowhere_but_in_raw(world: World) -> None:
    key = {"name": "who", "path": "$.mail", "type": "STRING", "pii": "hmac"}
    keys = {"idempotency_key": "$.mail", "pii": "hmac"}
    schema = {**SCHEMA, "keys": keys, "payload_columns": [key, SCHEMA["payload_columns"][0]]}
    world.add("orders", json.dumps(schema))
    model = Model("orders", schema, pii_key=PII_KEY)
    texts = [
        # After a first batch without the key no shape expects it in the next one, which nothing corrects later.
        '{"amount":1}',
        '{"mail":"canary0@example.com","amount":1}',
        '{"mail":"canary@example.com","amount":1}',
        '{"mail":["canary@example.com"],"amount":1}',
        '{"mail":"canary@example.com","amount":2,"new":1}',
        '{"mail":"canary2@example.com","amount":"much"}',
    ]
    for number, text in enumerate(texts):
        batch = [event(f"m{number}", text, key=f"e{number}")]
        world.publish("orders", batch)
        world.cycle()
        model.standardize(batch)
        model.curate()
    for _ in range(2):
        assert_tables(world, "orders", model)
        errors = world.errors(world.databases.errors, "orders")
        assert len(errors) == 1
        assert "canary" not in str([world.standardized("orders"), world.curated("orders"), errors])
        rebuild_topic(world.platform(), "orders")
        model.rebuild([row for _, rows in world.published["orders"] for row in rows])
    assert {row["who"] == row["idempotency_key"] for row in world.curated("orders")} == {True, False}


class Miscounting(Wrapped):
    """An engine that loses count of a row."""

    def standardize(self, works: Sequence[StandardizeWork]) -> list[Any]:
        return [replace(one, counts={**one.counts, "inserted": 0}) for one in self.engine.standardize(works)]


def test_a_batch_out_of_balance_is_not_committed_and_leaves_nothing_half_written(world: World) -> None:
    world.add("orders", json.dumps(SCHEMA))
    world.publish("orders", [event("m1", '{"a":1}', key="k"), event("m2", "{", key="k")])
    result = world.cycle(world.platform(engine=lambda: Miscounting(world.engine())))["orders"]
    assert result.outcome == "failed"
    assert "RAW has 2 new rows" in str(result.reason)
    assert world.standardized("orders") == []
    assert world.errors(world.databases.parse_errors, "orders") == []
    assert len(list(world.platform().state.rows(BATCHES))) == 1
    assert world.cycle()["orders"].layers["standardized"].counts["inserted"] == 1


def test_a_spike_of_missing_values_stops_the_batch_until_it_is_accepted(world: World) -> None:
    columns = [{"name": "amount", "path": "$.amount", "type": "INT", "cde": True}]
    world.add("orders", json.dumps({**SCHEMA, "payload_columns": columns, "policies": {"cde_error_rate_fail": 0.5}}))
    world.publish("orders", [event(f"m{n}", "{}", key=f"k{n}") for n in range(4)])
    result = world.cycle()["orders"]
    assert (result.outcome, len(world.curated("orders"))) == ("failed", 0)
    assert "--accept-errors" in str(result.reason)
    world.with_rules(pipeline={"tries": 1})
    world.cycle()
    world.publish("orders", [event("m9", '{"amount":1}', key="k9")])
    held = world.cycle()["orders"]
    assert (held.outcome, list(held.layers)) == ("prior_failed", ["standardized"])
    assert "--accept-errors" in str(held.reason)
    accepted = world.cycle(accept_errors=True, force=True)["orders"]
    assert accepted.layers["curated"].counts["errors"] == 4


class RefusesErrorRows(Wrapped):
    """An engine that cannot append to error tables."""

    def add_errors(self, *_: object) -> list[str]:
        raise CommitRefusedError("no room")


def test_error_rows_that_cannot_be_written_fail_their_topic_alone_and_are_written_by_the_next_cycle(
    world: World,
) -> None:
    for topic in ("orders", "users"):
        world.add(topic, json.dumps({**SCHEMA, "table_name": topic}))
    world.publish("orders", [event("bad", "no json"), event("good", '{"amount":1}', key="k")])
    platform = world.platform(engine=lambda: RefusesErrorRows(world.engine()))
    results = world.cycle(platform)
    assert (results["orders"].outcome, results["users"].outcome) == ("failed", "no_new_data")
    assert (results["orders"].reason, world.standardized("orders")) == ("no room", [])
    assert world.cycle()["orders"].outcome == "done"
    assert [row["message_id"] for row in world.standardized("orders")] == ["good"]
    assert [row["message_id"] for row in world.errors(world.databases.parse_errors, "orders")] == ["bad"]


LIMITS = [
    ("INT", {"min": "0.5"}, "1", "0"),
    ("INT", {"max": "1e30"}, "2147483647", None),
    ("INT", {"max": "-1e30"}, None, "-2147483648"),
    ("BIGINT", {"max": "9223372036854775806.5"}, "9223372036854775806", "9223372036854775807"),
    ("BIGINT", {"allowed": ["1", "2.5"]}, "1", "2"),
    ("BIGINT", {"allowed": []}, None, "2"),
    ("DECIMAL(38,0)", {"max": "100.0"}, "100", "9" * 38),
    ("DECIMAL(18,2)", {"min": "1e-30"}, "0.01", "-1000000000.00"),
    ("DOUBLE", {"min": "0.5", "max": "1e3"}, "1000", "1000.5"),
    ("DATE", {"min": "2026-01-01"}, "2026-01-01", "2025-12-31"),
    ("TIMESTAMP", {"max": "2026-01-01T00:00:00Z"}, "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
    ("BOOLEAN", {"allowed": ["true"]}, "true", "false"),
    ("STRING", {"allowed": ["it's", "\\"]}, "\\", "its"),
]


def test_a_limit_holds_whatever_its_digits(world: World) -> None:
    columns = [
        {"name": f"c{at}", "path": f"$.c{at}", "type": kind, "rules": rules}
        for at, (kind, rules, _, _) in enumerate(LIMITS)
    ]
    world.add("orders", json.dumps({**SCHEMA, "payload_columns": columns}))
    good = {f"c{at}": text for at, (_, _, text, _) in enumerate(LIMITS)}
    bad = {f"c{at}": text for at, (_, _, _, text) in enumerate(LIMITS)}
    world.publish("orders", [event("good", json.dumps(good), key="good"), event("bad", json.dumps(bad), key="bad")])
    world.cycle()
    assert [row["message_id"] for row in world.curated("orders")] == ["good"]
    (found,) = world.errors(world.databases.errors, "orders")
    assert {failure["column"] for failure in found["failures"]} == {name for name, text in bad.items() if text}
