"""A new type and a new rule are one entry each: lint, diff, inference and the reference know it from there."""

import json
import subprocess
import sys
from typing import Any

from tests.support.builders import column, schema_text
from tests.support.places import ROOT

REGISTERED = """
import json, sys
from leanops.domain.schema.rules import RULES, reasons
from leanops.domain.schema.types import TYPES
from tests.unit.schema.new_entries import MULTIPLE_OF, UUID_TYPE

TYPES["UUID"] = UUID_TYPE
RULES["multiple_of"] = MULTIPLE_OF

from docs.generate import casts_page, schema_file
from leanops.domain.schema.diff import difference
from leanops.domain.schema.infer import Seen, guess_type
from leanops.domain.schema.lint import lint
from leanops.domain.schema.model import schema_from_json
from leanops.views.schemas import difference_lines

def found(text):
    return [[one.problem.code, one.problem.pointer] for one in lint({"schema.json": text.encode()})]

def changes(pair):
    old, new = (schema_from_json(text, "schema.json") for text in pair)
    return difference_lines(difference(old, new))

files, pairs = json.loads(sys.argv[1])
uuids = Seen("$.a", frozenset({"string"}), events=9, holds={"uuid": 9})
print(json.dumps({
    "lint": [found(text) for text in files],
    "diff": [changes(pair) for pair in pairs],
    "inferred": str(guess_type(uuids).type),
    "reasons": reasons(),
    "casts": casts_page(),
    "schema": json.loads(schema_file()),
}))
"""
SAMPLE = "123e4567-e89b-12d3-a456-426614174000"


def with_both(files: list[str], pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """What a process says whose tables have one entry more each; the models are made from them at import."""
    asked = [sys.executable, "-c", REGISTERED, json.dumps([files, pairs])]
    answer = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    known: dict[str, Any] = json.loads(answer.stdout)
    return known


def only(**members: Any) -> str:
    return schema_text(column("a", **members))


def test_a_new_type_is_one_entry() -> None:
    files = [
        only(type="uuid", default=SAMPLE, rules={"allowed": [SAMPLE], "max_length": 36}),
        only(type="UUID", default="x", rules={"min": "y"}),
        only(type="UUID", pii="hmac"),
    ]
    said = with_both(files, [(only(type="UUID"), only()), (only(), only(type="UUID"))])
    assert said["lint"] == [
        [],
        [["bad_default", "/payload_columns/0/default"], ["bad_limit", "/payload_columns/0/rules/min"]],
        [["pii_needs_string", "/payload_columns/0/pii"]],
    ]
    assert said["diff"] == [
        ["additive  a: type widened, UUID → STRING"],
        ["breaking  a: type changed, STRING → UUID"],
    ]
    assert said["inferred"] == "UUID"
    assert "| `UUID` | 32 lower-case hex digits in five groups |" in said["casts"]
    assert "UUID" in said["schema"]["$defs"]["PayloadColumn"]["properties"]["type"]["anyOf"][0]["enum"]


def test_a_new_rule_is_one_entry() -> None:
    five, ten = (only(type="DECIMAL(18,2)", rules={"multiple_of": step}) for step in (5, 10))
    files = [
        only(type="DECIMAL(18,2)", default="7.05", rules={"multiple_of": 0.05, "allowed": [7.05, 7.1]}),
        only(type="DECIMAL(18,2)", default="7.02", rules={"multiple_of": "0.05", "allowed": ["7.02"]}),
        only(rules={"multiple_of": 5}),
        only(type="INT", rules={"multiple_of": "much"}),
    ]
    said = with_both(files, [(ten, five), (five, ten)])
    contradiction, rules = "contradiction", "/payload_columns/0/rules"
    assert said["lint"] == [
        [],
        [[contradiction, "/payload_columns/0/default"], [contradiction, f"{rules}/allowed/0"]],
        [[contradiction, f"{rules}/multiple_of"]],
        [["bad_limit", f"{rules}/multiple_of"]],
    ]
    assert said["diff"] == [
        ["additive  a: rule multiple_of relaxed, 10 → 5"],
        ["restrictive  a: rule multiple_of tightened, 5 → 10"],
    ]
    assert said["reasons"][-1] == "rule_multiple_of"
    assert "| `multiple_of` | The value is a multiple of it. | `rule_multiple_of` |" in said["casts"]
    assert "multiple_of" in said["schema"]["$defs"]["Rules"]["properties"]
