"""How a kind changes a valid event: its text, its cells, and what must become of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from leanops.emulation.events.kinds import Kind
from leanops.emulation.events.profile import KEY, PERIOD, VERSION, Form, Leaf, Profile, written
from leanops.emulation.events.texts import BROKEN, ODD, OVERSIZED

CDE_MISSING, CAST_FAILED = "cde_missing", "cast_failed"
_NEW_PATHS = ("context.tenant", "context.trace.id", "labels", "revision")
_FUTURE = "2099-01-01T00:00:00Z"
_BAD_VERSIONS = ((VERSION, _FUTURE), (VERSION, "yesterday"), (VERSION, "2026-02-30T00:00:00Z"))
_BAD_PERIODS = tuple((PERIOD, text) for text in ("2026-13", "10/2026", "1969-12", "2101-01", "soon"))
_ATTRIBUTES = '{"origin":"eu-west","note":"say \\"größe\\""}'
_ENVELOPES = ("no key", "another key", "instead of none", "instead of a blank")
"""Where the envelope of an event has a key."""
_Variant = TypeVar("_Variant")


@dataclass
class Twisted:
    """An event as it is sent, and what the ledger must know about it."""

    profile: Profile
    random: Random
    cells: list[str | None]
    variant: int | None = None
    """Which variant of its kind it is; None for any."""
    tokens: dict[int, str] = field(default_factory=dict)
    """Leaves that are written differently from their cell."""
    extra: dict[str, str] = field(default_factory=dict)
    """Cells at paths that the profile does not have, by path."""
    added: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Rule and column, separated by a blank."""
    rule: str | None = None
    """Why it is not an event."""
    is_dead: bool = False
    """Too large even for RAW."""
    has_key: bool = True
    has_period: bool = True
    has_version: bool = True
    is_fallback: bool = False
    """It has a version that cannot be used."""
    broken: str | None = None
    """Its text, if that is not a JSON object."""
    front: str = ""
    """Text in front of its members."""
    idempotency_key: str | None = None
    """From its envelope, as are `attributes`, in JSON."""
    attributes: str | None = None

    def text(self) -> str:
        """The event as it is sent."""
        if self.broken is not None:
            return self.broken
        leaves = self.profile.leaves
        tokens = {at: leaves[at].token(cell) for at, cell in enumerate(self.cells) if cell is not None} | self.tokens
        text = written([*((leaves[at].path, token) for at, token in sorted(tokens.items())), *self.added])
        return f"{{{self.front}{text[1:]}"

    def changed(self) -> list[str]:
        """The paths whose values are of another JSON kind than the profile says."""
        leaves = self.profile.leaves
        return [
            leaves[at].canonical
            for at, token in self.tokens.items()
            if token != "null" and _kind(token) != leaves[at].kind
        ]

    def one_of(self, variants: Sequence[_Variant]) -> _Variant:
        """The variant that is asked for, or any."""
        return self.random.choice(variants) if self.variant is None else variants[self.variant % len(variants)]

    def pick(self, fits: Callable[[Leaf], bool]) -> int:
        """A random leaf that is there and fits."""
        return self.random.choice(
            [
                at
                for at, leaf in enumerate(self.profile.leaves)
                if self.cells[at] is not None and at not in (PERIOD, VERSION) and fits(leaf)
            ]
        )

    def add(self, path: str, token: str, cell: str) -> None:
        self.added.append((path, token))
        self.extra[f"$.{path}"] = cell


def twisted(
    kind: Kind, profile: Profile, cells: tuple[str | None, ...], random: Random, variant: int | None = None
) -> Twisted:
    """The event that a kind makes of the cells of a valid one."""
    event = Twisted(profile, random, list(cells), variant, has_version=profile.has_version)
    _TWISTS[kind](event)
    return event


def _fail(event: Twisted, at: int, rule: str) -> None:
    leaf = event.profile.leaves[at]
    if leaf.type:
        event.failures.append(f"{rule} {leaf.column}")
    if at == KEY and rule == CDE_MISSING:
        event.has_key = False
        event.failures.append(f"{CDE_MISSING} idempotency_key")


def _kind(token: str) -> str:
    return {'"': "string", "[": "array", "t": "boolean", "f": "boolean"}.get(token[0], "number")


def _cde_missing(event: Twisted) -> int:
    at = event.pick(lambda leaf: leaf.cde)
    event.cells[at] = None
    _fail(event, at, CDE_MISSING)
    return at


def _cde_null(event: Twisted) -> None:
    event.tokens[_cde_missing(event)] = "null"


def _cde_blank(event: Twisted) -> None:
    at, blank = _cde_missing(event), event.random.choice(("", " ", "   "))
    event.cells[at], event.tokens[at] = blank, f'"{blank}"'


def _bad_type(event: Twisted) -> None:
    _wrong(event, is_cast=True)


def _bad_rule(event: Twisted) -> None:
    _wrong(event, is_cast=False)
    if event.random.random() < 0.3:
        # Every failure must be listed, not only the first.
        _bad_type(event)


def _wrong(event: Twisted, *, is_cast: bool) -> None:
    """Give a leaf a value that its type cannot hold, or that a rule forbids."""
    at = event.pick(lambda leaf: any((rule == CAST_FAILED) == is_cast for rule in leaf.wrong))
    if at in event.tokens:
        return
    values = event.profile.leaves[at].wrong
    rule = event.random.choice([rule for rule in values if (rule == CAST_FAILED) == is_cast])
    token = event.random.choice(values[rule])
    event.cells[at], event.tokens[at] = token.strip('"'), token
    event.failures.append(f"{rule} {event.profile.leaves[at].column}")


def _bad_time(event: Twisted) -> None:
    at, text = event.one_of((*_BAD_VERSIONS, *_BAD_PERIODS) if event.profile.has_version else _BAD_PERIODS)
    event.cells[at] = text
    if at == PERIOD:
        event.has_period = False
        return
    event.is_fallback, event.has_version = True, False
    if text != _FUTURE:
        _fail(event, VERSION, CAST_FAILED)


def _drift_new(event: Twisted) -> None:
    for path in event.random.sample(_NEW_PATHS, event.random.randint(1, len(_NEW_PATHS))):
        cell = f"{path}-{event.random.randrange(50)}"
        event.add(path, f'"{cell}"', cell)


def _optional(event: Twisted, *, is_last: bool = False) -> int | None:
    """An optional leaf; always one of the same few of each profile, so that drift has a pattern."""
    leaves = event.profile.leaves
    present = [at for at in event.profile.optional if event.cells[at] is not None and not leaves[at].pii]
    # One with a column in Curated is missing there as well.
    present = [at for at in present if leaves[at].type] or present
    return present[-1 if is_last else 0] if present else None


def _drift_vanished(event: Twisted) -> None:
    at = _optional(event)
    if at is not None:
        event.cells[at] = None


def _drift_renamed(event: Twisted) -> None:
    _move(event, _optional(event), "V2")


def _drift_object(event: Twisted) -> None:
    """A value becomes an object."""
    _move(event, _optional(event, is_last=True), ".value")


def _move(event: Twisted, at: int | None, suffix: str) -> None:
    if at is not None:
        leaf, cell = event.profile.leaves[at], event.cells[at] or ""
        event.add(f"{leaf.path}{suffix}", leaf.token(cell), cell)
        event.cells[at] = None


def _drift_type(event: Twisted) -> None:
    """A number becomes a text of the same value."""
    for at, leaf in enumerate(event.profile.leaves):
        if leaf.form == Form.BARE and leaf.type in ("INT", "BIGINT", "DOUBLE") and event.cells[at] is not None:
            event.tokens[at] = f'"{event.cells[at]}"'
            return


def _drift_scalar(event: Twisted) -> None:
    """An object whose values are all optional becomes a text."""
    groups: dict[str, list[int]] = {}
    for at, leaf in enumerate(event.profile.leaves):
        groups.setdefault(leaf.path.rpartition(".")[0].split(".")[0], []).append(at)
    group = max(group for group, members in groups.items() if group and set(members) <= set(event.profile.optional))
    for at in groups[group]:
        event.cells[at] = None
    event.add(group, f'"no {group}"', f"no {group}")


def _malformed(event: Twisted) -> None:
    event.rule, change = event.one_of(BROKEN)
    event.broken = change(event.profile.text(event.cells), event.random)


def _oversized(event: Twisted) -> None:
    event.rule = "too_large"
    filler, event.is_dead = event.one_of(OVERSIZED)
    event.broken = f'{{"filler":"{filler}",{event.profile.text(event.cells)[1:]}'


def _envelope(event: Twisted) -> None:
    """The envelope has attributes and may have a key, which counts if the payload has none."""
    envelope, leaf = event.one_of(_ENVELOPES), event.profile.leaves[KEY]
    event.attributes = _ATTRIBUTES
    if envelope == "another key":
        event.idempotency_key = "not-this-one"
    elif envelope != "no key":
        event.idempotency_key = event.cells[KEY]
        event.cells[KEY] = " " if envelope == "instead of a blank" else None
        if leaf.type:
            event.failures.append(f"{CDE_MISSING} {leaf.column}")


def _odd(event: Twisted) -> None:
    """Valid, but rare; the megabyte only if it is asked for."""
    event.one_of(_ODDITIES[:-1] if event.variant is None else _ODDITIES)(event)


def _in_front(change: Callable[[Profile, str], tuple[str, dict[str, str]]]) -> Callable[[Twisted], None]:
    def twist(event: Twisted) -> None:
        event.front, extra = change(event.profile, event.text())
        event.extra |= extra

    return twist


def _without_period(event: Twisted) -> None:
    event.cells[PERIOD], event.has_period = None, False


def _numbers_in_another_form(event: Twisted) -> None:
    """A number is the same however it is written."""
    for at, leaf in enumerate(event.profile.leaves):
        form = {"INT": ".0", "BIGINT": ".0", "DOUBLE": "e0"}.get(leaf.type or "")
        if form and event.cells[at] is not None:
            event.cells[at] = f"{event.cells[at]}{form}"


_ODDITIES: tuple[Callable[[Twisted], None], ...] = (
    _without_period,
    _numbers_in_another_form,
    *map(_in_front, ODD.values()),
)
_TWISTS = {
    Kind.CDE_NULL: _cde_null,
    Kind.CDE_BLANK: _cde_blank,
    Kind.CDE_MISSING: _cde_missing,
    Kind.BAD_TYPE: _bad_type,
    Kind.BAD_RULE: _bad_rule,
    Kind.BAD_TIME: _bad_time,
    Kind.DRIFT_NEW: _drift_new,
    Kind.DRIFT_VANISHED: _drift_vanished,
    Kind.DRIFT_RENAMED: _drift_renamed,
    Kind.DRIFT_TYPE: _drift_type,
    Kind.DRIFT_OBJECT: _drift_object,
    Kind.DRIFT_SCALAR: _drift_scalar,
    Kind.ENVELOPE: _envelope,
    Kind.ODD: _odd,
    Kind.MALFORMED: _malformed,
    Kind.OVERSIZED: _oversized,
}
VARIANTS = {
    Kind.BAD_TIME: len(_BAD_VERSIONS) + len(_BAD_PERIODS),
    Kind.ENVELOPE: len(_ENVELOPES),
    Kind.ODD: len(_ODDITIES),
    Kind.MALFORMED: len(BROKEN),
    Kind.OVERSIZED: len(OVERSIZED),
}
"""The number of variants of a kind that has several."""
