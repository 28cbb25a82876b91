"""The flow as a graph: places in columns, and the number of events between them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leanops.emulation.report.numbers import Flow

PLAIN, GOOD, QUIET, BAD = "plain", "good", "quiet", "bad"
Link = tuple[str, str, int]
"""From, to, and the number of events."""


@dataclass(frozen=True)
class Place:
    """Where events are, or what became of them."""

    name: str
    column: int
    label: str
    count: int
    tone: str
    note: str


@dataclass(frozen=True)
class Graph:
    """Places, and the number of events between them."""

    places: tuple[Place, ...]
    links: tuple[Link, ...]

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
    """The whole flow, without the places that nothing reached."""
    places = [place for place in _places(flow) if place.count > 0]
    at = [[place for place in places if place.column == column] for column in range(5)]
    links = [
        ("published", "raw", flow.raw - flow.again - flow.unknown),
        ("published", "dead", flow.dead),
        ("published", "missing", flow.missing),
        ("again", "raw", flow.again),
        ("unknown", "raw", flow.unknown),
        *_poured([place for place in at[1] if place.name in ("raw", "not_in_raw")], at[2]),
        *((place.name, "kept", place.count) for place in at[2] if place.name in ("new", "newer")),
        *_poured(at[3], at[4]),
    ]
    return Graph(tuple(places), tuple(link for link in links if link[2] > 0))


def _poured(sources: Sequence[Place], targets: Sequence[Place]) -> Iterator[Link]:
    """Links that empty the sources one by one into the targets; both sides have the same total."""
    left = {place.name: place.count for place in sources}
    for target in targets:
        wanted = target.count
        for source in left:
            taken = min(wanted, left[source])
            yield source, target.name, taken
            left[source] -= taken
            wanted -= taken


def _places(flow: Flow) -> list[Place]:
    standardized, curated = Counter(flow.standardized), Counter(flow.curated)
    behind = curated["behind"]
    refused = curated["errors"] - behind
    return [
        Place("published", 0, "published", flow.published, PLAIN, "sent to the queues"),
        Place("again", 0, "delivered again", flow.again, QUIET, "sent again because an acknowledgement was lost"),
        Place("unknown", 0, "never published", flow.unknown, BAD, "in RAW, but never sent"),
        Place("raw", 1, "RAW", flow.raw, PLAIN, "kept as they were received"),
        Place("not_in_raw", 1, "not in RAW", flow.not_in_raw, BAD, "counted by batches, but not in RAW"),
        Place("dead", 1, "dead letters", flow.dead, BAD, "too broken to land; kept in dlq_errors"),
        Place("missing", 1, "missing", flow.missing, BAD, "published, but nowhere to be found"),
        Place("new", 2, "inserted", standardized["inserted"], GOOD, "the first version of a key"),
        Place("newer", 2, "updated", standardized["updated"], GOOD, "a newer version of a key"),
        Place("old", 2, "superseded", standardized["superseded"], QUIET, "a newer version was already there"),
        Place("copy", 2, "duplicates", standardized["duplicates"], QUIET, "the same message again"),
        Place("broken", 2, "parse errors", standardized["parse_errors"], BAD, "not a JSON object within the limits"),
        Place("waiting", 2, "waiting", flow.waiting, QUIET, "not read by a batch yet"),
        Place("uncounted", 2, "not counted", flow.uncounted, BAD, "passed by a batch that did not count them"),
        Place("kept", 3, "Standardized", flow.kept, PLAIN, "versions for Curated to read"),
        Place("not_kept", 3, "not there", flow.not_in_standardized, BAD, "counted by batches, but not in Standardized"),
        Place("first", 4, "inserted", curated["inserted"], GOOD, "the first valid version of a key"),
        Place("replaced", 4, "updated", curated["updated"], GOOD, "a newer valid version of a key"),
        Place("same", 4, "unchanged", curated["unchanged"], QUIET, "curated already"),
        Place("behind", 4, "quarantined, behind", behind, BAD, "invalid; an older valid version stays in Curated"),
        Place("refused", 4, "quarantined, new", refused, BAD, "invalid, and Curated has no older version"),
        Place("unread", 4, "passed over", flow.unread, QUIET, "replaced before Curated read them, or not read yet"),
    ]
