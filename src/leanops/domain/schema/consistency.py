"""What does not go together in a schema file, found also where other members are broken."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from leanops.domain.payload.columns import plain_name
from leanops.domain.payload.paths import segments_of
from leanops.domain.problems import Code, Problem, quoted
from leanops.domain.schema.document import step
from leanops.domain.schema.parse import DEFAULT_KEY_PATH, path_from_text, text_from_scalar, type_from_text
from leanops.domain.schema.rules import Draft, column_problems, reserved_name
from leanops.domain.schema.structure import did_you_mean
from leanops.domain.schema.types import DateFormat, iceberg_type
from leanops.domain.table.definitions import CURATED, RESERVED_TABLES, STANDARDIZED_SYSTEM_COLUMNS

_KEYS = {"idempotency_key": "key", "version": "version", "period": "period"}


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
        yield from column_problems(draft)
        if not is_kept:
            yield from reserved_name(draft)
    yield from _named_twice(drafts)
    yield from _measures(file.get("measures") or [], drafts)
    keys = file.get("keys") or {}
    # A key path that is there and broken is not the default one.
    is_default = isinstance(value.get("keys", {}), dict) and "idempotency_key" not in value.get("keys", {})
    paths = {"idempotency_key": DEFAULT_KEY_PATH} if is_default else {}
    paths |= {name: path_from_text(keys[name]) for name in _KEYS if keys.get(name) is not None}
    yield from _keys(paths)
    yield from _version_format(keys)
    yield from _collisions(paths, drafts)
    yield from _in_clear(paths, keys, drafts)


def _sound(value: Any, broken: set[str], pointer: str) -> Any:
    """The value without its broken members, which become None as if they were left out."""
    if pointer in broken:
        return None
    if isinstance(value, dict):
        return {name: _sound(one, broken, step(pointer, name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_sound(one, broken, step(pointer, at)) for at, one in enumerate(value)]
    return value


def _draft(at: int, sound: Mapping[str, Any], said: Any) -> Draft:
    path, kind, default, form = (sound.get(name) for name in ("path", "type", "default", "format"))
    is_form_broken = form is None and isinstance(said, dict) and said.get("format") is not None
    return Draft(
        pointer=f"/payload_columns/{at}",
        name=sound.get("name"),
        path=None if path is None else path_from_text(path),
        has_path=isinstance(said, dict) and said.get("path") is not None,
        type=None if kind is None else type_from_text(kind),
        format=None if is_form_broken else DateFormat(form or DateFormat.ISO),
        default=None if default is None else text_from_scalar(default),
        cde=sound.get("cde") is True,
        pii=sound.get("pii"),
        rules={name: rule for name, rule in (sound.get("rules") or {}).items() if rule is not None},
    )


def _envelope(columns: Sequence[Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for at, column in enumerate(columns):
        pointer, name, kind = f"/envelope_columns/{at}", (column or {}).get("name"), (column or {}).get("type")
        if name is None:
            continue
        if name not in CURATED.columns:
            message = f"{quoted(name)} is no system column"
            yield Problem(Code.ENVELOPE_UNKNOWN, f"{pointer}/name", message, did_you_mean(name, CURATED.columns))
            continue
        if name in seen:
            yield Problem(Code.REPEATED, f"{pointer}/name", f"{quoted(name)} is named twice", "name it once")
        seen.add(name)
        real = CURATED.columns[name]
        if kind is not None and iceberg_type(type_from_text(kind)) != real:
            names = {"string": "STRING", "long": "BIGINT", "int": "INT", "timestamptz": "TIMESTAMP"}
            written = names.get(real, real.upper())
            message = f"{name} is no {type_from_text(kind)}"
            yield Problem(Code.ENVELOPE_TYPE, f"{pointer}/type", message, f"write {written}")


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
    can_tell = len([draft for draft in drafts if draft.name is not None]) == len(drafts)
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
        yield Problem(Code.PII_AS_MEASURE, pointer, message, "take it out of the measures, or its pii away")
    elif draft.type is not None and not draft.type.is_number:
        message = f"{draft.name} is {draft.type}, which has no total"
        yield Problem(Code.MEASURE_NOT_NUMBER, pointer, message, "give it a type of numbers, or take it out")


def _keys(paths: Mapping[str, str]) -> Iterator[Problem]:
    """Key, version and period hold different things, so they stand at different places."""
    for (_, first), (name, second) in combinations(paths.items(), 2):
        shorter, longer = sorted((segments_of(first), segments_of(second)), key=len)
        if longer[: len(shorter)] == shorter:
            other = _KEYS[next(known for known, path in paths.items() if path == first)]
            message = f"{quoted(second)} is, or lies in, the path of the {other}"
            hint = f"name another path for the {_KEYS[name]}, or leave it out"
            yield Problem(Code.KEY_CONFLICT, f"/keys/{name}", message, hint)


def _version_format(keys: Mapping[str, Any]) -> Iterator[Problem]:
    if keys.get("version_format") is not None and "version" not in keys:
        message = "there is a format, and no path of the version"
        yield Problem(Code.CONTRADICTION, "/keys/version_format", message, "name keys.version, or leave it out")


def _in_clear(paths: Mapping[str, str], keys: Mapping[str, Any], drafts: Sequence[Draft]) -> Iterator[Problem]:
    """Values that are PII in one column and stand in clear elsewhere."""
    sealed = [draft for draft in drafts if draft.pii is not None]
    for name, path in paths.items():
        holder = next((draft for draft in sealed if draft.reads(path)), None)
        if holder is None or (name == "idempotency_key" and keys.get("pii") is not None):
            continue
        pointer = f"/keys/{name}" if name in keys else f"{holder.pointer}/pii"
        message = f"the path of the {_KEYS[name]} is PII in {holder.pointer} and would stand in clear"
        hint = 'set keys.pii to "hmac"' if name == "idempotency_key" else "name another path"
        yield Problem(Code.PII_KEY_IN_CLEAR, pointer, message, f"{hint}, or take the column's pii away")
    key = paths.get("idempotency_key") if keys.get("pii") is not None else None
    for draft in drafts:
        if draft.pii is not None:
            continue
        holders = [one.pointer for one in sealed if draft.reads_like(one)]
        holders += ["/keys"] if key is not None and draft.reads(key) else []
        if holders:
            message = f"holds what is PII in {holders[0]}, and would show it in clear"
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
