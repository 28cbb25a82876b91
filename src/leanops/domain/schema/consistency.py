"""Members of a schema file that contradict each other; they are checked even where other members are broken."""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from leanops.domain.payload.columns import plain_name
from leanops.domain.payload.paths import segments_of
from leanops.domain.problems import Code, Problem, quoted
from leanops.domain.schema import parse
from leanops.domain.schema.casts import DateFormat
from leanops.domain.schema.document import step
from leanops.domain.schema.parse import DEFAULT_KEY_PATH, did_you_mean, path_from_text, type_from_text
from leanops.domain.schema.regex import HINT as PATTERN_HINT
from leanops.domain.schema.rules import RULES, compared_by, is_refused, leaves_room
from leanops.domain.schema.types import TEXT, TYPES, ColumnType, column_value, limit_value, type_from_iceberg
from leanops.domain.table.definitions import (
    CURATED,
    RESERVED_TABLES,
    STANDARDIZED_SYSTEM_COLUMNS,
    is_engine_name,
)

_KEYS = {"idempotency_key": "key", "version": "version", "period": "period"}

Limits = dict[str, Any]


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
        """Whether this column holds the value at the path."""
        return self.path == path if self.has_path else self.name == plain_name(path)

    def reads_like(self, other: "Draft") -> bool:
        """Whether two columns hold one value."""
        return (self.path is not None and other.reads(self.path)) or (other.path is not None and self.reads(other.path))


def contradictions_in(value: Any, broken: set[str], *, is_kept: bool = False) -> Iterator[Problem]:
    """All that does not go together, judged by the members whose pointers are not among the broken."""
    if not isinstance(value, dict):
        return
    file = {name: _sound(member, broken, step("", name)) for name, member in value.items()}
    columns = file.get("payload_columns") or []
    drafts = [_draft(at, column or {}, value["payload_columns"][at]) for at, column in enumerate(columns)]
    if file.get("table_name") in RESERVED_TABLES:
        reserved = f"{quoted(file['table_name'])} is a table of Lean-Ops"
        yield Problem(Code.RESERVED_NAME, "/table_name", reserved, "choose another name")
    yield from _envelope(file.get("envelope_columns") or [])
    for draft in drafts:
        yield from _column(_without_patterns(draft) if is_kept else draft)
        if not is_kept:
            yield from _reserved_name(draft)
    yield from _named_twice(drafts)
    yield from _measures(file.get("measures") or [], drafts)
    keys = file.get("keys") or {}
    # A key path that is there and broken is not the default one.
    is_default = isinstance(value.get("keys", {}), dict) and "idempotency_key" not in value.get("keys", {})
    paths = {"idempotency_key": DEFAULT_KEY_PATH} if is_default else {}
    paths |= {name: path_from_text(keys[name]) for name in _KEYS if keys.get(name) is not None}
    yield from _keys(paths)
    if keys.get("version_format") is not None and "version" not in keys:
        message = "version_format is set without keys.version"
        yield Problem(Code.CONTRADICTION, "/keys/version_format", message, "set keys.version, or leave it out")
    yield from _collisions(paths, drafts)
    yield from _in_clear(paths, keys, drafts)


def _sound(value: Any, broken: set[str], pointer: str) -> Any:
    """The value without its broken members, which become None as if they were left out."""
    if pointer in broken:
        return None
    if isinstance(value, dict):
        return {name: _sound(member, broken, step(pointer, name)) for name, member in value.items()}
    if isinstance(value, list):
        return [_sound(member, broken, step(pointer, at)) for at, member in enumerate(value)]
    return value


def _draft(at: int, sound: Mapping[str, Any], written: Any) -> Draft:
    """A column from its sound members; what the file has written shows which of the others are broken."""
    limits = sound.get("rules") or {}
    path, kind, default, form = (sound.get(name) for name in ("path", "type", "default", "format"))
    is_form_broken = form is None and isinstance(written, dict) and written.get("format") is not None
    return Draft(
        pointer=f"/payload_columns/{at}",
        name=sound.get("name"),
        path=None if path is None else path_from_text(path),
        has_path=isinstance(written, dict) and written.get("path") is not None,
        type=None if kind is None else type_from_text(kind),
        format=None if is_form_broken else DateFormat(form or DateFormat.ISO),
        default=None if default is None else parse.text_from_scalar(default),
        cde=sound.get("cde") is True,
        pii=sound.get("pii"),
        rules={name: _limit(name, limits[name]) for name in RULES if limits.get(name) is not None},
    )


def _limit(rule: str, value: Any) -> Any:
    """The limit of a rule as the model has it; broken ones of many are None."""
    if isinstance(value, list):
        return tuple(None if limit is None else _limit(rule, limit) for limit in value)
    return parse.whole(value) if RULES[rule].about == "length" else parse.text_from_scalar(value)


def _column(draft: Draft) -> Iterator[Problem]:
    """All that is wrong with a column in itself."""
    limits = yield from _limits(draft)
    if draft.type is not None:
        yield from _typed(draft, draft.type)
        yield from _allowed(draft, draft.type, limits)
        yield from _default(draft, draft.type, limits)


def _without_patterns(draft: Draft) -> Draft:
    """A column of a file that was deployed under another grammar of patterns: what they say now was not asked then."""
    return replace(draft, rules={name: limit for name, limit in draft.rules.items() if RULES[name].about != "text"})


def _reserved_name(draft: Draft) -> Iterator[Problem]:
    """A name that is ours or the engines'; apart, for a file deployed before a name was reserved stays readable."""
    is_ours = draft.name in CURATED.columns
    if draft.name is not None and (is_ours or is_engine_name(draft.name)):
        why = "a system column" if is_ours else "a name that Iceberg and Spark keep for themselves"
        message = f"{quoted(draft.name)} is {why}"
        yield Problem(Code.RESERVED_NAME, f"{draft.pointer}/name", message, "choose another name")


def _typed(draft: Draft, kind: ColumnType) -> Iterator[Problem]:
    if draft.format is not None and draft.format not in kind.entry.formats:
        message = f"{quoted(draft.format.value)} does not go with {kind}"
        wanted = next(name for name, entry in TYPES.items() if draft.format in entry.formats)
        yield Problem(Code.BAD_FORMAT, f"{draft.pointer}/format", message, f"leave it out, or make the type {wanted}")
    if draft.pii in ("hmac", "mask") and kind != TEXT:
        message = f"{quoted(draft.pii)} produces text, but the type is {kind}"
        yield Problem(
            Code.PII_NEEDS_STRING, f"{draft.pointer}/pii", message, 'make the type STRING, or set pii to "drop"'
        )


def _limits(draft: Draft) -> Generator[Problem, None, Limits]:
    """Yields what is wrong with the rules themselves; gives what the sound ones are compared by."""
    kind, limits = draft.type, Limits()
    for name, limit in draft.rules.items():
        entry, pointer = RULES[name], f"{draft.pointer}/rules/{name}"
        if kind is not None and not entry.goes_with(kind.entry):
            yield Problem(Code.CONTRADICTION, pointer, f"{name} does not go with {kind}", "take it out")
        elif fault := entry.fault(limit):
            yield Problem(Code.BAD_PATTERN, pointer, f"{quoted(str(limit))} {fault}", PATTERN_HINT)
        elif entry.about != "value":
            limits[name] = limit
        elif kind is not None:
            yield from _bad_limits(pointer, limit, kind)
            limits[name] = compared_by(name, limit, kind)
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    for name in list(limits):
        other, of = RULES[name].up_to, kind if RULES[name].about == "value" else None
        if other in limits and not leaves_room(limits[name], limits[other], of):
            ends = f"{name} {quoted(str(draft.rules[name]))} and {other} {quoted(str(draft.rules[other]))}"
            message = f"no {of or 'length'} is between {ends}"
            yield Problem(Code.CONTRADICTION, f"{draft.pointer}/rules/{name}", message, f"lower it, or raise {other}")
            # No value can meet both, so none is compared with them.
            del limits[name], limits[other]
    return limits


def _listed(pointer: str, limit: Any) -> Iterator[tuple[str, str]]:
    """The texts of a limit, each with its pointer; broken ones are left out."""
    texts = enumerate(limit) if isinstance(limit, tuple) else [("", limit)]
    return ((f"{pointer}/{at}".rstrip("/"), text) for at, text in texts if text is not None)


def _bad_limits(pointer: str, limit: Any, kind: ColumnType) -> Iterator[Problem]:
    for place, text in _listed(pointer, limit):
        if limit_value(text, kind) is None:
            yield Problem(
                Code.BAD_LIMIT, place, f"{quoted(text)} is not a valid {kind.name}", f"write {kind.entry.like}"
            )


def _allowed(draft: Draft, kind: ColumnType, limits: Limits) -> Iterator[Problem]:
    # Only a text is allowed as it is written: a number may arrive as 007.
    asked = {name: limit for name, limit in limits.items() if kind == TEXT or RULES[name].about == "value"}
    for pointer, text in _listed(f"{draft.pointer}/rules/allowed", draft.rules.get("allowed")):
        for message in _broken(draft, asked, text, limit_value(text, kind)):
            yield Problem(Code.CONTRADICTION, pointer, message, "take it out, or relax the other rule")


def _default(draft: Draft, kind: ColumnType, limits: Limits) -> Iterator[Problem]:
    text, form, pointer = draft.default, draft.format, f"{draft.pointer}/default"
    if text is None or form not in kind.entry.formats:
        return
    value = column_value(text, kind, form)
    if draft.cde and not re.search(r"\S", text, re.ASCII):
        message = "is blank, and the column is critical"
        yield Problem(Code.CONTRADICTION, pointer, message, "write a value that is not blank")
    elif value is None:
        like = kind.entry.like if form == DateFormat.ISO else f"it in the format {form.value}"
        yield Problem(Code.BAD_DEFAULT, pointer, f"{quoted(text)} is not a valid {kind}", f"write {like}")
    else:
        for message in _broken(draft, limits, text, value):
            yield Problem(Code.CONTRADICTION, pointer, message, "change the default, or relax the rule")


def _broken(draft: Draft, limits: Limits, text: str, value: Any) -> Iterator[str]:
    """Messages for the rules that a text of the file breaks; none where the text has no value."""
    for name, limit in limits.items():
        if value is not None and is_refused(name, limit, text, value):
            yield f"{quoted(text)} {RULES[name].message.format(quoted(str(draft.rules[name])))}"


def _envelope(columns: Sequence[Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for at, column in enumerate(columns):
        pointer, name, kind = f"/envelope_columns/{at}", (column or {}).get("name"), (column or {}).get("type")
        if name is None:
            continue
        if name not in CURATED.columns:
            message = f"{quoted(name)} is not a system column"
            yield Problem(Code.ENVELOPE_UNKNOWN, f"{pointer}/name", message, did_you_mean(name, CURATED.columns))
            continue
        if name in seen:
            yield Problem(Code.REPEATED, f"{pointer}/name", f"{quoted(name)} is named twice", "name it once")
        seen.add(name)
        real = CURATED.columns[name]
        if kind is not None and type_from_text(kind).iceberg != real:
            message = f"{name} is not {type_from_text(kind)}"
            yield Problem(Code.ENVELOPE_TYPE, f"{pointer}/type", message, f"write {type_from_iceberg(real)}")


def _named_twice(drafts: Sequence[Draft]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for draft in drafts:
        if draft.name is None:
            continue
        if draft.name in seen:
            message = f"{quoted(draft.name)} is the name of {seen[draft.name]} too"
            yield Problem(Code.COLUMN_TWICE, f"{draft.pointer}/name", message, "give one of the two another name")
        seen.setdefault(draft.name, draft.pointer)


def _measures(measures: Sequence[Any], drafts: Sequence[Draft]) -> Iterator[Problem]:
    named = {draft.name: draft for draft in drafts if draft.name is not None}
    # A column whose name is broken may be the one that is meant.
    can_tell = all(draft.name is not None for draft in drafts)
    for at, name in enumerate(measures):
        pointer = f"/measures/{at}"
        if name is None:
            continue
        if name in measures[:at]:
            yield Problem(Code.REPEATED, pointer, f"{quoted(name)} is named twice", "name it once")
        elif name not in named and can_tell:
            hint = did_you_mean(name, named)
            yield Problem(Code.MEASURE_UNKNOWN, pointer, f"there is no column {quoted(name)}", hint)
        elif name in named:
            yield from _measure(pointer, named[name])


def _measure(pointer: str, draft: Draft) -> Iterator[Problem]:
    if draft.pii is not None:
        message = f"{draft.name} is PII, and its totals would show it"
        yield Problem(Code.PII_AS_MEASURE, pointer, message, "take it out of the measures, or remove its pii")
    elif draft.type is not None and draft.type.entry.numbers is None:
        message = f"{draft.name} is {draft.type}, which has no total"
        yield Problem(Code.MEASURE_NOT_NUMBER, pointer, message, "give it a numeric type, or take it out")


def _keys(paths: Mapping[str, str]) -> Iterator[Problem]:
    """Key, version and period hold different things, so they have different paths."""
    for (other, first), (name, second) in combinations(paths.items(), 2):
        shorter, longer = sorted((segments_of(first), segments_of(second)), key=len)
        if longer[: len(shorter)] == shorter:
            message = f"{quoted(second)} is the path of the {_KEYS[other]}, or overlaps it"
            hint = f"name another path for the {_KEYS[name]}, or leave it out"
            yield Problem(Code.KEY_CONFLICT, f"/keys/{name}", message, hint)


def _in_clear(paths: Mapping[str, str], keys: Mapping[str, Any], drafts: Sequence[Draft]) -> Iterator[Problem]:
    """Values that are PII in one column and plain text elsewhere."""
    sealed = [draft for draft in drafts if draft.pii is not None]
    for name, path in paths.items():
        holder = next((draft for draft in sealed if draft.reads(path)), None)
        if holder is None or (name == "idempotency_key" and keys.get("pii") is not None):
            continue
        pointer = f"/keys/{name}" if name in keys else f"{holder.pointer}/pii"
        message = f"the path of the {_KEYS[name]} is PII in {holder.pointer} and would be in plain text"
        hint = 'set keys.pii to "hmac"' if name == "idempotency_key" else "name another path"
        yield Problem(Code.PII_KEY_IN_CLEAR, pointer, message, f"{hint}, or remove the column's pii")
    key = paths.get("idempotency_key") if keys.get("pii") is not None else None
    for draft in drafts:
        if draft.pii is not None:
            continue
        holders = [other.pointer for other in sealed if draft.reads_like(other)]
        holders += ["/keys"] if key is not None and draft.reads(key) else []
        if holders:
            message = f"holds what is PII in {holders[0]}, and would show it in plain text"
            where = "path" if draft.has_path else "name"
            yield Problem(Code.PII_IN_CLEAR, f"{draft.pointer}/{where}", message, "give this column its pii too")


def _collisions(paths: Mapping[str, str], drafts: Sequence[Draft]) -> Iterator[Problem]:
    """Paths that ask for one Standardized name; the later one would get a name that nobody can guess."""
    named: dict[str, tuple[str, str]] = {}
    places = [(f"/keys/{name}", path) for name, path in paths.items()]
    places += [(f"{draft.pointer}/path", draft.path) for draft in drafts if draft.path is not None]
    for pointer, path in places:
        first_pointer, first = named.setdefault(plain_name(path), (pointer, path))
        if path != first:
            message = f"{quoted(path)} and {quoted(first)} of {first_pointer} are both {quoted(plain_name(path))}"
            yield Problem(Code.COLLISION, pointer, message, "keep one of the two paths in the schema")
    for draft in drafts:
        if not draft.has_path and draft.name in STANDARDIZED_SYSTEM_COLUMNS and draft.name not in CURATED.columns:
            message = f"without a path it would read the system column {quoted(draft.name)}"
            yield Problem(Code.COLLISION, f"{draft.pointer}/name", message, "give the column a path")
