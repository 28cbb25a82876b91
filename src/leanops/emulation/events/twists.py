"""How a kind changes an event that was right: its text, its cells, and what must become of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from leanops.emulation.events.broken import BROKEN, OVERSIZED
from leanops.emulation.events.kinds import Kind
from leanops.emulation.events.leaves import Form, Leaf
from leanops.emulation.events.odd import LARGEST, ODD
from leanops.emulation.events.profile import KEY, PERIOD, VERSION, Profile, written

CDE_MISSING, CAST_FAILED = "cde_missing", "cast_failed"
_NEWS = ("context.tenant", "context.trace.id", "labels", "revision")
_FUTURE = "2099-01-01T00:00:00Z"
_BAD_VERSIONS = ((VERSION, _FUTURE), (VERSION, "yesterday"), (VERSION, "2026-02-30T00:00:00Z"))
_BAD_PERIODS = tuple((PERIOD, text) for text in ("2026-13", "10/2026", "1969-12", "2101-01", "soon"))
_ATTRIBUTES = '{"origin":"eu-west","note":"say \\"größe\\""}'
_ENVELOPES = ("no key", "another key", "instead of none", "instead of a blank")
_Way = TypeVar("_Way")


@dataclass
class Twisted:
    """An event as it is sent, and what the ledger must know of it."""

    profile: Profile
    random: Random
    cells: list[str | None]
    way: int | None = None
    """Which of the ways its kind has; None for any."""
    tokens: dict[int, str] = field(default_factory=dict)
    """Leaves written in another way than their cell is."""
    extra: dict[str, str] = field(default_factory=dict)
    """Cells at paths the profile does not have, by path."""
    added: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Rule and column, with a blank between them."""
    rule: str | None = None
    """Why it is no event at all."""
    is_dead: bool = False
    """Too large even for RAW."""
    has_key: bool = True
    has_period: bool = True
    has_version: bool = True
    is_fallback: bool = False
    """Its version is there, and unusable."""
    broken: str | None = None
    """Its text, where that is no JSON object."""
    front: str = ""
    """What stands before its members."""
    idempotency_key: str | None = None
    """What its envelope says; so `attributes`, as JSON."""
    attributes: str | None = None

    def text(self) -> str:
        """The event as it is sent."""
        if self.broken is not None:
            return self.broken
        tokens = [(leaf.path, self.token(at)) for at, leaf in enumerate(self.profile.leaves) if self.is_there(at)]
        text = written([*tokens, *self.added])
        return f"{{{self.front}{text[1:]}" if self.front else text

    def is_there(self, at: int) -> bool:
        return self.cells[at] is not None or at in self.tokens

    def token(self, at: int) -> str:
        cell = self.cells[at]
        return self.tokens[at] if at in self.tokens else self.profile.leaves[at].token(cell or "")

    def changed(self) -> list[str]:
        """The paths whose values are of another JSON kind than they are by the profile."""
        leaves = self.profile.leaves
        return [
            leaves[at].canonical
            for at, token in self.tokens.items()
            if token != "null" and _kind(token) != leaves[at].kind
        ]

    def one_of(self, ways: Sequence[_Way]) -> _Way:
        """The way that is asked for, or any."""
        return self.random.choice(ways) if self.way is None else ways[self.way % len(ways)]

    def pick(self, *, cde: bool | None = None, pii: bool = True, wrong: str | None = None) -> int:
        """Some leaf that is there."""
        found = [
            at
            for at, leaf in enumerate(self.profile.leaves)
            if self.cells[at] is not None
            and at not in (PERIOD, VERSION)
            and (cde is None or leaf.cde == cde)
            and (pii or not leaf.pii)
            and (wrong is None or any((rule == CAST_FAILED) == (wrong == CAST_FAILED) for rule in leaf.wrong))
        ]
        return self.random.choice(found)

    def add(self, path: str, token: str, cell: str | None) -> None:
        self.added.append((path, token))
        if cell is not None:
            self.extra[f"$.{path}"] = cell


def twisted(
    kind: Kind, profile: Profile, cells: tuple[str | None, ...], random: Random, way: int | None = None
) -> Twisted:
    """The event of this kind that these cells would have been."""
    event = Twisted(profile, random, list(cells), way, has_version=profile.has_version)
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


def _cde_null(event: Twisted) -> None:
    at = event.pick(cde=True)
    event.cells[at], event.tokens[at] = None, "null"
    _fail(event, at, CDE_MISSING)


def _cde_blank(event: Twisted) -> None:
    at = event.pick(cde=True)
    blank = event.random.choice(("", " ", "   "))
    event.cells[at], event.tokens[at] = blank, f'"{blank}"'
    _fail(event, at, CDE_MISSING)


def _cde_missing(event: Twisted) -> None:
    at = event.pick(cde=True)
    event.cells[at] = None
    _fail(event, at, CDE_MISSING)


def _bad_type(event: Twisted) -> None:
    _wrong(event, event.pick(wrong=CAST_FAILED), is_cast=True)


def _bad_rule(event: Twisted) -> None:
    _wrong(event, event.pick(wrong="rule"), is_cast=False)
    if event.random.random() < 0.3:
        # Every failure must be listed, not only the first.
        _bad_type(event)


def _wrong(event: Twisted, at: int, *, is_cast: bool) -> None:
    if at in event.tokens:
        return
    values = event.profile.leaves[at].wrong
    rule = event.random.choice([rule for rule in values if (rule == CAST_FAILED) == is_cast])
    token = event.random.choice(values[rule])
    event.cells[at], event.tokens[at] = _cell(token), token
    event.failures.append(f"{rule} {event.profile.leaves[at].column}")


def _cell(token: str) -> str:
    return token.strip('"')


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
    for path in event.random.sample(_NEWS, event.random.randint(1, len(_NEWS))):
        event.add(path, f'"{path}-{event.random.randrange(50)}"', None)
        event.extra[f"$.{path}"] = event.added[-1][1].strip('"')


def _optional(event: Twisted, *, is_last: bool = False) -> int | None:
    """A leaf an event can do without; the same few of each profile, so that drift is a story and no noise."""
    leaves = event.profile.leaves
    there = [at for at in event.profile.optional if event.cells[at] is not None and not leaves[at].pii]
    # What has a column in Curated is missed there, too.
    there = [at for at in there if leaves[at].type] or there
    return (there[-1] if is_last else there[0]) if there else None


def _drift_vanished(event: Twisted) -> None:
    at = _optional(event)
    if at is not None:
        event.cells[at] = None


def _drift_renamed(event: Twisted) -> None:
    at = _optional(event)
    if at is not None:
        leaf, cell = event.profile.leaves[at], event.cells[at]
        event.add(f"{leaf.path}V2", leaf.token(cell or ""), cell)
        event.cells[at] = None


def _drift_type(event: Twisted) -> None:
    """A number comes as a text; its value is the same."""
    for at, leaf in enumerate(event.profile.leaves):
        if leaf.form == Form.BARE and leaf.type in ("INT", "BIGINT", "DOUBLE") and event.cells[at] is not None:
            event.tokens[at] = f'"{event.cells[at]}"'
            return


def _drift_object(event: Twisted) -> None:
    """A value becomes an object."""
    at = _optional(event, is_last=True)
    if at is not None:
        leaf, cell = event.profile.leaves[at], event.cells[at]
        event.add(f"{leaf.path}.value", leaf.token(cell or ""), cell)
        event.cells[at] = None


def _drift_scalar(event: Twisted) -> None:
    """An object whose values are all optional becomes a text."""
    groups: dict[str, list[tuple[int, Leaf]]] = {}
    for at, leaf in enumerate(event.profile.leaves):
        groups.setdefault(leaf.path.rpartition(".")[0].split(".")[0], []).append((at, leaf))
    free = [
        group for group, members in groups.items() if group and all(at in event.profile.optional for at, _ in members)
    ]
    group = sorted(free)[-1]
    for at, _ in groups[group]:
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
    """The envelope says something, too; its key counts where the payload has none."""
    way, leaf = event.one_of(_ENVELOPES), event.profile.leaves[KEY]
    event.attributes = _ATTRIBUTES
    if way == "another key":
        event.idempotency_key = "not-this-one"
    elif way != "no key":
        event.idempotency_key = event.cells[KEY]
        event.cells[KEY] = " " if way == "instead of a blank" else None
        if leaf.type:
            event.failures.append(f"{CDE_MISSING} {leaf.column}")


def _odd(event: Twisted) -> None:
    """Right, but seldom seen; the one of a megabyte only where it is asked for."""
    event.one_of(_ODDITIES[:-1] if event.way is None else _ODDITIES)(event)


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
    *map(_in_front, ODD),
    _in_front(LARGEST),
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
WAYS = {
    Kind.BAD_TIME: len(_BAD_VERSIONS) + len(_BAD_PERIODS),
    Kind.ENVELOPE: len(_ENVELOPES),
    Kind.ODD: len(_ODDITIES),
    Kind.MALFORMED: len(BROKEN),
    Kind.OVERSIZED: len(OVERSIZED),
}
"""In how many ways an event can be of a kind, where there are several."""
