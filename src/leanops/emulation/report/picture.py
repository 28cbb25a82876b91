"""The flow as a picture: places are boxes in columns, and bands between them are as wide as their counts."""

from collections.abc import Mapping
from dataclasses import dataclass

from leanops.emulation.report.flow import BAD, PLAIN, Graph, Place, graph_of
from leanops.emulation.report.numbers import Flow

BOX = 10.0
LEAST = 2.0
"""Wide enough to be seen, however small the count."""
LINE = 40.0
"""The height of a label of two lines."""
GAP = 8.0


@dataclass(frozen=True)
class Screen:
    """Where the columns are; the fullest has this height without its gaps."""

    width: float
    columns: tuple[float, ...]
    height: float


_WIDE = Screen(1040.0, (0.0, 200.0, 420.0, 660.0, 860.0), 300.0)
_NARROW = Screen(356.0, (0.0, 106.0, 218.0), 230.0)
_HEADS = ("sent", "landed", "standardized", "", "curated")


@dataclass(frozen=True)
class Box:
    """A place, drawn."""

    place: Place
    x: float
    y: float
    height: float


@dataclass(frozen=True)
class Band:
    """A link, drawn from the right edge of one box to the left edge of another."""

    source: Place
    target: Place
    count: int
    x: float
    y: float
    to_x: float
    to_y: float
    width: float

    @property
    def tone(self) -> str:
        is_source = self.source.tone == BAD or self.target.tone == PLAIN
        return self.source.tone if is_source else self.target.tone


@dataclass(frozen=True)
class Drawing:
    """Everything with its positions and sizes."""

    boxes: tuple[Box, ...]
    bands: tuple[Band, ...]
    width: float
    height: float
    heads: tuple[tuple[str, float], ...]
    """The heads of the columns and their positions."""

    @property
    def description(self) -> str:
        """What the picture shows, for screen readers."""
        ways = [f"{band.source.label} to {band.target.label} {band.count:,}" for band in self.bands]
        return f"How many events went which way: {', '.join(ways)}"


def pictures_of(flow: Flow) -> tuple[Drawing, Drawing, Drawing]:
    """The flow as a whole for wide screens, and in two parts for narrow ones."""
    whole = graph_of(flow)
    return (
        drawn(whole, _WIDE, _HEADS),
        drawn(whole.part(0, 2), _NARROW, _HEADS[:3]),
        drawn(whole.part(2, 4), _NARROW, ("", *_HEADS[3:])),
    )


def drawn(graph: Graph, screen: Screen, heads: tuple[str, ...]) -> Drawing:
    """Lay the graph out on a screen."""
    columns = screen.columns
    first = min((place.column for place in graph.places), default=0)
    totals = [sum(place.count for place in graph.places if place.column == first + at) for at in range(len(columns))]
    scale = screen.height / max([*totals, 1])
    widths = {(source, target): max(LEAST, count * scale) for source, target, count in graph.links}
    boxes, bottom = {}, [0.0] * len(columns)
    for place in graph.places:
        comes = sum(width for (_, target), width in widths.items() if target == place.name)
        goes = sum(width for (source, _), width in widths.items() if source == place.name)
        tall = max(comes, goes, LEAST)
        at = place.column - first
        boxes[place.name] = Box(place, columns[at], bottom[at] + max(0.0, LINE - tall) / 2, tall)
        bottom[at] += max(tall, LINE) + GAP
    bands = _bands(graph, boxes, widths)
    return Drawing(
        tuple(boxes.values()), bands, screen.width, max(bottom) - GAP, tuple(zip(heads, columns, strict=True))
    )


def _bands(graph: Graph, boxes: Mapping[str, Box], widths: Mapping[tuple[str, str], float]) -> tuple[Band, ...]:
    left, entered = dict.fromkeys(boxes, 0.0), dict.fromkeys(boxes, 0.0)
    bands = []
    for source, target, count in graph.links:
        box, to, width = boxes[source], boxes[target], widths[source, target]
        start, end = box.y + left[source], to.y + entered[target]
        bands.append(Band(box.place, to.place, count, box.x + BOX, start, to.x, end, width))
        left[source] += width
        entered[target] += width
    return tuple(bands)
