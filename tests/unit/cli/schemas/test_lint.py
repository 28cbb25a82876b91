"""`schema lint` on the command line: no home, several files, and an output for people, programs and pull requests."""

import io
import json
import sys
from pathlib import Path

import pytest

from tests.support.builders import column, schema_text
from tests.support.places import MALFORMED
from tests.unit.conftest import Leanops

BAD = """{
  "table_name": "orders", "envelope_columns": [],
  "payload_columns": [
    {"name": "amount", "type": "INT", "rules": {"min": 2, "max": 1}},
    {"name": "100%,: x", "type": "STRING"}
  ]
}
"""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a home."""
    monkeypatch.delenv("LEANOPS_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("good.json").write_text(schema_text(column(), table_name="good"))
    Path("bad.json").write_text(BAD)
    return tmp_path


def test_sound_files_are_counted_and_the_exit_code_is_0(leanops: Leanops) -> None:
    Path("other.json").write_text(schema_text(table_name="other"))
    ran = leanops("schema", "lint", "good.json", "other.json")
    assert (ran.code, ran.out, ran.err) == (0, "2 files, no problems\n", "")


def test_a_problem_is_a_line_with_file_line_code_place_and_what_to_do(leanops: Leanops) -> None:
    ran = leanops("schema", "lint", "good.json", "bad.json")
    assert (ran.code, ran.err) == (3, "")
    assert ran.out.splitlines() == [
        "bad.json:4: contradiction /payload_columns/0/rules/min: no INT is between min '2' and max '1';"
        " lower it, or raise max",
        "bad.json:5: bad_name /payload_columns/1/name: '100%,: x' is not a valid name;"
        " use lower case letters, digits and _, at most 128, no digit first",
        "2 problems in 1 of 2 files",
    ]


def test_programs_get_an_array_of_objects_also_when_there_is_nothing_to_say(leanops: Leanops) -> None:
    ran = leanops("schema", "lint", "--json", "bad.json")
    assert ran.code == 3
    assert ran.json[0] == {
        "file": "bad.json",
        "line": 4,
        "code": "contradiction",
        "pointer": "/payload_columns/0/rules/min",
        "message": "no INT is between min '2' and max '1'",
        "hint": "lower it, or raise max",
    }
    clean = leanops("schema", "lint", "--json", "good.json")
    assert (clean.code, clean.json) == (0, [])


def test_annotations_are_escaped_as_github_wants_them(leanops: Leanops) -> None:
    Path("a,b: 5%.json").write_text(BAD)
    ran = leanops("schema", "lint", "--format", "github", "a,b: 5%.json")
    assert ran.code == 3
    assert ran.out.splitlines()[1:] == [
        "::error file=a%2Cb%3A 5%25.json,line=5,title=bad_name::/payload_columns/1/name: '100%25,: x' is not a valid"
        " name; use lower case letters, digits and _, at most 128, no digit first",
        "2 problems in 1 of 1 file",
    ]


def test_a_member_cannot_end_the_line_of_an_annotation(leanops: Leanops) -> None:
    Path("bad.json").write_text(schema_text(column(), **{"x\n::error file=other.json::y": 1}))
    ran = leanops("schema", "lint", "--format", "github", "bad.json")
    assert len(ran.out.splitlines()) == 2
    assert ran.out.count("\n::error") == 0


def test_standard_input_is_a_file_too(leanops: Leanops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    ran = leanops("schema", "lint", "-")
    assert ran.code == 3
    assert ran.out.startswith("-:4: contradiction")


def test_two_topics_with_one_table_are_a_problem_of_the_second(leanops: Leanops) -> None:
    for topic in ("orders", "invoices"):
        (Path("schemas") / topic).mkdir(parents=True)
        (Path("schemas") / topic / "schema.json").write_text(schema_text())
    ran = leanops("schema", "lint", "schemas/orders/schema.json", "schemas/invoices/schema.json", "--json")
    assert [(one["file"], one["code"]) for one in ran.json] == [("schemas/invoices/schema.json", "table_twice")]


@pytest.mark.parametrize("words", [["nosuch.json"], ["."], ["good.json", "--format", "github", "--json"], []])
def test_what_cannot_be_read_or_is_unclear_is_told_in_a_line(leanops: Leanops, words: list[str]) -> None:
    ran = leanops("schema", "lint", *words)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1


def test_bytes_that_are_no_text_are_a_problem_and_no_failure(leanops: Leanops) -> None:
    Path("bad.json").write_bytes(b'{\n"owner": "\xff"}')
    ran = leanops("schema", "lint", "bad.json", "--json")
    assert (ran.code, [(one["code"], one["line"]) for one in ran.json]) == (3, [("not_utf8", 2)])


def test_every_malformed_file_at_once_gives_lines_and_no_trace(leanops: Leanops) -> None:
    files = sorted(str(path) for path in MALFORMED.iterdir())
    ran = leanops("schema", "lint", "--json", *files)
    assert (ran.code, ran.err) == (3, "")
    assert {one["file"] for one in json.loads(ran.out)} == set(files)
