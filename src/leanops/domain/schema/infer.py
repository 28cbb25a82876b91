"""A first schema from what events held: types that hold for every value seen, likely keys, critical values and PII."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leanops.domain.payload.columns import LONGEST_NAME, plain_name, register
from leanops.domain.payload.flatten import ARRAY, BOOLEAN, NUMBER, STRING, Kind
from leanops.domain.payload.paths import segments_of
from leanops.domain.schema.casts import DateFormat
from leanops.domain.schema.parse import DEFAULT_KEY_PATH, DEFAULT_PERIOD_PATHS
from leanops.domain.schema.types import TEXT, TYPES, ColumnType
from leanops.domain.table.definitions import CURATED_SYSTEM_COLUMNS, is_engine_name
from leanops.domain.words import counted

SCALES = (2, 4, 6, 10, 18)
"""Decimals a DECIMAL may get; a number that needs more is a DOUBLE."""
SHAPES = ("email", "phone", "iban", "card")
ENOUGH = 10
"""With fewer events nothing is taken to be always there."""
MOST_COLUMNS = 1_000
# A file with paths of this many characters, and with the notes and descriptions, is one that lint takes.
_MOST_TEXT = 200_000
_MOST_NOTES = 20
_MOST = 0.99
_NEARLY_UNIQUE = 0.8
_NEARLY = 0.9
_FEW_DIGITS = 8
_ROOM = 4
_DATE, _TIMESTAMP = ColumnType("DATE"), ColumnType("TIMESTAMP")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True)
class Seen:
    """What the events held under one path; `holds` counts the values each candidate takes."""

    path: str
    kinds: frozenset[Kind]
    events: int
    blank: int = 0
    distinct: int = 0
    longest: int = 0
    leading_zeros: int = 0
    holds: Mapping[str, int] = field(default_factory=dict)
    digits: int = 0
    """Digits before the point of the greatest number."""
    least: int | None = None
    greatest: int | None = None
    """Of whole numbers."""

    def all_hold(self, candidate: str) -> bool:
        return self.events > 0 and self.holds.get(candidate, 0) == self.events

    def all_are(self, kind: ColumnType, form: DateFormat = DateFormat.ISO) -> bool:
        """Whether a type takes every value."""
        return self.all_hold(candidate(kind, form))


def candidates() -> dict[str, tuple[ColumnType, DateFormat]]:
    """What is tried on every value: the types of the table that are inferred, in each of their scales and formats."""
    kinds = [
        ColumnType(name, *digits)
        for name, entry in TYPES.items()
        for digits in ([(38, scale) for scale in (0, *SCALES)] if entry.has_scale else [()])
        if entry.inferred_from
    ]
    return {candidate(kind, form): (kind, form) for kind in kinds for form in kind.entry.formats}


def candidate(kind: ColumnType, form: DateFormat = DateFormat.ISO) -> str:
    """The name under which the values that a type takes are counted."""
    scale = [str(kind.scale)] if kind.precision else []
    return "_".join([kind.name, *scale, *([] if form == DateFormat.ISO else [form.name])]).lower()


@dataclass(frozen=True)
class Guess:
    """A type with the format it needs, and what speaks for it."""

    type: ColumnType
    reason: str
    format: DateFormat = DateFormat.ISO


@dataclass(frozen=True)
class InferredColumn:
    """A column of the proposed schema."""

    name: str
    path: str
    type: ColumnType
    format: DateFormat
    cde: bool
    pii: str | None
    events: int
    reason: str

    def definition(self) -> dict[str, Any]:
        """The column as a schema file writes it, without what is the default."""
        column: dict[str, Any] = {"name": self.name, "path": self.path, "type": str(self.type)}
        column |= {"cde": True} if self.cde else {}
        column |= {"pii": self.pii} if self.pii else {}
        column |= {"format": self.format.value} if self.format != DateFormat.ISO else {}
        return {**column, "description": self.reason}


@dataclass(frozen=True)
class Proposal:
    """Columns and keys, and what a person should look at."""

    columns: tuple[InferredColumn, ...]
    keys: Mapping[str, str]
    notes: tuple[str, ...]


def propose(seen: Sequence[Seen], events: int, keyed: int) -> Proposal:
    """A schema for events of which `keyed` have a usable key at the default path or in their envelope."""
    filled = [leaf for leaf in seen if leaf.events]
    keys, notes = _key(filled, events, keyed)
    key = keys.get("idempotency_key", DEFAULT_KEY_PATH)
    values, clashing = _apart(filled, key)
    keys |= _version_and_period(values, events, key)
    common, rare = _commonest(values)
    system = {f"the system's {name}": name for name in CURATED_SYSTEM_COLUMNS}
    names = register(system, [leaf.path for leaf in common])
    # A schema has at least one column, if only the key.
    wanted = [leaf for leaf in common if leaf.path != DEFAULT_KEY_PATH] or common
    columns = [_column(leaf, _allowed(names[leaf.path]), events) for leaf in wanted]
    if keys.get("pii"):
        columns = [replace(column, pii="hmac") if column.path == key else column for column in columns]
    return Proposal(tuple(columns), keys, (*notes, *clashing, *rare))


def _allowed(name: str) -> str:
    """A name for Curated: one that begins like a name of the engines gets a letter in front."""
    return f"x{name[1 - LONGEST_NAME :]}" if is_engine_name(name) else name


def _apart(seen: Sequence[Seen], key: str) -> tuple[list[Seen], list[str]]:
    """Of paths that would share a column's name, the key or the one most events have; a schema takes no other."""
    by_name: dict[str, list[Seen]] = {}
    for leaf in seen:
        by_name.setdefault(plain_name(leaf.path), []).append(leaf)
    kept = {name: max(group, key=lambda leaf: leaf.events).path for name, group in by_name.items()}
    kept[plain_name(key)] = key
    left = [leaf for leaf in seen if kept[plain_name(leaf.path)] != leaf.path]
    notes = [f"left out: {leaf.path}, because {kept[plain_name(leaf.path)]} has the same name" for leaf in left]
    more = len(notes) - _MOST_NOTES
    notes[_MOST_NOTES:] = [f"left out: {counted(more, 'more path')} with the name of another"] if more > 0 else []
    return [leaf for leaf in seen if kept[plain_name(leaf.path)] == leaf.path], notes


def _commonest(seen: Sequence[Seen]) -> tuple[list[Seen], list[str]]:
    """The paths most events have, up to what a file can hold."""
    kept: set[str] = set()
    room = _MOST_TEXT
    for leaf in sorted(seen, key=lambda leaf: (-leaf.events, len(leaf.path), leaf.path)):
        room -= len(leaf.path)
        if len(kept) == MOST_COLUMNS or room < 0:
            break
        kept.add(leaf.path)
    left = len(seen) - len(kept)
    notes = [f"left out: {counted(left, 'path')} with the fewest events"] if left else []
    return [leaf for leaf in seen if leaf.path in kept], notes


def _column(seen: Seen, name: str, events: int) -> InferredColumn:
    guess, pii = guess_type(seen), guess_pii(seen)
    reasons = [guess.reason, *_nearly(seen, guess)]
    reasons.append("in all events" if seen.events == events else f"in {_percent(seen.events, events)} of events")
    if pii:
        reasons.append(f"PII by its {pii[1]}")
        if guess.type != TEXT:
            reasons.append("STRING, because only text can be masked")
            guess = Guess(TEXT, guess.reason)
    is_critical = events >= ENOUGH and seen.events == events and not seen.blank and ARRAY not in seen.kinds
    if is_critical:
        reasons.append("never missing")
    hidden, reason = pii[0] if pii else None, "; ".join(reasons)
    return InferredColumn(name, seen.path, guess.type, guess.format, is_critical, hidden, seen.events, reason)


def guess_type(seen: Seen) -> Guess:
    """The narrowest type that takes every value; what was sent as a text stays one unless it is a moment or a truth."""
    fitting = [tried for tried in candidates().values() if seen.all_are(*tried) and _is_likely(seen, *tried)]
    if not fitting:
        return Guess(TEXT, _why_text(seen))
    # Numbers that are moments are numbers too.
    kind, form = min(fitting, key=lambda tried: len(tried[0].entry.formats) == 1)
    unsure = [f", and as {also.value} too: choose one" for other, also in fitting if other == kind and also != form]
    kind = kind._replace(precision=min(kind.precision, max(18, seen.digits + _ROOM + kind.scale)))
    reason = f"{_written(kind, form)} in all {counted(seen.events, 'value')}{''.join(unsure[:1])}"
    return Guess(kind, reason, form)


_TIMES = {"at", "date", "day", "time", "timestamp", "ts", "epoch", "created", "updated", "modified", "on"}
# Seconds and milliseconds of the years 2001 to 2100.
_EPOCHS = {
    DateFormat.EPOCH_SECONDS: (1_000_000_000, 4_133_980_799),
    DateFormat.EPOCH_MILLIS: (1_000_000_000_000, 4_133_980_799_999),
}


def _is_likely(seen: Seen, kind: ColumnType, form: DateFormat) -> bool:
    """Whether values that a type takes are meant as such; epochs and compact dates look like any number."""
    if len(seen.kinds) != 1 or not seen.kinds <= kind.entry.inferred_from:
        return False
    if form in _EPOCHS or form == DateFormat.COMPACT:
        least, greatest = _EPOCHS.get(form, (-math.inf, math.inf))
        is_recent = seen.least is None or seen.greatest is None or least <= seen.least <= seen.greatest <= greatest
        return is_recent and bool(_words(seen.path) & _TIMES) and (form == DateFormat.COMPACT or seen.kinds == {NUMBER})
    return kind.name != "INT" or seen.digits <= _FEW_DIGITS


def _why_text(seen: Seen) -> str:
    if seen.kinds == {ARRAY}:
        return "arrays, as their JSON text"
    if seen.kinds == {NUMBER}:
        return f"STRING, because no number type accepts all {counted(seen.events, 'value')}"
    if seen.kinds != {STRING}:
        return f"STRING, because it is {' and '.join(sorted(seen.kinds))}"
    are_numbers = ", numbers sent as strings" if seen.all_are(ColumnType("DOUBLE")) else ""
    odd = ", some with leading zeros" if seen.leading_zeros else are_numbers
    return f"STRING of up to {seen.longest:,} characters{odd}"


def _written(kind: ColumnType, form: DateFormat) -> str:
    return f"{kind}{f' as {form.value}' if form != DateFormat.ISO else ''}"


def _nearly(seen: Seen, guess: Guess) -> list[str]:
    """The narrower type that all but a few values have."""
    names: dict[str, str] = {}
    if guess.type == TEXT:
        moments = [(_TIMESTAMP, DateFormat.ISO), *((_DATE, form) for form in _DATE.entry.formats)]
        names = {candidate(kind, form): _written(kind, form) for kind, form in moments}
        names |= {"int": "INT", "bigint": "BIGINT", "decimal_2": "DECIMAL(18,2)"} if NUMBER in seen.kinds else {}
    elif guess.type.scale > SCALES[0]:
        names = {f"decimal_{SCALES[0]}": f"{SCALES[0]} decimals"}
    for name, what in names.items():
        held = seen.holds.get(name, 0)
        if seen.events * _NEARLY <= held < seen.events:
            return [f"{what} in {_percent(held, seen.events)} of them"]
    return []


def guess_pii(seen: Seen) -> tuple[str, str] | None:
    """How a personal value should be hidden, and whether its name or its shape shows that it is one."""
    if seen.kinds == {BOOLEAN}:
        return None
    words, around = _words(segments_of(seen.path)[-1]), _words(seen.path)
    for names, how in _PERSONAL:
        if words & names and not words & _IMPERSONAL:
            return how, "name"
    is_name = "name" in words and (words & _NAME_PARTS or around & _PERSONS)
    if is_name or words & {"surname", "firstname", "lastname", "fullname", "username"}:
        return "hmac", "name"
    shape = next((shape for shape in SHAPES if seen.all_hold(f"is_{shape}")), None)
    return ("hmac" if shape == "email" else "mask", f"shape ({shape})") if shape else None


_PERSONAL = (
    ({"email", "mail"}, "hmac"),
    ({"phone", "mobile", "telephone", "fax", "iban", "pan", "msisdn"}, "mask"),
    ({"address", "street", "birth", "birthday", "birthdate", "dob", "ssn", "passport"}, "hmac"),
)
_IMPERSONAL = {"id", "count", "type", "status", "verified", "flag", "country", "ip", "at"}
_NAME_PARTS = {"first", "last", "full", "family", "given", "middle", "maiden", "sur", "user", "holder"}
_PERSONS = {
    *("customer", "user", "person", "contact", "client", "patient", "employee", "buyer", "recipient", "sender"),
    *("member", "owner", "holder", "guest", "passenger", "driver", "author"),
}


def _key(seen: Sequence[Seen], events: int, keyed: int) -> tuple[dict[str, str], list[str]]:
    """The key where it is not the default one, and whether it is personal."""
    keys, notes = {}, []
    if keyed < events * _MOST:
        key = _likely_key(seen, events)
        if key:
            keys["idempotency_key"] = key.path
            notes.append(f"key: {key.path}, about {_percent(key.distinct, events)} distinct; look at it first")
        else:
            missing = _percent(events - keyed, events)
            notes.append(f"key: {missing} of events have none, and no path looks like one; name keys.idempotency_key")
    path = keys.get("idempotency_key", DEFAULT_KEY_PATH)
    personal = next((pii[1] for leaf in seen if leaf.path == path and (pii := guess_pii(leaf))), None)
    if personal:
        keys["pii"] = "hmac"
        notes.append(f"key: PII by its {personal}, so keys.pii seals it")
    return keys, notes


def _version_and_period(seen: Sequence[Seen], events: int, key: str) -> dict[str, str]:
    """Version and period are kept in plain text, each at a path of its own."""
    keys = {}
    version = _likely_version([leaf for leaf in seen if _is_free(leaf, [key])], events)
    if version:
        keys["version"] = version.path
    period = _likely_period([leaf for leaf in seen if _is_free(leaf, [key, *keys.values()])], events)
    if period and period.path not in DEFAULT_PERIOD_PATHS:
        keys["period"] = period.path
    return keys


def _is_free(seen: Seen, taken: Sequence[str]) -> bool:
    """Whether a path is not personal, and neither equal to, nor in, nor around a path that is taken."""
    own = segments_of(seen.path)
    others = [segments_of(path) for path in taken]
    return guess_pii(seen) is None and not any(other[: len(own)] == own[: len(other)] for other in others)


def _likely_key(seen: Sequence[Seen], events: int) -> Seen | None:
    """Nearly unique, nearly always there, and named like one; the least nested first."""
    named = [
        leaf
        for leaf in seen
        if _words(segments_of(leaf.path)[-1]) & {"id", "key", "uuid", "guid", "number"}
        and leaf.kinds <= {STRING, NUMBER}
        and leaf.events >= events * _MOST
        and leaf.distinct >= leaf.events * _NEARLY_UNIQUE
    ]
    return min(named, key=lambda leaf: (len(segments_of(leaf.path)), -leaf.distinct, leaf.path), default=None)


def _likely_version(seen: Sequence[Seen], events: int) -> Seen | None:
    names = ("updated", "modified", "changed", "version")
    timely = [
        leaf for leaf in seen if leaf.kinds == {STRING} and leaf.all_are(_TIMESTAMP) and leaf.events >= events * _MOST
    ]
    for name in names:
        named = [leaf for leaf in timely if name in _words(segments_of(leaf.path)[-1])]
        if named:
            return min(named, key=lambda leaf: (len(segments_of(leaf.path)), leaf.path))
    return None


def _likely_period(seen: Sequence[Seen], events: int) -> Seen | None:
    valid = [leaf for leaf in seen if leaf.all_hold("period") and leaf.events >= events * _MOST]
    named = [leaf for leaf in valid if _words(leaf.path) & {"period", "month"}]
    return min(named, key=lambda leaf: (leaf.path not in DEFAULT_PERIOD_PATHS, len(leaf.path), leaf.path), default=None)


def _words(name: str) -> set[str]:
    """The words of a name in any of the usual spellings."""
    return {word.lower() for word in _WORD.findall(name)}


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole if whole else 0
    return f"{min(share, 99.9 if part < whole else 100):.1f} %"
