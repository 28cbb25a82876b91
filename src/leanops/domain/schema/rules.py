"""The rules of Curated columns, in one table: a new rule is one entry."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import partial
from typing import Any, Literal, NamedTuple

from leanops.domain.failures import Rule
from leanops.domain.schema.parse import Length, Text
from leanops.domain.schema.regex import Fault, fault_of, quick_length, surely_refuses
from leanops.domain.schema.types import ColumnType, TypeEntry, cast, limit_value
from leanops.domain.table.sql import literal

Sign = Literal["<", ">"]
About = Literal["value", "text", "length"]


class Cell(NamedTuple):
    """What a rule is about: the SQL of a text and of its value, and the column's type and rules."""

    text: str
    value: str
    type: ColumnType
    rules: Mapping[str, Any]


@dataclass(frozen=True)
class RuleEntry:
    """All that is known of a rule."""

    reads: Any
    """The type of its limit in the model of the schema file."""
    what: str
    """Documentation: what the limit is."""
    reports: str
    """What the error table names it."""
    says: str
    """The message for a value that breaks it."""
    refuses: Callable[[Any, Any], bool]
    """Whether what it is about breaks the limit, as far as that is sure of a text of the file."""
    is_broken: Callable[[Cell, Any], str]
    """The SQL of the same for a row, which is never asked of a cell without a value."""
    is_relaxed: Callable[[Any, Any], bool] = lambda _new, _old: False
    """Whether all that an old limit took passes a new one that is not the same."""
    about: About = "value"
    """What is held against the limit: the value, or the text as it arrives or its length."""
    up_to: str | None = None
    """The rule that is its other end."""
    fault: Callable[[Any, Mapping[str, Any]], Fault | None] = lambda _limit, _rules: None
    """Why the limit cannot be used beside the other rules, apart from not being a value of the column's type."""
    goes_with: Callable[[TypeEntry], bool] = lambda _: True


def _is_beyond(sign: Sign, cell: Cell, limit: str) -> str:
    """Whether a value is beyond a limit. An exact limit gets the column's own type: a wider one might not hold it."""
    if not cell.type.is_exact:
        return f"{cell.value} {sign} {cast(literal(limit), cell.type)}"
    # A limit may be finer than the column: what is less than 0.5 is, of whole numbers, what is less than 1.
    exact = _on_grid(limit, cell.type, ROUND_CEILING if sign == "<" else ROUND_FLOOR)
    written = _number(exact, cell.type)
    if written is None:
        return "true" if (exact > 0) == (sign == "<") else "false"
    return f"{cell.value} {sign} {written}"


def _is_length_beyond(sign: Sign, cell: Cell, limit: int) -> str:
    return f"length({cell.text}) {sign} {limit}"


def _is_other(cell: Cell, allowed: tuple[str, ...]) -> str:
    known = ", ".join(filter(None, (_known(text, cell.type) for text in allowed)))
    return f"{cell.value} NOT IN ({known})" if known else "true"


def _known(text: str, kind: ColumnType) -> str | None:
    """An allowed value as the column has it, or None where it can have no such value."""
    if not kind.is_exact:
        return cast(literal(text), kind)
    exact = _on_grid(text, kind, ROUND_FLOOR)
    return _number(exact, kind) if exact == Decimal(text) else None


def _number(exact: Decimal, kind: ColumnType) -> str | None:
    """A number in the column's own type, or None where it has too many digits for it."""
    whole, scale = kind.whole_digits, kind.scale
    return f"CAST('{exact:f}' AS DECIMAL({whole + scale},{scale}))" if abs(exact) < Decimal(10) ** whole else None


def _on_grid(number: str, kind: ColumnType, rounding: str) -> Decimal:
    with localcontext(prec=400):
        return Decimal(number).quantize(Decimal(1).scaleb(-kind.scale), rounding)


def _is_no_match(cell: Cell, pattern: str) -> str:
    whole, quick, longest = rf"\A(?:{pattern})\z", quick_length(pattern), cell.rules.get("max_length")
    is_other = f"NOT {cell.text} RLIKE {literal(whole)}"
    if quick is not None:
        # One long text could take hours: it fails untried. Lint asks for a max_length, but did not always.
        is_other = f"CASE WHEN length({cell.text}) <= {quick} THEN {is_other} ELSE true END"
    if longest is not None:
        # Lint takes some patterns only for short texts: a long one could overflow Java's stack, and end it.
        is_other = f"CASE WHEN length({cell.text}) <= {longest} THEN {is_other} ELSE false END"
    return is_other


def _end(sign: Sign, what: str, reports: str, says: str, up_to: str | None = None, *, of: About = "value") -> RuleEntry:
    """A rule about the least or the greatest value or length."""
    is_beyond = {"<": operator.lt, ">": operator.gt}[sign]
    is_broken = partial(_is_beyond if of == "value" else _is_length_beyond, sign)
    return RuleEntry(Text if of == "value" else Length, what, reports, says, is_beyond, is_broken, is_beyond, of, up_to)


RULES: dict[str, RuleEntry] = {
    "min": _end(
        "<", "The least value; a limit of a DATE or TIMESTAMP is ISO 8601.", "rule_min", "is less than {}", "max"
    ),
    "max": _end(">", "The greatest value.", "rule_max", "is more than {}"),
    "allowed": RuleEntry(
        reads=tuple[Text, ...],
        what="The only values taken.",
        reports="rule_allowed",
        says="is not an allowed value",
        refuses=lambda value, allowed: value not in allowed,
        is_broken=_is_other,
        is_relaxed=operator.gt,
    ),
    "pattern": RuleEntry(
        reads=str,
        what="A Java regular expression that the whole text must match.",
        reports="rule_pattern",
        says="does not match the pattern",
        refuses=lambda text, pattern: surely_refuses(pattern, text),
        is_broken=_is_no_match,
        about="text",
        fault=lambda pattern, rules: fault_of(pattern, rules.get("max_length")),
    ),
    "min_length": _end(
        "<", "The least number of characters.", "rule_length", "is shorter than {}", "max_length", of="length"
    ),
    "max_length": _end(">", "The greatest number of characters.", "rule_length", "is longer than {}", of="length"),
}


def reasons() -> list[str]:
    """Every reason an error table can give."""
    return [*Rule, *dict.fromkeys(entry.reports for entry in RULES.values())]


def is_refused(name: str, limit: Any, text: str, value: Any) -> bool:
    """Whether a text of the file, with this value, surely breaks a limit, given as what it is compared by."""
    about = {"value": value, "text": text, "length": len(text)}[RULES[name].about]
    return RULES[name].refuses(about, limit)


def compared_by(name: str, limit: Any, kind: ColumnType) -> Any:
    """What a limit is compared by, None where it, or a part of it, is not a value of the type."""
    if RULES[name].about != "value":
        return limit
    if not isinstance(limit, tuple):
        return limit_value(limit, kind)
    values = {None if text is None else limit_value(text, kind) for text in limit}
    return None if None in values else values


def leaves_room(low: Any, high: Any, kind: ColumnType | None) -> bool:
    """Whether a value of the type, or a length where there is none, can be between two limits."""
    if kind is None or not kind.is_exact:
        return bool(low <= high)
    grid = 10**kind.scale
    return bool(math.ceil(low * grid) <= math.floor(high * grid))
