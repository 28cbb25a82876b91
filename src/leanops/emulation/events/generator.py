"""Events of a topic, chunk by chunk; each chunk is a pure function of the seed and its number."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from random import Random
from typing import NamedTuple

from leanops.domain.event.envelope import micros
from leanops.emulation.events.kinds import COPIES, DAY1, DAY2, DAY4, SOAK, Kind, Rates, with_rates
from leanops.emulation.events.profile import KEY, MICROS, Draw, Profile, text_of
from leanops.emulation.events.twists import VARIANTS, twisted

CHUNK = 5_000
MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000
FAR = (-36, -12, -2, 3)
"""Months by which far corrections move an event."""
TIES = VERSION_ONLY, BOTH, LOUD, EARLIER = "version", "version and time", "both, with a lesser id", "but sent before it"
"""What a message shares with another of its key."""
AHEADS = 3
"""A version is ahead of the publish time by less than a day, by a day, or by more."""
FIRST_DAY = datetime(2026, 10, 30, tzinfo=UTC)
"""Day 4 is in the next month."""


class Message(NamedTuple):
    """A message as it is sent, and all that the ledger must know to say what becomes of it."""

    message_id: str
    kind: Kind
    publish_us: int
    ingestion_ms: int
    text: str
    key: str | None
    version_us: int | None
    """None for its publish time, which also counts if this is more than a day after it."""
    period: str | None
    """None for the month of its publish time."""
    cells: tuple[str | None, ...]
    rule: str | None = None
    is_dead: bool = False
    is_fallback: bool = False
    failures: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    changed: tuple[str, ...] = ()
    idempotency_key: str | None = None
    """From its envelope, as are `attributes`, in JSON."""
    attributes: str | None = None


@dataclass(frozen=True)
class Phase:
    """A stretch of emulated time: the usual kind of event, and the rates of the others."""

    name: str
    begins: datetime
    usual: Kind
    rates: Rates
    lasts: timedelta = timedelta(hours=20)
    is_long: bool = False
    """Whether its own events are corrected and sent again within it."""


def phases(rates: str = "") -> dict[str, Phase]:
    """The days of the story; `rates` changes those of day 2."""
    day = timedelta(days=1)
    return {
        "day1": Phase("day1", FIRST_DAY, Kind.NEW, DAY1),
        "day2": Phase("day2", FIRST_DAY + day, Kind.CORRECTION, with_rates(DAY2, rates)),
        "day4": Phase("day4", FIRST_DAY + 3 * day, Kind.CROSS_PERIOD, DAY4),
    }


def soak(rates: str, lasts: timedelta) -> Phase:
    """A day on which everything happens at once, from its first event on."""
    return Phase("soak", FIRST_DAY, Kind.CORRECTION, with_rates(SOAK, rates), lasts, is_long=True)


@dataclass(frozen=True, eq=False)
class Stream:
    """The events of one topic in one phase."""

    topic: str
    profile: Profile
    seed: int
    phase: Phase
    events: int
    known: int = 0
    """The number of entities before this phase."""
    earlier: "Stream | None" = None
    size: int = CHUNK
    """Events of a chunk."""

    @property
    def first(self) -> int:
        """The number of entities of the first day; 0 on that day itself."""
        return (self.earlier.first or self.earlier.events) if self.earlier else 0

    @property
    def chunks(self) -> int:
        return -(-self.events // self.size)

    @cached_property
    def sure(self) -> dict[int, tuple[Kind, int]]:
        """Position → kind and variant, so that no variant is left to chance; at most a third of the events."""
        kinds = [kind for kind, rate in self.phase.rates.items() if rate and self.can_be(kind)]
        variants = VARIANTS | {Kind.TIED: len(TIES), Kind.AHEAD: AHEADS}
        most = max((variants.get(kind, 1) for kind in kinds), default=0)
        slots = [(kind, at) for at in range(most) for kind in kinds if at < variants.get(kind, 1)][: self.events // 3]
        places = [(at + 1) * self.events // (len(slots) + 1) for at in range(len(slots))]
        # The first event of a chunk has no other before it to copy or tie with.
        return {place + (place % self.size == 0): slot for place, slot in zip(places, slots, strict=True)}

    def can_be(self, kind: Kind) -> bool:
        """Whether an event of this topic can be of this kind."""
        return self.profile.has_version or kind != Kind.AHEAD

    def chunk(self, index: int, *, with_copies: bool = True) -> list[Message]:
        """The messages of a chunk in the order they are sent; without copies they depend on no other chunk."""
        return _Chunk(self, index).messages(with_copies)


class _Chunk:
    """One chunk in the making."""

    def __init__(self, stream: Stream, index: int) -> None:
        first = index * stream.size
        self.stream, self.index = stream, index
        self.positions = range(first, min(first + stream.size, stream.events))
        name = f"{stream.seed}/{stream.topic}/{stream.phase.name}/{index}"
        self.random = Random(name)
        # Separate, so that events are the same with and without copies.
        self.copying = Random(f"{name}/copies")
        # Every entity of the first day has an event; many numbers of later days have none.
        self.known = stream.known + first if stream.phase.is_long else stream.first
        self.lasts = stream.phase.lasts // timedelta(microseconds=1)
        self.numbers, self.published, self.versions = list[int](), list[int](), list[int]()
        """The entity, publish time and version of each event."""
        self.made: list[Message] = []
        self.loud: set[int] = set()
        """The places of messages whose ids sort before all others."""

    def messages(self, with_copies: bool) -> list[Message]:
        stream, random, positions = self.stream, self.random, self.positions
        kinds, variants = self._kinds()
        begins, step = micros(stream.phase.begins), self.lasts / stream.events
        arrivals = [begins + int(step * position) for position in positions]
        self.numbers = [self._number(kind, position) for kind, position in zip(kinds, positions, strict=True)]
        self.published = [self._published(kind, at) for kind, at in zip(kinds, arrivals, strict=True)]
        self.versions = [at - int(random.random() * 30_000_000) for at in self.published]
        if stream.phase.rates:
            self._retime(kinds, variants)
        periods = [self._period(kind, number) for kind, number in zip(kinds, self.numbers, strict=True)]
        draw = Draw(random, self.numbers, self.published)
        rows = stream.profile.cells(draw, list(periods), [_text(version) for version in self.versions])
        for place, (kind, arrived, cells) in enumerate(zip(kinds, arrivals, rows, strict=True)):
            ingested = (arrived + 10 * MINUTE) // 1_000
            if kind in COPIES:
                if with_copies:
                    self.made.append(self._copied(kind)._replace(kind=kind, ingestion_ms=ingested))
                continue
            name = f"{stream.topic}-{stream.phase.name}-{positions[place]:07d}"
            if place in self.loud:
                name = name.upper()
            version = self.versions[place] if stream.profile.has_version else None
            text = stream.profile.text(cells) if kind in _UNCHANGED else ""
            sent_us = self.published[place]
            valid = Message(name, kind, sent_us, ingested, text, cells[KEY], version, periods[place], cells)
            self.made.append(valid if text else self._twisted(valid, variants.get(place)))
        return self.made

    def _kinds(self) -> tuple[list[Kind], dict[int, int]]:
        """The kind of each event, and the variant of some."""
        stream, positions = self.stream, self.positions
        rates, usual, variants = stream.phase.rates, stream.phase.usual, dict[int, int]()
        kinds: list[Kind] = self.random.choices(
            [*rates, usual], [*rates.values(), max(0.0, 1 - sum(rates.values()))], k=len(positions)
        )
        for at, position in enumerate(positions) if rates else ():
            if position in stream.sure:
                kinds[at], variants[at] = stream.sure[position]
            elif not stream.can_be(kinds[at]):
                kinds[at] = usual
        if kinds[0] == Kind.DUPLICATE or (kinds[0] in COPIES and not stream.earlier):
            # Nothing has been sent yet that could be sent again.
            kinds[0] = usual
        return kinds, variants

    def _retime(self, kinds: list[Kind], variants: dict[int, int]) -> None:
        """Make versions differ from the order of publish times."""
        has_version, random, plain = self.stream.profile.has_version, self.random, list[int]()
        for at, kind in enumerate(kinds):
            if kind in _PLAIN:
                plain.append(at)
            elif kind == Kind.STALE and has_version:
                self.versions[at] = self.published[at] - int(random.random() * 3 * self.lasts)
            elif kind == Kind.AHEAD:
                choice = (random.randrange(HOUR, DAY - HOUR), DAY, random.randrange(DAY + HOUR, 2 * DAY))
                self.versions[at] = self.published[at] + choice[variants.get(at, random.randrange(AHEADS))]
            elif kind == Kind.TIED:
                other = self._other(plain)
                if other is None:
                    kinds[at] = self.stream.phase.usual
                else:
                    self._tie(at, TIES[variants.get(at, random.randrange(len(TIES)))], other)

    def _other(self, plain: Sequence[int]) -> tuple[int, int, int] | None:
        """Number, publish time and version of an earlier message, of this chunk or of an earlier day."""
        earlier = self.stream.earlier
        if earlier and (not plain or self.random.random() < 0.5):
            message = self.random.choice(_earlier(earlier, self.index % earlier.chunks))
            if message.kind in _PLAIN and message.key:
                version = message.publish_us if message.version_us is None else message.version_us
                return int(message.key.rpartition("-")[2]), message.publish_us, version
        if not plain:
            return None
        at = self.random.choice(plain)
        return self.numbers[at], self.published[at], self.versions[at]

    def _tie(self, at: int, tie: str, other: tuple[int, int, int]) -> None:
        self.numbers[at], published, self.versions[at] = other
        if tie == EARLIER:
            self.published[at] = published - self.random.randrange(HOUR)
        elif tie != VERSION_ONLY or not self.stream.profile.has_version:
            self.published[at] = published
        if tie == LOUD:
            self.loud.add(at)

    def _twisted(self, valid: Message, variant: int | None) -> Message:
        """The message as its kind changes it."""
        event = twisted(valid.kind, self.stream.profile, valid.cells, self.random, variant)
        return valid._replace(
            text=event.text(),
            key=valid.key if event.has_key else None,
            version_us=valid.version_us if event.has_version else None,
            period=valid.period if event.has_period else None,
            cells=tuple(event.cells),
            rule=event.rule,
            is_dead=event.is_dead,
            is_fallback=event.is_fallback,
            failures=tuple(sorted(event.failures)),
            extra=tuple(event.extra.items()),
            changed=tuple(event.changed()),
            idempotency_key=event.idempotency_key,
            attributes=event.attributes,
        )

    def _number(self, kind: Kind, position: int) -> int:
        is_new = kind == Kind.NEW or not self.known
        return self.stream.known + position if is_new else self.random.randrange(self.known)

    def _published(self, kind: Kind, arrived: int) -> int:
        """Some minutes before it arrives; if it is late, before everything else."""
        if kind == Kind.LATE:
            return micros(FIRST_DAY) - DAY + self.random.randrange(DAY // 2)
        if kind == Kind.STALE and not self.stream.profile.has_version:
            return arrived - int(self.random.random() * 3 * self.lasts)
        return arrived - int(self.random.random() * 5 * MINUTE)

    def _period(self, kind: Kind, number: int) -> str:
        month = 2026 * 12 + (8 if number * 7_919 % 100 < 15 else 9)
        if kind == Kind.CROSS_PERIOD:
            month += self.random.choice((-1, 1))
        elif kind == Kind.FAR_PERIOD:
            month += self.random.choice(FAR)
        return _month(month)

    def _copied(self, kind: Kind) -> Message:
        """A message that was sent a moment ago, or days ago."""
        stream = self.stream
        if kind == Kind.REDELIVERY and stream.phase.is_long and self.index:
            return self.copying.choice(_earlier(stream, Random(self.index).randrange(self.index)))
        if kind == Kind.DUPLICATE or stream.earlier is None:
            return self.copying.choice(self.made)
        return self.copying.choice(_earlier(stream.earlier, self.index % stream.earlier.chunks))


_PLAIN = frozenset({Kind.NEW, Kind.CORRECTION, Kind.CROSS_PERIOD, Kind.FAR_PERIOD})
_UNCHANGED = _PLAIN | {Kind.LATE, Kind.STALE, Kind.TIED, Kind.AHEAD}


@lru_cache(maxsize=2)
def _earlier(stream: Stream, index: int) -> Sequence[Message]:
    return stream.chunk(index, with_copies=False)


@lru_cache(maxsize=1_000)
def _month(month: int) -> str:
    return f"{month // 12:04d}-{month % 12 + 1:02d}"


def _text(moment: int) -> str:
    """A moment as events write it, in microseconds so that versions rarely tie."""
    return f"{text_of(moment // MICROS)}.{moment % MICROS:06d}Z"
