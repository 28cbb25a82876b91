"""The JSON Schema that editors use: it describes every member, and what lint takes, it takes too."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from bench.data import TOPIC_SCHEMA
from leanops.domain.schema.lint import lint
from leanops.emulation.events.profiles import PROFILES
from tests.oracle import vocabulary
from tests.support.places import ROOT
from tests.unit.schema.test_lint_laws import CHANGES, WHOLE, written
from tests.unit.schema.test_model import GOOD

PUBLISHED: dict[str, Any] = json.loads((ROOT / "docs/reference/schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(PUBLISHED)
FILES = ["examples/orders/schema.json", "examples/orders/schema-2.json"]

EMULATED = [profile.schema(profile.name) for profile in PROFILES]


def faults(value: Any) -> list[str]:
    return [fault.json_path for fault in VALIDATOR.iter_errors(value)]


def members() -> Iterator[tuple[str, dict[str, Any]]]:
    for model in (PUBLISHED, *PUBLISHED["$defs"].values()):
        for name, member in model.get("properties", {}).items():
            shared = PUBLISHED["$defs"].get(member.get("$ref", "").removeprefix("#/$defs/"), {})
            yield f"{model['title']}.{name}", {**shared, **member}


def test_it_is_a_json_schema() -> None:
    assert list(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(PUBLISHED)) == []


def test_every_member_is_described_and_no_object_takes_others() -> None:
    assert len(list(members())) > 30
    assert [name for name, member in members() if not member.get("description")] == []
    objects = [model for model in (PUBLISHED, *PUBLISHED["$defs"].values()) if model["type"] == "object"]
    assert [model["title"] for model in objects if model["additionalProperties"]] == []


@pytest.mark.parametrize("file", FILES)
def test_the_files_of_the_repository_are_valid(file: str) -> None:
    assert faults(json.loads((ROOT / file).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("value", [GOOD, WHOLE, vocabulary.SCHEMA, TOPIC_SCHEMA, *EMULATED])
def test_the_schemas_of_tests_benchmark_and_emulation_are_valid(value: Any) -> None:
    assert faults(json.loads(json.dumps(value))) == []


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("rule_misspelt", "$.payload_columns[0].rules"),
        ("unknown_type", "$.payload_columns[0].type"),
        ("decimal_too_wide", "$.payload_columns[0].type"),
        ("path_with_an_index", "$.payload_columns[0].path"),
        ("upper_case_column", "$.payload_columns[0].name"),
        ("pii_unknown", "$.payload_columns[0].pii"),
        ("unknown_format", "$.payload_columns[0].format"),
        ("columns_empty", "$.payload_columns"),
        ("version_zero", "$.version"),
        ("rate_in_percent", "$.policies.cde_error_rate_alert"),
        ("policy_unknown", "$.policies.unknown_fields"),
        ("table_name_missing", "$"),
    ],
)
def test_an_editor_sees_what_is_wrong_in_itself(name: str, place: str) -> None:
    assert faults(json.loads((ROOT / f"tests/malformed/{name}.json").read_text(encoding="utf-8"))) == [place]


@given(CHANGES)
def test_what_lint_takes_an_editor_takes(changes: dict[str, Any]) -> None:
    text = written(WHOLE, changes)
    if not lint({"schema.json": text.encode()}):
        assert faults(json.loads(text)) == []
