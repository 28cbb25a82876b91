"""Members of a schema file from their JSON values; what cannot be one says why and what to write."""

import json
import re
from typing import Any

from pydantic_core import PydanticCustomError

from leanops.domain.errors import InvalidPathError
from leanops.domain.payload.paths import canonical
from leanops.domain.problems import Code, quoted
from leanops.domain.schema.document import Number
from leanops.domain.schema.types import ColumnType, TypeName

DEFAULT_KEY_PATH = "$._metadata.idempotencyKeyResource"
DEFAULT_PERIOD_PATHS = ("$.periodReference", "$.period_reference")
_DECIMAL = re.compile(r"DECIMAL\(([0-9]{1,2}), *([0-9]{1,2})\)")
_A_DECIMAL = "write it like DECIMAL(18,2): precision 1 to 38, and scale at most the precision"
_KINDS = {bool: "true or false", str: "a text", list: "an array", dict: "an object", type(None): "null"}


def refusal(code: Code, message: str, hint: str) -> PydanticCustomError:
    """A problem on its way out of a validator; the place is added by its caller."""
    return PydanticCustomError(code.value, "{message}", {"message": message, "hint": hint})


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    return _KINDS.get(type(value), "a number")


def wrong_kind(value: Any, wanted: str) -> PydanticCustomError:
    """A refusal of a value that is something else than wanted."""
    return refusal(Code.WRONG_KIND, f"is {kind_of(value)}", f"write {wanted}")


def type_from_text(value: Any) -> Any:
    """The type a text names."""
    if isinstance(value, ColumnType):
        return value
    if not isinstance(value, str):
        raise wrong_kind(value, "the type as a text, like DECIMAL(18,2)")
    text = value.upper()
    found = _DECIMAL.fullmatch(text)
    if found and 1 <= int(found[1]) <= 38 and int(found[2]) <= int(found[1]):
        return ColumnType(TypeName.DECIMAL, int(found[1]), int(found[2]))
    if re.match(r"DECIMAL\b", text):
        raise refusal(Code.BAD_DECIMAL, f"{quoted(value)} is no decimal type", _A_DECIMAL)
    if text not in set(TypeName):
        raise refusal(Code.UNKNOWN_TYPE, f"there is no type {quoted(value)}", f"use one of {', '.join(TypeName)}")
    return ColumnType(TypeName(text))


def path_from_text(value: Any) -> Any:
    """The canonical spelling of a path."""
    if not isinstance(value, str):
        raise wrong_kind(value, "the path as a text, like $.order.id")
    try:
        return canonical(value)
    except InvalidPathError:
        hint = 'write it like $.order.id or $["a.b"].c'
        raise refusal(Code.BAD_PATH, f"{quoted(value)} is no JSON path", hint) from None


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
