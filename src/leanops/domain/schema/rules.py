"""One column of a schema file: whether its type, format, default, rules and mask go together."""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from leanops.domain.payload.columns import plain_name
from leanops.domain.problems import Code, Problem, quoted
from leanops.domain.schema.parse import text_from_scalar, whole
from leanops.domain.schema.regex import fault_of, surely_refuses
from leanops.domain.schema.types import ColumnType, DateFormat, TypeName, column_value, leaves_room, limit_value
from leanops.domain.table.definitions import CURATED_SYSTEM_COLUMNS, is_engine_name

_LIKE = {
    TypeName.INT: "a number like 7",
    TypeName.BIGINT: "a number like 7",
    TypeName.DECIMAL: "a number like 7.50",
    TypeName.DOUBLE: "a number like 7.5",
    TypeName.BOOLEAN: "true or false",
    TypeName.DATE: "a day like 2026-01-31",
    TypeName.TIMESTAMP: "a time like 2026-01-31T12:00:00Z",
}
_EPOCHS = (DateFormat.EPOCH_SECONDS, DateFormat.EPOCH_MILLIS)

Limits = dict[str, tuple[str, Any]]


@dataclass(frozen=True)
class Draft:
    """A column as far as it can be read: what is broken or left out is None."""

    pointer: str
    name: str | None
    path: str | None
    has_path: bool
    """Whether the file gives a path, sound or not."""
    type: ColumnType | None
    format: DateFormat | None
    default: str | None
    cde: bool
    pii: str | None
    rules: Mapping[str, Any]

    def reads(self, path: str) -> bool:
        """Whether this column holds what stands at the path."""
        return self.path == path if self.has_path else self.name == plain_name(path)

    def reads_like(self, other: "Draft") -> bool:
        """Whether two columns hold one value."""
        return (self.path is not None and other.reads(self.path)) or (other.path is not None and self.reads(other.path))


@dataclass(frozen=True)
class _Check:
    """A rule that a text can be held against."""

    says: str
    refuses: Callable[[str, Any], bool]
    """Takes a text, and what it is compared by."""


def column_problems(draft: Draft) -> Iterator[Problem]:
    """All that is wrong with a column in itself."""
    least, most = _lengths(draft)
    pattern = draft.rules.get("pattern")
    fault = None if pattern is None else fault_of(pattern, most)
    if fault:
        message = f"{quoted(str(pattern))} {fault.why}"
        code = Code.SLOW_PATTERN if fault.is_slow else Code.BAD_PATTERN
        yield Problem(code, f"{draft.pointer}/rules/pattern", message, fault.hint)
    if least is not None and most is not None and least > most:
        message = f"min_length {least} is more than max_length {most}"
        yield Problem(Code.CONTRADICTION, f"{draft.pointer}/rules/min_length", message, "lower it, or raise max_length")
    if draft.type is not None:
        yield from _typed(draft, draft.type)
        bounds = list(_bounds((yield from _limits(draft, draft.type))))
        checks = [*bounds, *_text_checks(draft, None if fault else pattern)]
        # Only a text is allowed as it is written: a number may arrive as 007.
        yield from _allowed(draft, draft.type, checks if draft.type.name == TypeName.STRING else bounds)
        yield from _default(draft, draft.type, checks)


def reserved_name(draft: Draft) -> Iterator[Problem]:
    """A name that is ours or the engines'; apart, for a file deployed before a name was reserved stays readable."""
    is_ours = draft.name in CURATED_SYSTEM_COLUMNS
    if draft.name is not None and (is_ours or is_engine_name(draft.name)):
        why = "a system column" if is_ours else "a name that Iceberg and Spark keep for themselves"
        message = f"{quoted(draft.name)} is {why}"
        yield Problem(Code.RESERVED_NAME, f"{draft.pointer}/name", message, "choose another name")


def _typed(draft: Draft, kind: ColumnType) -> Iterator[Problem]:
    if draft.format is not None and not draft.format.goes_with(kind):
        message = f"{quoted(draft.format.value)} does not go with {kind}"
        wanted = "TIMESTAMP" if draft.format in _EPOCHS else "DATE"
        yield Problem(Code.BAD_FORMAT, f"{draft.pointer}/format", message, f"leave it out, or make the type {wanted}")
    if draft.pii in ("hmac", "mask") and kind.name != TypeName.STRING:
        message = f"{quoted(draft.pii)} makes a text, and the type is {kind}"
        yield Problem(Code.PII_NEEDS_STRING, f"{draft.pointer}/pii", message, "make the type STRING, or pii drop")


def _limits(draft: Draft, kind: ColumnType) -> Generator[Problem, None, Limits]:
    """Yields what is wrong with min and max; gives the sound ones by name, with what they are compared by."""
    limits: Limits = {}
    for name in ("min", "max"):
        if name not in draft.rules:
            continue
        text = text_from_scalar(draft.rules[name])
        value = limit_value(text, kind)
        if value is None:
            yield _bad_limit(f"{draft.pointer}/rules/{name}", text, kind)
        else:
            limits[name] = text, value
    if len(limits) == 2 and not leaves_room(limits["min"][1], limits["max"][1], kind):
        message = f"no {kind} lies between min {quoted(limits['min'][0])} and max {quoted(limits['max'][0])}"
        yield Problem(Code.CONTRADICTION, f"{draft.pointer}/rules/min", message, "lower it, or raise max")
        return {}
    return limits


def _bad_limit(pointer: str, text: str, kind: ColumnType) -> Problem:
    return Problem(Code.BAD_LIMIT, pointer, f"{quoted(text)} is no {kind.name.value}", f"write {_LIKE[kind.name]}")


def _bounds(limits: Limits) -> Iterator[_Check]:
    if "min" in limits:
        text, low = limits["min"]
        yield _Check(f"less than min {quoted(text)}", lambda _, value: value < low)
    if "max" in limits:
        text, high = limits["max"]
        yield _Check(f"more than max {quoted(text)}", lambda _, value: value > high)


def _text_checks(draft: Draft, pattern: str | None) -> Iterator[_Check]:
    """Lengths and pattern, which are about the text as it arrives."""
    least, most = _lengths(draft)
    if least is not None and (most is None or least <= most):
        yield _Check(f"shorter than min_length {least}", lambda text, _: len(text) < least)
    if most is not None and (least is None or least <= most):
        yield _Check(f"longer than max_length {most}", lambda text, _: len(text) > most)
    if pattern is not None:
        yield _Check(f"no match for the pattern {quoted(pattern)}", lambda text, _: surely_refuses(pattern, text))


def _lengths(draft: Draft) -> tuple[int | None, int | None]:
    least, most = (draft.rules.get(name) for name in ("min_length", "max_length"))
    return None if least is None else whole(least), None if most is None else whole(most)


def _allowed(draft: Draft, kind: ColumnType, checks: list[_Check]) -> Iterator[Problem]:
    for at, scalar in enumerate(draft.rules.get("allowed") or ()):
        if scalar is None:
            continue
        pointer, text = f"{draft.pointer}/rules/allowed/{at}", text_from_scalar(scalar)
        value = limit_value(text, kind)
        if value is None:
            yield _bad_limit(pointer, text, kind)
            continue
        for check in checks:
            if check.refuses(text, value):
                message = f"{quoted(text)} is {check.says}"
                yield Problem(Code.CONTRADICTION, pointer, message, "take it out, or relax the other rule")


def _default(draft: Draft, kind: ColumnType, checks: list[_Check]) -> Iterator[Problem]:
    text, form = draft.default, draft.format
    if text is None or form is None or not form.goes_with(kind):
        return
    pointer = f"{draft.pointer}/default"
    if draft.cde and not re.search(r"\S", text, re.ASCII):
        yield Problem(
            Code.CONTRADICTION, pointer, "is blank, and the column is critical", "write a value that is not blank"
        )
        return
    value = column_value(text, kind, form)
    if value is None:
        like = _LIKE[kind.name] if form == DateFormat.ISO else f"it in the format {form.value}"
        yield Problem(Code.BAD_DEFAULT, pointer, f"{quoted(text)} is no {kind}", f"write {like}")
        return
    broken = [check.says for check in checks if check.refuses(text, value)]
    if _is_other(value, draft, kind):
        broken.append("none of the allowed values")
    for says in broken:
        yield Problem(Code.CONTRADICTION, pointer, f"{quoted(text)} is {says}", "change the default, or relax the rule")


def _is_other(value: Any, draft: Draft, kind: ColumnType) -> bool:
    """Whether a default is surely not among the allowed values."""
    allowed = draft.rules.get("allowed")
    if allowed is None or None in allowed:
        return False
    known = [limit_value(text_from_scalar(scalar), kind) for scalar in allowed]
    return None not in known and value not in known
