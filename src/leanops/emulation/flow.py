"""The flow as a drawing: places in columns, and bands between them as wide as what goes through."""

from collections.abc import Sequence
from dataclasses import dataclass

from leanops.emulation.report import Flow

PLAIN, GOOD, QUIET, BAD = "plain", "good", "quiet", "bad"


@dataclass(frozen=True)
class Place:
    """Where events are, or what became of them."""

    name: str
    column: int
    label: str
    count: int
    tone: str
    says: str


@dataclass(frozen=True)
class Graph:
    """Places, and how many go from one to another."""

    places: tuple[Place, ...]
    links: tuple[tuple[str, str, int], ...]

    def part(self, first: int, last: int) -> "Graph":
        """The columns from the first to the last."""
        places = tuple(place for place in self.places if first <= place.column <= last)
        names = {place.name for place in places}
        joining = {name for source, target, _ in self.links if {source, target} <= names for name in (source, target)}
        return Graph(
            tuple(place for place in places if place.name in joining),
            tuple(link for link in self.links if {link[0], link[1]} <= names),
        )


def graph_of(flow: Flow) -> Graph:
    """The whole way, without the places nothing came to."""
    there = {place.name: place for place in _places(flow) if place.count > 0}
    links = [
        ("published", "raw", max(0, flow.raw - flow.again)),
        ("published", "dead", flow.dead),
        ("published", "missing", flow.missing),
        ("again", "raw", flow.again),
        *(("raw", name, place.count) for name, place in there.items() if place.column == 2),
        *((name, "kept", there[name].count) for name in ("new", "newer") if name in there),
        *(("kept", name, place.count) for name, place in there.items() if place.column == 4),
    ]
    drawn = (link for link in links if link[2] > 0 and link[0] in there and link[1] in there)
    return Graph(tuple(there.values()), tuple(drawn))


def _places(flow: Flow) -> list[Place]:
    standardized, curated = flow.standardized, flow.curated
    behind = curated.get("behind", 0)
    refused = curated.get("errors", 0) - behind
    return [
        Place("published", 0, "published", flow.published, PLAIN, "sent to the queues"),
        Place("again", 0, "delivered again", flow.again, QUIET, "sent once more because an answer was lost"),
        Place("raw", 1, "RAW", flow.raw, PLAIN, "kept as they were received"),
        Place("dead", 1, "dead letters", flow.dead, BAD, "too broken to land; kept in dlq_errors"),
        Place("missing", 1, "missing", flow.missing, BAD, "published, and nowhere to be found"),
        Place("new", 2, "inserted", standardized.get("inserted", 0), GOOD, "the first version of a key"),
        Place("newer", 2, "updated", standardized.get("updated", 0), GOOD, "a newer version of a key"),
        Place("old", 2, "superseded", standardized.get("superseded", 0), QUIET, "a newer version was there already"),
        Place("copy", 2, "duplicates", standardized.get("duplicates", 0), QUIET, "the same message once more"),
        Place("broken", 2, "parse errors", standardized.get("parse_errors", 0), BAD, "no JSON object within limits"),
        Place("waiting", 2, "waiting", flow.waiting, QUIET, "not read by a batch yet"),
        Place("kept", 3, "Standardized", flow.kept, PLAIN, "versions for Curated to read"),
        Place("first", 4, "inserted", curated.get("inserted", 0), GOOD, "the first right version of a key"),
        Place("replaced", 4, "updated", curated.get("updated", 0), GOOD, "a newer right version of a key"),
        Place("same", 4, "unchanged", curated.get("unchanged", 0), QUIET, "curated already"),
        Place("behind", 4, "quarantined, behind", behind, BAD, "not right; an older right version stays in Curated"),
        Place("refused", 4, "quarantined, new", refused, BAD, "not right, and Curated has no older version"),
        Place("unread", 4, "passed over", flow.unread, QUIET, "replaced before Curated read them, or not read yet"),
    ]


@dataclass(frozen=True)
class Box:
    """A place that has its place."""

    place: Place
    x: float
    y: float
    height: float


@dataclass(frozen=True)
class Band:
    """A link that has its way: from the right edge of one box to the left edge of another."""

    source: Place
    target: Place
    count: int
    x: float
    y: float
    to_x: float
    to_y: float
    width: float


@dataclass(frozen=True)
class Drawing:
    """Everything with its measures."""

    boxes: tuple[Box, ...]
    bands: tuple[Band, ...]
    height: float


BOX = 10.0
LEAST = 2.0
"""What is seen however few it is."""
LINE = 40.0
"""What a label of two lines needs."""
GAP = 8.0


def drawn(graph: Graph, columns: Sequence[float], height: float) -> Drawing:
    """The graph with its columns at these places; the fullest column has this height without its gaps."""
    first = min((place.column for place in graph.places), default=0)
    totals = [sum(place.count for place in graph.places if place.column == first + at) for at in range(len(columns))]
    scale = height / max([*totals, 1])
    widths = {(source, target): max(LEAST, count * scale) for source, target, count in graph.links}
    boxes, bottom = {}, [0.0] * len(columns)
    for place in graph.places:
        comes = sum(width for (_, target), width in widths.items() if target == place.name)
        goes = sum(width for (source, _), width in widths.items() if source == place.name)
        tall = max(comes, goes, LEAST)
        at = place.column - first
        boxes[place.name] = Box(place, columns[at], bottom[at] + max(0.0, LINE - tall) / 2, tall)
        bottom[at] += max(tall, LINE) + GAP
    return Drawing(tuple(boxes.values()), _bands(graph, boxes, widths), max(bottom) - GAP)


def _bands(graph: Graph, boxes: dict[str, Box], widths: dict[tuple[str, str], float]) -> tuple[Band, ...]:
    left, entered = dict.fromkeys(boxes, 0.0), dict.fromkeys(boxes, 0.0)
    found = []
    for source, target, count in graph.links:
        box, to, width = boxes[source], boxes[target], widths[source, target]
        start, end = box.y + left[source], to.y + entered[target]
        found.append(Band(box.place, to.place, count, box.x + BOX, start, to.x, end, width))
        left[source] += width
        entered[target] += width
    return tuple(found)
