"""Schemas go live: numbered, kept, recorded."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leanops.domain.errors import (
    CommitRefusedError,
    InvalidSchemaError,
    LeaseHeldError,
    LeaseLostError,
    UnknownTopicError,
    UsageError,
)
from leanops.domain.problems import Code
from leanops.domain.table.definitions import ERRORS
from leanops.usecases.leases import held, unlock
from leanops.usecases.platform import Platform, Secret
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from leanops.usecases.topics.registry import add_topic, find_topic, pause_topic
from tests.support.builders import NOW, column, platform_in, schema, schema_text

KEY = Secret(b"a key for the tests", "k1")


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with platform_in(tmp_path) as platform:
        add_topic(platform, "orders")
        yield platform


def deploy(platform: Platform, text: str, topic: str = "orders") -> tuple[int, bool]:
    """Deploy with every consent there is; the version, and whether it is new."""
    done = deploy_schema(platform, topic, text, "schema.json", Consent(rebuild=True))
    assert platform.schemas.active(topic) == done.schema
    return done.schema.version, done.is_new


def recorded(platform: Platform) -> list[tuple[object, ...]]:
    names = ["topic_name", "version", "classification", "actor", "activated_ts"]
    rows = platform.catalog.select("ops_db.schema_versions", names)
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_a_first_schema_goes_live_and_enables_its_topic(platform: Platform) -> None:
    assert deploy(platform, schema_text()) == (1, True)
    topic = find_topic(platform, "orders")
    assert (topic.processing_enabled, topic.schema_version, topic.status) == (True, 1, "READY")
    assert recorded(platform) == [("orders", 1, "first", "someone", NOW)]


def test_the_same_schema_twice_changes_nothing(platform: Platform) -> None:
    deploy(platform, schema_text(version=4))
    assert deploy(platform, schema_text(version=4)) == (4, False)
    assert deploy(platform, json.dumps(json.loads(schema_text()), indent=3)) == (4, False)
    assert deploy(platform, schema_text(column(path='$["c"]'), version=9)) == (4, False)
    assert len(recorded(platform)) == 1


def test_the_version_rises_with_every_change_and_earlier_ones_stay_readable(platform: Platform) -> None:
    texts = [schema_text(column(), column(f"d{number}"), version=1) for number in range(3)]
    assert [deploy(platform, text) for text in texts] == [(1, True), (2, True), (3, True)]
    assert deploy(platform, schema_text(version=10)) == (10, True)
    names = {version: platform.schemas.version("orders", version) for version in (1, 2, 3, 10, 11)}
    assert [found and found.payload_columns[-1].name for found in names.values()] == ["d0", "d1", "d2", "c", None]
    assert [found and found.version for found in names.values()] == [1, 2, 3, 10, None]
    assert [row[1] for row in recorded(platform)] == [1, 2, 3, 10]


@pytest.mark.parametrize("active", [0, 1, 7])
def test_a_version_far_above_the_active_one_is_refused(platform: Platform, active: int) -> None:
    if active:
        deploy(platform, schema_text(column("b"), version=active))
    with pytest.raises(InvalidSchemaError) as refused:
        deploy(platform, schema_text(version=active + 1_001))
    assert [(one.code, one.pointer) for one in refused.value.problems] == [(Code.OUT_OF_RANGE, "/version")]
    assert deploy(platform, schema_text(version=active + 1_000)) == (active + 1_000, True)
    assert deploy(platform, schema_text(column("d"))) == (active + 1_001, True)


def test_a_file_that_could_not_be_read_again_is_never_kept(platform: Platform) -> None:
    allowed = [f"{number:04}" for number in range(60_000)]
    text = json.dumps(json.loads(schema_text(column(rules={"allowed": allowed}))), separators=(",", ":"))
    with pytest.raises(InvalidSchemaError):
        deploy(platform, text)
    assert platform.schemas.versions("orders") == []


def test_going_back_to_an_earlier_schema_is_a_new_version(platform: Platform) -> None:
    for text in (schema_text(), schema_text(column("d")), schema_text()):
        deploy(platform, text)
    assert platform.schemas.active("orders") == schema(version=3)


def test_the_file_keeps_what_its_owner_wrote(platform: Platform, tmp_path: Path) -> None:
    deploy(platform, json.dumps(json.loads(schema_text(description="größe", version=2)), ensure_ascii=False))
    text = (tmp_path / "schemas/orders/active/schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == json.loads(schema_text(description="größe", version=2))
    assert "größe" in text
    stored = platform.catalog.select("ops_db.schema_versions", ["schema"])
    assert [row["schema"] for row in stored] == [text]


def test_a_paused_topic_stays_paused(platform: Platform) -> None:
    pause_topic(platform, "orders", "rebuild")
    deploy(platform, schema_text())
    topic = find_topic(platform, "orders")
    assert (topic.status, topic.reason, topic.processing_enabled) == ("PAUSED", "rebuild", True)


def test_a_table_of_another_topic_is_refused(platform: Platform) -> None:
    add_topic(platform, "users")
    deploy(platform, schema_text())
    with pytest.raises(InvalidSchemaError, match="/table_name: 'orders' belongs to topic 'orders'"):
        deploy(platform, schema_text(), "users")
    assert platform.schemas.active("users") is None
    assert not find_topic(platform, "users").processing_enabled
    assert deploy(platform, schema_text(table_name="users"), "users") == (1, True)


def test_a_table_cannot_be_renamed(platform: Platform) -> None:
    deploy(platform, schema_text())
    with pytest.raises(InvalidSchemaError, match="cannot be renamed"):
        deploy(platform, schema_text(table_name="orders_2"))


@pytest.mark.parametrize(
    "text",
    [
        schema_text(column(pii="hmac")),
        schema_text(column(), keys={"idempotency_key": "$.id", "pii": "hmac"}),
    ],
)
def test_an_hmac_without_a_key_is_refused(platform: Platform, text: str) -> None:
    with pytest.raises(UsageError, match="LEANOPS_PII_KEY"):
        deploy(platform, text)
    with pytest.raises(UsageError, match="has 3 bytes; set LEANOPS_PII_KEY to one of 16 or more"):
        deploy(replace(platform, secret=Secret(b"key", "k1")), text)
    assert platform.schemas.active("orders") is None
    assert deploy(replace(platform, secret=KEY), text) == (1, True)


@pytest.mark.parametrize("pii", ["mask", "drop"])
def test_other_masks_need_no_key(platform: Platform, pii: str) -> None:
    assert deploy(platform, schema_text(column(pii=pii))) == (1, True)


@pytest.mark.parametrize("text", ["", "{", "{}", schema_text(table_name="Bad"), schema_text(column(), column())])
def test_a_bad_file_never_touches_the_active_one(platform: Platform, text: str) -> None:
    deploy(platform, schema_text())
    with pytest.raises(InvalidSchemaError):
        deploy(platform, text)
    assert platform.schemas.active("orders") == schema()
    assert find_topic(platform, "orders").processing_enabled
    assert len(recorded(platform)) == 1


def test_a_topic_nobody_added_gets_no_schema(platform: Platform) -> None:
    with pytest.raises(UnknownTopicError):
        deploy(platform, schema_text(), "nobody")
    assert platform.schemas.topics() == {}


def test_a_breaking_change_is_refused_at_its_place_without_consent(platform: Platform) -> None:
    deploy(platform, schema_text(column("a"), column("b")))
    for text in (schema_text(column("a")), schema_text(column("a", type="INT"), column("b"))):
        with pytest.raises(InvalidSchemaError, match="--rebuild") as raised:
            deploy_schema(platform, "orders", text, "schema.json")
        assert {problem.code for problem in raised.value.problems} == {Code.BREAKING_CHANGE}
    assert platform.schemas.versions("orders") == [1]
    agreed = schema_text(column("a"), policies={"on_breaking": "rebuild"})
    assert deploy_schema(platform, "orders", agreed, "schema.json").schema.version == 2


def test_what_kind_of_change_a_version_was_is_recorded(platform: Platform) -> None:
    for columns in ([column("a")], [column("a"), column("b")], [column("a", cde=True), column("b")], [column("a")]):
        deploy(platform, schema_text(*columns))
    assert [row[2] for row in recorded(platform)] == ["first", "additive", "restrictive", "breaking"]


def test_nobody_deploys_to_a_topic_that_is_worked_on(platform: Platform) -> None:
    with held(replace(platform, owner="other"), "topic/orders"), pytest.raises(LeaseHeldError):
        deploy(platform, schema_text())
    assert platform.schemas.versions("orders") == []


def test_a_column_becomes_pii_without_spark_where_its_topic_has_no_error_rows(platform: Platform) -> None:
    sealing = replace(platform, secret=KEY)
    deploy(sealing, schema_text(column("a"), column("b")))
    platform.catalog.create(platform.rules.databases.errors, ERRORS)
    platform.catalog.append(platform.rules.databases.errors, [{"error_id": "e", "topic_name": "others"}])
    assert deploy(sealing, schema_text(column("a"), column("b", pii="hmac"), keys={"pii": "hmac"})) == (2, True)


def test_a_deployment_that_wakes_up_late_replaces_no_version_of_another(platform: Platform, tmp_path: Path) -> None:
    deploy(platform, schema_text())
    theirs = schema_text(column("theirs"), version=2)

    def stall(name: str) -> None:
        if name == "before keep":
            unlock(platform, "topic/orders")
            deploy(platform, theirs)

    with pytest.raises((CommitRefusedError, LeaseLostError)):
        deploy(replace(platform, step=stall), schema_text(column("ours"), version=2))
    kept = platform.schemas.version("orders", 2)
    assert kept == platform.schemas.active("orders") == schema(column("theirs"), version=2)
    archived = json.loads((tmp_path / "schemas/orders/archive/schema.v2.json").read_text())
    assert archived == json.loads(theirs)


def test_a_version_that_never_became_active_has_used_its_number_up(platform: Platform) -> None:
    deploy(platform, schema_text())
    forgotten = schema_text(column("forgotten"), version=2)
    platform.schemas.keep("orders", 2, forgotten)
    assert deploy(platform, schema_text(column("d"), version=2)) == (3, True)
    assert platform.schemas.version("orders", 2) == schema(column("forgotten"), version=2)
