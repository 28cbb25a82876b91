"""A schema file against its model: what is missing, unknown or of the wrong kind, and what to write instead."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from leanops.domain.errors import InvalidPathError
from leanops.domain.payload.paths import canonical
from leanops.domain.problems import Code, Problem, quoted
from leanops.domain.schema.document import Number, step
from leanops.domain.schema.types import TYPES, ColumnType

DEFAULT_KEY_PATH = "$._metadata.idempotencyKeyResource"
DEFAULT_PERIOD_PATHS = ("$.periodReference", "$.period_reference")
_DECIMAL = re.compile(r"DECIMAL\(([0-9]{1,2}), *([0-9]{1,2})\)")
_A_DECIMAL = "write it like DECIMAL(18,2): precision 1 to 38, and scale at most the precision"
_KINDS = {bool: "true or false", str: "a text", list: "an array", dict: "an object", type(None): "null"}

Model = TypeVar("Model", bound=BaseModel)
_EDITOR = "$schema"
_EXAMPLES = {
    "table_name": '"table_name": "orders"',
    "envelope_columns": '"envelope_columns": []',
    "payload_columns": '"payload_columns": [{"name": "order_id", "path": "$.order.id", "type": "STRING"}]',
    "name": '"name": "order_id"',
    "type": '"type": "STRING"',
}
_WANTED = {
    "string_type": "a text in double quotes",
    "bool_type": "true or false, without quotes",
    "tuple_type": "an array, in [ ]",
    "model_type": "an object, in { }",
}
_RANGES = {
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt:,}",
}


def refusal(code: Code, message: str, hint: str) -> PydanticCustomError:
    """A problem on its way out of a validator; the place is added by its caller."""
    return PydanticCustomError(code.value, "{message}", {"message": message, "hint": hint})


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    return _KINDS.get(type(value), "a number")


def wrong_kind(value: Any, wanted: str) -> PydanticCustomError:
    """A refusal of a value of another kind than the wanted one."""
    return refusal(Code.WRONG_KIND, f"is {kind_of(value)}", f"write {wanted}")


def type_from_text(value: Any) -> Any:
    """The type a text names."""
    if isinstance(value, ColumnType):
        return value
    if not isinstance(value, str):
        raise wrong_kind(value, "the type as a text, like DECIMAL(18,2)")
    text = value.upper()
    digits = _DECIMAL.fullmatch(text)
    if digits and 1 <= int(digits[1]) <= 38 and int(digits[2]) <= int(digits[1]):
        return ColumnType("DECIMAL", int(digits[1]), int(digits[2]))
    if re.match(r"DECIMAL\b", text):
        raise refusal(Code.BAD_DECIMAL, f"{quoted(value)} is not a decimal type", _A_DECIMAL)
    if text not in TYPES:
        raise refusal(Code.UNKNOWN_TYPE, f"there is no type {quoted(value)}", f"use one of {', '.join(TYPES)}")
    return ColumnType(text)


def path_from_text(value: Any) -> Any:
    """The canonical spelling of a path."""
    if not isinstance(value, str):
        raise wrong_kind(value, "the path as a text, like $.order.id")
    try:
        return canonical(value)
    except InvalidPathError:
        hint = 'write it like $.order.id or $["a.b"].c'
        raise refusal(Code.BAD_PATH, f"{quoted(value)} is not a JSON path", hint) from None


def text_from_scalar(value: Any) -> Any:
    """Defaults and limits may be written as JSON numbers or booleans; they are compared as texts."""
    match value:
        case str():
            return value
        case Number():
            return value.text
        case bool() | int() | float():
            return json.dumps(value)
    raise wrong_kind(value, "a text, a number, true or false")


def whole(value: Any) -> Any:
    """A whole number; one of too many digits to be in any range stays out of it."""
    if isinstance(value, Number) and re.fullmatch(r"-?[0-9]+", value.text):
        return int(value.text[:20])
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise wrong_kind(value, "a whole number, without quotes or decimals")


def share(value: Any) -> Any:
    """A number as a float."""
    if isinstance(value, Number):
        return float(value.text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise wrong_kind(value, "a number from 0 to 1, without quotes")


Text = Annotated[str, BeforeValidator(text_from_scalar), WithJsonSchema({"type": ["string", "number", "boolean"]})]
# Bounds come before the validators, or the JSON Schema would not have them.
Length = Annotated[int, Field(ge=0, lt=2**31), BeforeValidator(whole)]


def read_model(model: type[Model], value: Any) -> tuple[Model | None, list[Problem]]:
    """The model of a JSON value, and every problem of its structure."""
    if not isinstance(value, dict):
        return None, [Problem(Code.NOT_OBJECT, "", f"the file holds {kind_of(value)}", "write one JSON object, in { }")]
    members = {name: member for name, member in value.items() if name != _EDITOR}
    problems = []
    if not isinstance(value.get(_EDITOR, ""), str):
        hint = "write where the JSON Schema is, as a text, or leave it out"
        problems.append(Problem(Code.WRONG_KIND, step("", _EDITOR), f"is {kind_of(value[_EDITOR])}", hint))
    try:
        return model.model_validate(members), problems
    except ValidationError as invalid:
        # An array counts as too short without its broken members, which have problems of their own.
        errors = [
            error for error in invalid.errors(include_url=False) if error["type"] != "too_short" or not error["input"]
        ]
        return None, problems + [_problem(model, error) for error in errors]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the name that is probably meant, or with all known ones."""
    choices = list(known)
    close = difflib.get_close_matches(name[:100].lower(), choices, n=1)
    return f"did you mean {close[0]}?" if close else f"use one of {', '.join(choices)}"


def _problem(model: type[BaseModel], error: Mapping[str, Any]) -> Problem:
    code, message, hint = _explained(model, error)
    return Problem(code, reduce(step, error["loc"], ""), message, hint)


def _explained(model: type[BaseModel], error: Mapping[str, Any]) -> tuple[Code, str, str]:
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    member = str(error["loc"][-1])
    match kind:
        case "missing":
            return Code.MISSING_KEY, f"{quoted(member)} is missing", f"add {_EXAMPLES.get(member, member)}"
        case "extra_forbidden":
            known = _members(model, error["loc"][:-1])
            return Code.UNKNOWN_KEY, f"there is no member {quoted(member)}", did_you_mean(member, known)
        case "string_pattern_mismatch":
            hint = "use lower case letters, digits and _, at most 128, no digit first"
            return Code.BAD_NAME, f"{quoted(value)} is not a valid name", hint
        case "literal_error" | "enum":
            if not isinstance(value, str):
                return Code.WRONG_KIND, f"is {kind_of(value)}", f"write {context['expected']}"
            code = Code.BAD_FORMAT if kind == "enum" else Code.UNKNOWN_VALUE
            return code, f"{quoted(value)} is not known here", f"use {context['expected']}"
        case "too_short":
            return Code.EMPTY, "is empty", "name at least one column"
    if kind in _RANGES:
        return Code.OUT_OF_RANGE, "is out of range", f"write a number {_RANGES[kind].format(**context)}"
    if kind in _WANTED:
        return Code.WRONG_KIND, f"is {kind_of(value)}", f"write {_WANTED[kind]}"
    return Code(kind), context["message"], context["hint"]


def _members(model: type[BaseModel], loc: Iterable[str | int]) -> list[str]:
    """The names a member at this place may have."""
    for name in loc:
        if isinstance(name, str):
            model = _model_in(model.model_fields[name].annotation)
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel]:
    """The model of a member that is one, or holds many."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(_model_in(inner) for inner in get_args(annotation))
