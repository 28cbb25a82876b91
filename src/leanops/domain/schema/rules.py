"""The rules of Curated columns, in one table: a new rule is one entry."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from leanops.domain.failures import Rule
from leanops.domain.schema.parse import Length, Text
from leanops.domain.schema.regex import fault_of, matches
from leanops.domain.schema.types import ColumnType, TypeEntry, limit_value

About = Literal["value", "text", "length"]


class Test(StrEnum):
    """The tests that can be made on a column of cells at once; any other is made cell by cell."""

    LESS = "is less"
    MORE = "is more"
    OTHER = "is none of"
    NO_MATCH = "does not match"


@dataclass(frozen=True)
class RuleEntry:
    """All that is known of a rule."""

    reads: Any
    """The type of its limit in the model of the schema file."""
    what: str
    """Documentation: what the limit is."""
    reports: str
    """What the error table names it."""
    message: str
    """The message for a value that breaks it."""
    refuses: Callable[[Any, Any], bool]
    """Whether what it is about breaks the limit."""
    test: Test | None = None
    """The same for many cells at once."""
    is_relaxed: Callable[[Any, Any], bool] = lambda _new, _old: False
    """Whether all that an old limit took passes a new one that is not the same."""
    about: About = "value"
    """What is compared with the limit: the value, or the text as it arrives or its length."""
    up_to: str | None = None
    """The rule that is its other end."""
    fault: Callable[[Any], str | None] = lambda _limit: None
    """Why the limit cannot be used, apart from not being a value of the column's type."""
    goes_with: Callable[[TypeEntry], bool] = lambda _: True


def _end(
    test: Test, what: str, reports: str, message: str, up_to: str | None = None, *, of: About = "value"
) -> RuleEntry:
    """A rule about the least or the greatest value or length."""
    is_beyond = operator.lt if test == Test.LESS else operator.gt
    return RuleEntry(Text if of == "value" else Length, what, reports, message, is_beyond, test, is_beyond, of, up_to)


RULES: dict[str, RuleEntry] = {
    "min": _end(
        Test.LESS, "The minimum value; for a DATE or TIMESTAMP in ISO 8601.", "rule_min", "is less than {}", "max"
    ),
    "max": _end(Test.MORE, "The maximum value.", "rule_max", "is more than {}"),
    "allowed": RuleEntry(
        reads=tuple[Text, ...],
        what="The only accepted values.",
        reports="rule_allowed",
        message="is not an allowed value",
        refuses=lambda value, allowed: value not in allowed,
        test=Test.OTHER,
        is_relaxed=operator.gt,
    ),
    "pattern": RuleEntry(
        reads=str,
        what="A regular expression of RE2 that the whole text must match.",
        reports="rule_pattern",
        message="does not match the pattern",
        refuses=lambda text, pattern: not matches(pattern, text),
        test=Test.NO_MATCH,
        about="text",
        fault=fault_of,
    ),
    "min_length": _end(
        Test.LESS, "The minimum number of characters.", "rule_length", "is shorter than {}", "max_length", of="length"
    ),
    "max_length": _end(Test.MORE, "The maximum number of characters.", "rule_length", "is longer than {}", of="length"),
}


def reasons() -> list[str]:
    """Every reason an error table can give."""
    return [*Rule, *dict.fromkeys(entry.reports for entry in RULES.values())]


def is_refused(name: str, limit: Any, text: str, value: Any) -> bool:
    """Whether a text with this value breaks a limit, given as what it is compared by."""
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
