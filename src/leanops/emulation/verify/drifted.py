"""Drift: what drift_log must say of the paths of a topic, from the batches in which events had them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leanops.emulation.events.leaves import Leaf
from leanops.emulation.events.profile import Profile
from leanops.emulation.verify.fates import Fates
from leanops.emulation.verify.found import EXAMPLES, Check, Wrong, identifier, text

ADDED, REMOVED, TYPE_CHANGED = "ADDED", "REMOVED", "TYPE_CHANGED"
OBJECT = "object"
Kinds = frozenset[str]
UNTOLD: Kinds = frozenset()
"""There, and of a kind the ledger does not tell."""
_NUMBER = "-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?"


class Line(NamedTuple):
    """A line of drift_log: the number of its batch, and the kinds before and after; None where they are not told."""

    path: str
    action: str
    batch: int
    old: str | None = None
    new: str | None = None
    column: str | None = None


@dataclass(frozen=True)
class Seen:
    """In which batches events had which paths, and of which kinds their values were."""

    batches: Sequence[int]
    """Those that brought events, in order."""
    paths: Mapping[str, Mapping[int, Kinds]]
    objects: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """In which batches values were objects for the first time that had the paths they bring."""

    def lines(self, patience: int) -> list[Line]:
        """Every line drift_log must have."""
        lines = []
        for path, kinds in self.paths.items():
            begins = min(kinds)
            lines.append(Line(path, ADDED, begins, None, _joined(kinds[begins])))
            lines += self._changes(path, kinds)
            lines += self._gaps(path, kinds, patience)
        return lines

    def _changes(self, path: str, kinds: Mapping[int, Kinds]) -> list[Line]:
        """The batches with a kind that the one which had the path before them had not."""
        lines, before, objects = [], UNTOLD, self.objects.get(path, frozenset())
        for batch in sorted(kinds.keys() | objects):
            now = kinds.get(batch, UNTOLD)
            known = before or frozenset(sorted(now)[:1])
            arrived = now | ({OBJECT} if batch in objects else UNTOLD)
            if arrived - known and batch != self.batches[0]:
                lines.append(Line(path, TYPE_CHANGED, batch, _joined(known), _joined(arrived)))
            before = now or before
        return lines

    def _gaps(self, path: str, kinds: Mapping[int, Kinds], patience: int) -> list[Line]:
        """The batches at which a path had not been seen for so many."""
        seen = [at for at, batch in enumerate(self.batches) if batch in kinds]
        ends = [*seen[1:], len(self.batches)]
        return [
            Line(path, REMOVED, self.batches[at + patience], _joined(kinds[self.batches[at]]))
            for at, end in zip(seen, ends, strict=True)
            if at + patience < end
        ]


def _joined(kinds: Kinds) -> str | None:
    return "|".join(sorted(kinds)) or None


def seen(fates: Fates, profile: Profile) -> Seen:
    """What the ledger tells of the paths of the events that were read."""
    paths: dict[str, dict[int, Kinds]] = defaultdict(dict)
    counts = ", ".join(f"count({identifier(leaf.canonical)})" for leaf in profile.leaves)
    rows = fates.rows(f"SELECT batch, {counts} FROM sent JOIN arrival USING (message_id) GROUP BY batch ORDER BY batch")
    fates.connection.execute(
        "CREATE OR REPLACE TABLE strange AS SELECT batch, s.* FROM sent s JOIN arrival USING (message_id) "
        "WHERE len(changed) > 0"
    )
    changed = {path for (path,) in fates.rows("SELECT DISTINCT unnest(changed) FROM strange")}
    for at, leaf in enumerate(profile.leaves, start=1):
        others = _others(fates, leaf) if leaf.canonical in changed else []
        strange: dict[int, int] = defaultdict(int)
        for batch, kind, count in others:
            strange[batch] += count
            paths[leaf.canonical][batch] = paths[leaf.canonical].get(batch, UNTOLD) | {kind}
        for row in rows:
            if row[at] > strange[row[0]]:
                paths[leaf.canonical][row[0]] = paths[leaf.canonical].get(row[0], UNTOLD) | {leaf.kind}
    extra = "SELECT DISTINCT batch, unnest(map_keys(extra)) FROM sent JOIN arrival USING (message_id)"
    for batch, path in fates.rows(f"{extra} WHERE cardinality(extra) > 0"):
        paths[path][batch] = UNTOLD
    return Seen([row[0] for row in rows], paths, _objects(paths, {leaf.canonical for leaf in profile.leaves}))


def _objects(paths: Mapping[str, Mapping[int, Kinds]], leaves: Collection[str]) -> dict[str, frozenset[int]]:
    """Leaves that events had before, and the batches in which paths below them were there for the first time."""
    found: dict[str, set[int]] = defaultdict(set)
    for path, kinds in paths.items():
        first = min(kinds)
        for leaf in leaves:
            if path.startswith((f"{leaf}.", f"{leaf}[")) and min(paths.get(leaf, {first: UNTOLD})) < first:
                found[leaf].add(first)
    return {leaf: frozenset(batches) for leaf, batches in found.items()}


def _others(fates: Fates, leaf: Leaf) -> list[tuple[int, str, int]]:
    """Batch, kind and number of the values that are of another kind than the leaf's own."""
    cell = identifier(leaf.canonical)
    forms = {"boolean": f"{cell} IN ('true', 'false')", "array": f"{cell}[1] = '['"}
    forms["number"] = f"regexp_full_match({cell}, {text(_NUMBER)})"
    cases = " ".join(f"WHEN {form} THEN '{kind}'" for kind, form in forms.items() if kind != leaf.kind)
    found = fates.rows(
        f"SELECT batch, CASE {cases} ELSE 'string' END AS kind, count(*) FROM strange "
        f"WHERE list_contains(changed, {text(leaf.canonical)}) GROUP BY ALL"
    )
    return [(batch, kind, count) for batch, kind, count in found]


def compare(expected: Iterable[Line], found: Sequence[Line], columns: Mapping[str, str]) -> Check:
    """Exactly these lines, each once and with its column; kinds are compared where the ledger tells them."""
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
    wrong.sort(key=lambda one: (one.message_id, one.what))
    return Check("drift", len(wanted), len(found), len(wrong), tuple(wrong[:EXAMPLES]))


def _named(line: Line) -> str:
    kinds = "" if line.old is None and line.new is None else f", {line.old or 'nothing'} to {line.new or 'nothing'},"
    return f"{line.action}{kinds} by batch {line.batch}"
