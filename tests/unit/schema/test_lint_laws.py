"""Whatever is done to a schema file, lint says what is wrong and where, and never fails."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.problems import Problem
from leanops.domain.schema.document import step
from leanops.domain.schema.lint import lint
from tests.unit.schema.test_model import GOOD, JSON

WHOLE: dict[str, Any] = {
    "$schema": "schema.json",
    **GOOD,
    "payload_columns": [
        *GOOD["payload_columns"],  # type: ignore[misc]
        {
            "name": "due",
            "type": "DATE",
            "format": "dd/MM/yyyy",
            "default": "31/01/2026",
            "rules": {"min": "2026-01-01"},
        },
        {"name": "code", "type": "STRING", "rules": {"pattern": "[A-Z]+", "min_length": 1, "max_length": 9}},
    ],
}
"""A sound file with every kind of member."""


def pointers_in(value: Any, pointer: str = "") -> list[str]:
    """Every member of the value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [pointer, *(inner for name, one in members for inner in pointers_in(one, step(pointer, name)))]


PLACES = pointers_in(WHOLE)[1:]


def written(value: Any, changes: dict[str, tuple[str, Any]], pointer: str = "") -> str:
    """The value as JSON, with changes at some pointers."""
    change, new = changes.get(pointer, ("", None))
    if change == "replace":
        return json.dumps(new)
    if isinstance(value, dict):
        members = [(name, one) for name, one in value.items() if changes.get(step(pointer, name), ("",))[0] != "drop"]
        twice = [pair for pair in members if changes.get(step(pointer, pair[0]), ("",))[0] == "repeat"]
        said = [f"{json.dumps(name)}: {written(one, changes, step(pointer, name))}" for name, one in [*members, *twice]]
        text = "{" + ",\n".join(said) + "}"
    elif isinstance(value, list):
        text = "[" + ",\n".join(written(one, changes, step(pointer, at)) for at, one in enumerate(value)) + "]"
    else:
        text = json.dumps(value)
    return {"array": f"[{text}]", "object": f'{{"inner": {text}}}'}.get(change, text)


SAME = st.sampled_from(
    ["STRING", "INT", "DATE", "DECIMAL(4,2)", "amount", "email", "$.order.id", "hmac", "errors", "c"]
)
CHANGES = st.dictionaries(
    st.sampled_from(PLACES),
    st.tuples(st.sampled_from(["replace", "drop", "repeat", "array", "object"]), JSON | SAME),
    max_size=6,
)


def check(data: bytes) -> None:
    """Whatever is said of the bytes has a place in them and fits on a line."""
    for found in lint({"schema.json": data}):
        assert 1 <= found.line <= data.count(b"\n") + 1
        assert str(found.problem).isprintable()
        assert found.problem.hint
        json.dumps(found.as_json(), ensure_ascii=False).encode()
        assert is_there(data, found.problem)


def is_there(data: bytes, problem: Problem) -> bool:
    """Whether a pointer leads to a member, or to one that is missing from an object that is there."""
    if not problem.pointer:
        return True
    *above, last = [name.replace("~1", "/").replace("~0", "~") for name in problem.pointer.split("/")[1:]]
    value = json.loads(data, parse_int=str)
    for name in above:
        value = value[int(name)] if isinstance(value, list) else value[name]
    if isinstance(value, list):
        return int(last) < len(value)
    return last in value if problem.code != "missing_key" else last not in value


def test_the_file_that_is_changed_is_sound() -> None:
    assert lint({"schema.json": written(WHOLE, {}).encode()}) == []


@given(CHANGES)
def test_a_file_with_some_members_changed_is_taken_or_refused_at_places_it_has(changes: dict[str, Any]) -> None:
    check(written(WHOLE, changes).encode())


@given(CHANGES, st.data())
def test_a_file_that_is_cut_anywhere_is_refused_with_a_line(changes: dict[str, Any], data: st.DataObject) -> None:
    text = written(WHOLE, changes).encode()
    check(text[: data.draw(st.integers(0, len(text)))])


@given(st.integers(0), st.binary(max_size=6), st.integers(0, 3))
def test_a_file_with_other_bytes_anywhere_is_taken_or_refused(at: int, other: bytes, gone: int) -> None:
    text = written(WHOLE, {}).encode()
    place = at % (len(text) + 1)
    check(text[:place] + other + text[place + gone :])


@given(st.binary(max_size=40))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    check(data)
