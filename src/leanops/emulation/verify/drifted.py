"""Drift: what drift_log must say about the paths of a topic, from the batches in which events had them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from leanops.emulation.events.profile import Leaf
from leanops.emulation.verify.fates import Fates
from leanops.emulation.verify.tables import Check, Wrong, identifier, text

ADDED, REMOVED, TYPE_CHANGED = "ADDED", "REMOVED", "TYPE_CHANGED"
OBJECT = "object"
Kinds = frozenset[str]
UNKNOWN: Kinds = frozenset()
"""There, but of a kind that the ledger does not know."""
_NUMBER = "-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?"


class Line(NamedTuple):
    """A line of drift_log: the number of its batch, and the kinds before and after; None if they are unknown."""

    path: str
    action: str
    batch: int
    old: str | None = None
    new: str | None = None
    column: str | None = None


@dataclass(frozen=True)
class Seen:
    """The batches in which events had each path, and the kinds of its values."""

    batches: Sequence[int]
    """Those with events, in order."""
    paths: Mapping[str, Mapping[int, Kinds]]
    objects: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Path → the batches in which its values became objects with paths that had never been there."""

    def lines(self, patience: int) -> list[Line]:
        """Every line that drift_log must have."""
        lines = []
        for path, kinds in self.paths.items():
            begins = min(kinds)
            lines.append(Line(path, ADDED, begins, None, _joined(kinds[begins])))
            lines += self._changes(path, kinds)
            lines += self._gaps(path, kinds, patience)
        return lines

    def _changes(self, path: str, kinds: Mapping[int, Kinds]) -> list[Line]:
        """The batches with a kind that the previous batch with this path did not have."""
        lines, before, objects = [], UNKNOWN, self.objects.get(path, frozenset())
        for batch in sorted(kinds.keys() | objects):
            now = kinds.get(batch, UNKNOWN)
            known = before or frozenset(sorted(now)[:1])
            arrived = now | ({OBJECT} if batch in objects else UNKNOWN)
            if arrived - known and batch != self.batches[0]:
                kinds_of_both = (_joined(known), _joined(arrived)) if known else (None, None)
                lines.append(Line(path, TYPE_CHANGED, batch, *kinds_of_both))
            before = now or before
        return lines

    def _gaps(self, path: str, kinds: Mapping[int, Kinds], patience: int) -> list[Line]:
        """The batches at which a path had not been seen for `patience` batches."""
        seen = [at for at, batch in enumerate(self.batches) if batch in kinds]
        ends = [*seen[1:], len(self.batches)]
        return [
            Line(path, REMOVED, self.batches[at + patience], _joined(kinds[self.batches[at]]))
            for at, end in zip(seen, ends, strict=True)
            if at + patience < end
        ]


def _joined(kinds: Kinds) -> str | None:
    return "|".join(sorted(kinds)) or None


def seen(fates: Fates) -> Seen:
    """What the ledger knows about the paths of the events that were read."""
    leaves = fates.profile.leaves
    paths: dict[str, dict[int, Kinds]] = defaultdict(dict)
    counts = ", ".join(f"count({identifier(leaf.canonical)})" for leaf in leaves)
    rows = fates.rows(f"SELECT batch, {counts} FROM sent JOIN arrival USING (message_id) GROUP BY batch ORDER BY batch")
    fates.connection.execute(
        "CREATE OR REPLACE TABLE strange AS SELECT batch, s.* FROM sent s JOIN arrival USING (message_id) "
        "WHERE len(changed) > 0"
    )
    changed = {path for (path,) in fates.rows("SELECT DISTINCT unnest(changed) FROM strange")}
    for at, leaf in enumerate(leaves, start=1):
        others = _others(fates, leaf) if leaf.canonical in changed else []
        strange: dict[int, int] = defaultdict(int)
        for batch, kind, count in others:
            strange[batch] += count
            paths[leaf.canonical][batch] = paths[leaf.canonical].get(batch, UNKNOWN) | {kind}
        for row in rows:
            if row[at] > strange[row[0]]:
                paths[leaf.canonical][row[0]] = paths[leaf.canonical].get(row[0], UNKNOWN) | {leaf.kind}
    extra = "SELECT DISTINCT batch, unnest(map_keys(extra)) FROM sent JOIN arrival USING (message_id)"
    for batch, path in fates.rows(f"{extra} WHERE cardinality(extra) > 0"):
        paths[path][batch] = UNKNOWN
    return Seen([row[0] for row in rows], paths, objects(paths))


def objects(paths: Mapping[str, Mapping[int, Kinds]]) -> dict[str, frozenset[int]]:
    """Paths that events had before, and the batches in which paths below them were first there."""
    first_batches: dict[str, set[int]] = defaultdict(set)
    firsts = {path: min(batches) for path, batches in paths.items()}
    for path, first in firsts.items():
        for above, before in firsts.items():
            if before < first and path.startswith((f"{above}.", f"{above}[")):
                first_batches[above].add(first)
    return {path: frozenset(batches) for path, batches in first_batches.items()}


def _others(fates: Fates, leaf: Leaf) -> list[tuple[Any, ...]]:
    """Batch, kind and number of the values of another kind than that of the leaf."""
    cell = identifier(leaf.canonical)
    forms = {"boolean": f"{cell} IN ('true', 'false')", "array": f"{cell}[1] = '['"}
    forms["number"] = f"regexp_full_match({cell}, {text(_NUMBER)})"
    cases = " ".join(f"WHEN {form} THEN '{kind}'" for kind, form in forms.items() if kind != leaf.kind)
    return fates.rows(
        f"SELECT batch, CASE {cases} ELSE 'string' END AS kind, count(*) FROM strange "
        f"WHERE list_contains(changed, {text(leaf.canonical)}) GROUP BY ALL"
    )


def compare(expected: Iterable[Line], found: Sequence[Line], columns: Mapping[str, str]) -> Check:
    """drift_log has exactly these lines, once each and with their columns; kinds are compared if they are known."""
    wanted = {(line.path, line.action, line.batch): line for line in expected}
    logged: dict[tuple[str, str, int], list[Line]] = defaultdict(list)
    for line in found:
        logged[line.path, line.action, line.batch].append(line)
    wrong = [
        Wrong(line.path, f"is not in drift_log as {_named(line)}") for at, line in wanted.items() if at not in logged
    ]
    for at, lines in logged.items():
        must = wanted.get(at)
        if must is None:
            wrong.append(Wrong(lines[0].path, f"must not be in drift_log as {_named(lines[0])}"))
        elif len(lines) > 1:
            wrong.append(Wrong(must.path, f"is in drift_log {len(lines)} times as {_named(must)}"))
        elif (must.old, must.new) != (None, None) and (lines[0].old, lines[0].new) != (must.old, must.new):
            wrong.append(Wrong(must.path, f"is in drift_log with other kinds than as {_named(must)}"))
        elif lines[0].column != columns.get(must.path):
            wrong.append(Wrong(must.path, f"is in drift_log with another column as {_named(must)}"))
    wrong.sort(key=attrgetter("message_id", "what"))
    return Check.of("drift", len(wanted), len(found), wrong)


def _named(line: Line) -> str:
    kinds = "" if line.old is None and line.new is None else f", {line.old or 'nothing'} to {line.new or 'nothing'},"
    return f"{line.action}{kinds} by batch {line.batch}"
