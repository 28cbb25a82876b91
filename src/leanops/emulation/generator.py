"""Events of a topic, chunk by chunk; each chunk is a pure function of the seed and its number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import NamedTuple

from leanops.domain.envelope import micros
from leanops.emulation.kinds import COPIES, DAY1, DAY2, DAY4, SOAK, Kind, Rates
from leanops.emulation.leaves import MICROS, Draw, text_of
from leanops.emulation.profile import KEY, Profile
from leanops.emulation.twists import twisted

CHUNK = 5_000
MINUTE, DAY = 60_000_000, 86_400_000_000
FAR = (-36, -12, -2, 3)
"""Months by which corrections go far."""
FIRST_DAY = datetime(2026, 10, 30, tzinfo=UTC)
"""Day 4 lies in the next month."""


class Message(NamedTuple):
    """One message as it is sent, and all the ledger must know to say what becomes of it."""

    message_id: str
    kind: Kind
    publish_us: int
    ingestion_ms: int
    text: str
    key: str | None
    version_us: int | None
    """None: its publish time."""
    period: str | None
    """None: the month of its publish time."""
    cells: tuple[str | None, ...]
    rule: str | None = None
    is_dead: bool = False
    is_fallback: bool = False
    failures: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    changed: tuple[str, ...] = ()
    idempotency_key: str | None = None
    """What its envelope says beside the payload; so `attributes`, as JSON."""
    attributes: str | None = None


@dataclass(frozen=True)
class Phase:
    """A stretch of emulated time: what is usual in it, and how often something else is."""

    name: str
    begins: datetime
    usual: Kind
    rates: Rates
    lasts: timedelta = timedelta(hours=20)
    is_long: bool = False
    """Whether its own events are corrected and sent again later in it."""


def phases(rates: Callable[[Rates], Rates] = lambda defaults: defaults) -> dict[str, Phase]:
    """The days of the story; `rates` changes what day 2 brings."""
    day = timedelta(days=1)
    return {
        "day1": Phase("day1", FIRST_DAY, Kind.NEW, DAY1),
        "day2": Phase("day2", FIRST_DAY + day, Kind.CORRECTION, rates(DAY2)),
        "day4": Phase("day4", FIRST_DAY + 3 * day, Kind.CROSS_PERIOD, DAY4),
    }


def soak(rates: Callable[[Rates], Rates], lasts: timedelta) -> Phase:
    """A day in which everything happens at once, from its first event on."""
    return Phase("soak", FIRST_DAY, Kind.CORRECTION, rates(SOAK), lasts, is_long=True)


@dataclass(frozen=True, eq=False)
class Stream:
    """The events of one topic in one phase."""

    topic: str
    profile: Profile
    seed: int
    phase: Phase
    events: int
    known: int = 0
    """How many things there were before."""
    earlier: "Stream | None" = None
    size: int = CHUNK
    """Events of a chunk."""

    @property
    def first(self) -> int:
        """How many things the first day told of; none on that day itself."""
        return (self.earlier.first or self.earlier.events) if self.earlier else 0

    @property
    def chunks(self) -> int:
        return -(-self.events // self.size)

    def chunk(self, index: int) -> list[Message]:
        """The messages of one chunk, in the order in which they are sent."""
        return self._chunk(index).messages()

    def originals(self, index: int) -> list[Message]:
        """The messages of one chunk that are no copies; they depend on no other chunk."""
        return self._chunk(index).messages(with_copies=False)

    def _chunk(self, index: int) -> "_Chunk":
        first = index * self.size
        return _Chunk(self, index, range(first, min(first + self.size, self.events)))


class _Chunk:
    """One chunk in the making."""

    def __init__(self, stream: Stream, index: int, positions: range) -> None:
        self.stream, self.index, self.positions = stream, index, positions
        name = f"{stream.seed}/{stream.topic}/{stream.phase.name}/{index}"
        self.random = Random(name)
        # Apart, so that what is made is the same whether copies are or not.
        self.copying = Random(f"{name}/copies")
        # Each thing of the first day has an event; of those that came later many a number has none.
        self.known = stream.known + positions.start if stream.phase.is_long else stream.first
        self.made: list[Message] = []

    def messages(self, *, with_copies: bool = True) -> list[Message]:
        stream, random, positions = self.stream, self.random, self.positions
        rates = stream.phase.rates
        kinds: list[Kind] = random.choices(
            [*rates, stream.phase.usual], [*rates.values(), max(0.0, 1 - sum(rates.values()))], k=len(positions)
        )
        if kinds[0] == Kind.DUPLICATE or (kinds[0] in COPIES and not stream.earlier):
            # Nothing was sent yet that could be sent again.
            kinds[0] = stream.phase.usual
        begins, step = micros(stream.phase.begins), stream.phase.lasts / timedelta(microseconds=1) / stream.events
        arrivals = [begins + int(step * position) for position in positions]
        numbers = [self._number(kind, position) for kind, position in zip(kinds, positions, strict=True)]
        published = [self._published(kind, at) for kind, at in zip(kinds, arrivals, strict=True)]
        versions = [at - int(random.random() * 30_000_000) for at in published]
        periods = [self._period(kind, number) for kind, number in zip(kinds, numbers, strict=True)]
        draw = Draw(random, numbers, published)
        rows = stream.profile.cells(draw, list(periods), [_text(version) for version in versions])
        for place, (kind, arrived, cells) in enumerate(zip(kinds, arrivals, rows, strict=True)):
            ingested = (arrived + 10 * MINUTE) // 1_000
            if kind in COPIES:
                if with_copies:
                    self.made.append(self._copied(kind)._replace(kind=kind, ingestion_ms=ingested))
                continue
            name = f"{stream.topic}-{stream.phase.name}-{positions[place]:07d}"
            version = versions[place] if stream.profile.has_version else None
            text = stream.profile.text(cells) if kind in _UNCHANGED else ""
            right = Message(name, kind, published[place], ingested, text, cells[KEY], version, periods[place], cells)
            self.made.append(right if text else self._twisted(right))
        return self.made

    def _twisted(self, right: Message) -> Message:
        """The message changed as its kind wants it."""
        event = twisted(right.kind, self.stream.profile, right.cells, self.random)
        return right._replace(
            text=event.text(),
            key=right.key if event.has_key else None,
            version_us=right.version_us if event.has_version else None,
            period=right.period if event.has_period else None,
            cells=tuple(event.cells),
            rule=event.rule,
            is_dead=event.is_dead,
            is_fallback=event.is_fallback,
            failures=tuple(sorted(event.failures)),
            extra=tuple(event.extra.items()),
            changed=tuple(event.changed()),
        )

    def _number(self, kind: Kind, position: int) -> int:
        is_new = kind == Kind.NEW or not self.known
        return self.stream.known + position if is_new else self.random.randrange(self.known)

    def _published(self, kind: Kind, arrived: int) -> int:
        """Before it arrives, by up to some minutes; what is late, before everything else."""
        if kind == Kind.LATE:
            return micros(FIRST_DAY) - DAY + self.random.randrange(DAY // 2)
        return arrived - int(self.random.random() * 5 * MINUTE)

    def _period(self, kind: Kind, number: int) -> str:
        month = 2026 * 12 + (8 if number * 7_919 % 100 < 15 else 9)
        if kind == Kind.CROSS_PERIOD:
            month += self.random.choice((-1, 1))
        elif kind == Kind.FAR_PERIOD:
            month += self.random.choice(FAR)
        return _month(month)

    def _copied(self, kind: Kind) -> Message:
        """A message that was sent before: a moment ago, or days."""
        stream = self.stream
        if kind == Kind.REDELIVERY and stream.phase.is_long and self.index:
            return self.copying.choice(_earlier(stream, Random(self.index).randrange(self.index)))
        if kind == Kind.DUPLICATE or stream.earlier is None:
            return self.copying.choice(self.made)
        return self.copying.choice(_earlier(stream.earlier, self.index % stream.earlier.chunks))


_UNCHANGED = frozenset({Kind.NEW, Kind.CORRECTION, Kind.CROSS_PERIOD, Kind.FAR_PERIOD, Kind.LATE})


@lru_cache(maxsize=1)
def _earlier(stream: Stream, index: int) -> Sequence[Message]:
    return stream.originals(index)


@lru_cache(maxsize=1_000)
def _month(month: int) -> str:
    return f"{month // 12:04d}-{month % 12 + 1:02d}"


def _text(moment: int) -> str:
    """A moment as events write it; microseconds, so that versions seldom tie."""
    return f"{text_of(moment // MICROS)}.{moment % MICROS:06d}Z"
