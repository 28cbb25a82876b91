"""What a plan says: the statements on the tables, what has to be made anew, and the lines people read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.problems import Code, Problem
from leanops.domain.schema.diff import Change, Difference, Kind, difference
from leanops.domain.schema.model import Schema
from leanops.domain.schema.plan import Example, FailureGroup, SchemaPlan, Tables, ddl_of, needed, unseen_paths
from leanops.usecases.schemas.plan_gate import missing_values, problems_on_rows
from leanops.views.schemas import GROUPS_SHOWN, plan_lines
from tests.support.builders import column, schema
from tests.unit.conftest import Leanops

ADDED = Difference((Change(Kind.ADDITIVE, "/payload_columns/1", "b STRING added", changes_rows=True),))
PLAN = SchemaPlan("orders", ADDED, "standardized", 100, 100, is_sample=False)


def _tables(**columns: str) -> Tables:
    return Tables("s.orders", {f"$.{name}": name for name in columns}, "c.orders", columns)


def _ddl(old: Schema, new: Schema, tables: Tables) -> tuple[str, ...]:
    return ddl_of(new, difference(old, new), tables)


def test_new_columns_and_wider_types_are_altered_in_place() -> None:
    old = schema(column("a", type="INT"))
    new = schema(column("a", type="BIGINT"), column("b", type="DECIMAL(10,2)"))
    assert _ddl(old, new, _tables(a="int")) == (
        "ALTER TABLE c.orders ALTER COLUMN a TYPE BIGINT",
        "ALTER TABLE c.orders ADD COLUMN b DECIMAL(10,2)",
    )


def test_a_breaking_change_replaces_curated_and_other_keys_both_tables() -> None:
    old, tables = schema(column("a")), _tables(a="string")
    assert _ddl(old, schema(column("a", type="INT")), tables) == ("replace c.orders (rebuild)",)
    assert _ddl(old, schema(column("a"), keys={"version": "$.a"}), tables) == (
        "replace s.orders (rebuild)",
        "replace c.orders (rebuild)",
    )


def test_a_column_that_comes_back_with_another_type_needs_a_rebuild() -> None:
    old, new = schema(column("a")), schema(column("a"), column("b", type="INT"))
    tables, found = _tables(a="string", b="string"), difference(old, new)
    assert found.kind == Kind.ADDITIVE
    assert needed(new, found, tables, old_rows_change=False) == "rebuild"


def test_a_first_schema_with_other_keys_makes_standardized_anew_without_being_asked() -> None:
    new = schema(column("a"), keys={"idempotency_key": "$.a"})
    tables, found = Tables("s.orders", {"$.a": "a"}, "c.orders", None), difference(None, new)
    assert ddl_of(new, found, tables) == ("replace s.orders (rebuild)", "CREATE TABLE c.orders")
    plan = replace(PLAN, difference=found, needs="rebuild")
    assert plan.is_safe
    assert plan_lines(plan)[-1].startswith("it can be deployed as it is; Standardized has other keys and is rebuilt")


def test_a_first_schema_makes_its_tables() -> None:
    lines = ddl_of(schema(), difference(None, schema()), Tables("s.orders", None, "c.orders", None))
    assert [line.split(" (")[0] for line in lines] == ["CREATE TABLE s.orders", "CREATE TABLE c.orders"]


@pytest.mark.parametrize(
    ("new", "changes", "wanted"),
    [
        ({}, True, "recurate"),
        ({}, False, "nothing"),
        ({"cde": True}, True, "nothing"),
    ],
)
def test_old_rows_follow_an_additive_change_and_a_restrictive_one_on_demand(
    new: dict[str, Any], changes: bool, wanted: str
) -> None:
    old, more = schema(column("a")), schema(column("a"), column("b", **new))
    assert needed(more, difference(old, more), _tables(a="string"), old_rows_change=changes) == wanted


@pytest.mark.parametrize(
    ("plan", "is_safe"),
    [
        (PLAN, True),
        (replace(PLAN, failing=3), True),
        (replace(PLAN, leaving=1), False),
        (replace(PLAN, needs="rebuild"), False),
        (replace(PLAN, difference=Difference((Change(Kind.BREAKING, "", "x"),))), False),
        (replace(PLAN, difference=Difference((Change(Kind.FIRST, "", "x"),)), needs="rebuild"), True),
    ],
)
def test_a_plan_is_safe_where_no_row_leaves_and_nothing_breaks(plan: SchemaPlan, is_safe: bool) -> None:
    assert plan.is_safe == is_safe
    assert plan.as_json()["safe"] == is_safe


def test_the_lines_tell_rows_and_reasons() -> None:
    group = FailureGroup("rule_min", "amount", "is less than 5", 7, (Example("m1", '4"'), Example("m2", None)))
    plan = replace(
        PLAN,
        failing=7,
        failing_today=2,
        leaving=5,
        changed=40,
        failures=(group,),
        needs="recurate",
    )
    text = "\n".join(plan_lines(plan))
    assert "additive  b STRING added" in text
    assert "all 100 rows of Standardized" in text
    assert "7 rows fail (2 under the active schema)" in text
    assert '7 rule_min amount: is less than 5; m1 has "4\\""; m2' in text


def test_a_plan_for_others_names_messages_and_shows_none_of_their_values() -> None:
    group = FailureGroup("rule_min", "amount", "is less than 5", 7, (Example("m1", "4"), Example("m2", None)))
    plan = replace(PLAN, failing=7, failures=(group,)).without_values()
    assert "7 rule_min amount: is less than 5; m1; m2" in "\n".join(plan_lines(plan)).replace("    ", "")
    assert [one["value"] for one in plan.as_json()["failures"][0]["examples"]] == [None, None]


def test_a_sample_and_rows_of_raw_are_named_as_such() -> None:
    plan = replace(PLAN, source="raw", judged=80, is_sample=True, parse_errors=3, missing_keys=0)
    text = "\n".join(plan_lines(plan))
    assert "a sample of 100 rows of RAW, 80 keys" in text
    assert "3 rows cannot be parsed" in text
    assert "without a key" not in text


def test_additive_rows_that_would_leave_stay_unless_someone_asks() -> None:
    said = plan_lines(replace(PLAN, leaving=2, changed=3, needs="recurate"))[-1]
    assert said.startswith("old rows are left unchanged; --recurate --accept-missing 2 applies it to them")


def test_a_path_that_no_event_has_is_told_with_the_one_that_was_probably_meant() -> None:
    new = schema(column("a"), column("status", path="$.payment.statusx"), column("far", path="$.zzz"))
    found = unseen_paths(new, ["$.a", "$.payment.status", "$.payment.amount"], 300, with_keys=True)
    assert [(one.pointer, one.nearest) for one in found] == [
        ("/payload_columns/1/path", "$.payment.status"),
        ("/payload_columns/2/path", None),
    ]
    plan = replace(PLAN, unseen=found)
    assert plan.is_safe
    assert problems_on_rows(new, plan) == []
    text = "\n".join(plan_lines(plan))
    assert "status: $.payment.statusx is in 0 of 300 events; did you mean $.payment.status?" in text
    assert "far: $.zzz is in 0 of 300 events; no event has a similar path" in text


def test_a_key_that_no_event_has_is_refused_until_somebody_takes_it() -> None:
    new = schema(column("a"), keys={"idempotency_key": "$.id", "version": "$.updatedat"})
    assert unseen_paths(new, ["$.a", "$.id"], 300, with_keys=False) == ()
    plan = replace(PLAN, unseen=unseen_paths(new, ["$.a", "$.id", "$.updatedAt"], 300, with_keys=True))
    (problem,) = problems_on_rows(new, plan)
    assert (problem.code, problem.pointer) == (Code.PATH_UNSEEN, "/keys/version")
    assert str(problem) == (
        "/keys/version: $.updatedat is in 0 of 300 events; did you mean $.updatedAt? If events will have $.updatedat "
        "later, add --accept-unseen"
    )
    assert problems_on_rows(new, plan, accept_unseen=True) == []
    assert not plan.is_safe
    assert plan_lines(plan)[-1] == f"a deployment would refuse it: {problem}"


def test_a_key_without_a_similar_path_may_still_come() -> None:
    new = schema(column("a"), keys={"idempotency_key": "$.zzz"})
    (unseen,) = unseen_paths(new, ["$.a"], 300, with_keys=True)
    assert str(unseen.problem()) == (
        "/keys/idempotency_key: $.zzz is in 0 of 300 events; no event has a similar path; if events will have $.zzz "
        "later, add --accept-unseen"
    )


def test_what_a_deployment_would_refuse_is_no_plan_to_go_by() -> None:
    renamed = Problem(Code.TABLE_RENAMED, "/table_name", "is 'a' and cannot be renamed", "keep that name")
    plan = replace(PLAN, problems=(renamed,))
    assert not plan.is_safe
    assert plan_lines(plan)[-1] == (
        "a deployment would refuse it: /table_name: is 'a' and cannot be renamed; keep that name"
    )
    assert plan.as_json()["problems"][0]["code"] == "table_renamed"


def test_a_plan_without_the_rows_of_raw_says_that_they_are_gone() -> None:
    plan = replace(PLAN, source="retired", rows=0, judged=0, needs="rebuild")
    text = "\n".join(plan_lines(plan))
    assert "no events yet" not in text
    assert "RAW no longer holds the events" in text
    assert "do not deploy it" in text
    assert not plan.is_safe
    assert "do not deploy it" not in "\n".join(plan_lines(replace(plan, needs="nothing")))


@pytest.mark.parametrize(("most", "told"), [(0.4, ["/payload_columns/0/cde", "/payload_columns/1/cde"]), (0.5, [])])
def test_rows_that_lack_any_critical_value_are_counted_as_a_batch_counts_them(most: float, told: list[str]) -> None:
    groups = tuple(FailureGroup("cde_missing", name, "critical", 25, ()) for name in "ab")
    plan = replace(PLAN, failing=50, cde_missing=50, failures=groups)
    new = schema(column("a", cde=True), column("b", cde=True), policies={"cde_error_rate_fail": most})
    found = list(missing_values(new, plan))
    assert [problem.pointer for problem in found] == told
    messages = [f"critical values are missing in 50 of 100 rows ({name} in 25), and" for name in "ab"]
    assert all(problem.message.startswith(message) for problem, message in zip(found, messages, strict=False))


def test_many_reasons_are_cut_and_counted() -> None:
    groups = tuple(FailureGroup("rule_min", f"c{number}", "is less", 1, ()) for number in range(GROUPS_SHOWN + 2))
    assert any("more reasons: 2;" in line for line in plan_lines(replace(PLAN, failing=9, failures=groups)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("orders", "missing.json"), "missing.json cannot be read"),
        (("orders", "good.json", "--sample", "5", "--all"), "choose either --sample N or --all"),
        (("nowhere", "good.json"), "nowhere"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why_in_a_line(
    leanops: Leanops, home: Path, words: tuple[str, ...], said: str
) -> None:
    leanops("topics", "add", "orders")
    (home / "good.json").write_text(schema().model_dump_json(exclude_unset=True))
    found = leanops("schema", "plan", words[0], str(home / words[1]), *words[2:])
    assert found.code in (1, 2)
    assert said in found.err
    assert found.err.count("\n") == 1


def test_a_topic_nobody_knows_has_nothing_to_infer(leanops: Leanops, home: Path) -> None:
    found = leanops("schema", "infer", "nowhere")
    assert found.code in (1, 2)
    assert "nowhere" in found.err
