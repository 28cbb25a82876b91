"""A profile: what the events of a topic look like, as text, as cells and as a schema."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import is_, itemgetter
from typing import Any, NamedTuple

from leanops.emulation.events.leaves import Cells, Draw, Form, Leaf, escaped

KEY, PERIOD, VERSION = 0, 1, 2
"""The positions of the leaves for the key of an event, its month and its version."""
_MARK = re.compile("<([0-9]+)>")
_GAPS = {Form.PLAIN: '"%s"', Form.PROSE: "%s", Form.BARE: "%s"}


@dataclass(frozen=True)
class Profile:
    """Leaves in the order in which events hold them; the first three are key, period and version."""

    name: str
    description: str
    owner: str
    leaves: tuple[Leaf, ...]
    measures: tuple[str, ...] = ()
    has_version: bool = True
    """Whether events carry a version; if not, their publish time is their version."""

    @cached_property
    def optional(self) -> tuple[int, ...]:
        """The leaves that a valid event may lack."""
        return tuple(at for at, leaf in enumerate(self.leaves) if at > VERSION and not leaf.cde)

    def cells(self, draw: Draw, periods: Cells, versions: Cells) -> Iterator[tuple[str | None, ...]]:
        """The cells of each event of a chunk."""
        columns = [leaf.make(draw) for leaf in self.leaves]
        columns[PERIOD] = periods
        columns[VERSION] = versions if self.has_version else [None] * len(versions)
        return zip(*columns, strict=True)

    def text(self, cells: Sequence[str | None]) -> str:
        """An event as JSON."""
        template = self._template(tuple(map(is_, cells, self._nothing)))
        if template.prose:
            cells = list(cells)
            for at in template.prose:
                cells[at] = escaped(cells[at] or "")
        return template.text % template.chosen(cells)

    def _template(self, missing: tuple[bool, ...]) -> "_Template":
        """The text of events that lack some leaves, with gaps for the others."""
        if missing not in self._templates:
            present = [(at, leaf) for at, leaf in enumerate(self.leaves) if not missing[at]]
            marked = written((leaf.path, f"<{at}>") for at, leaf in present)
            order = [int(at) for at in _MARK.findall(marked)]
            text = _MARK.sub(lambda mark: _GAPS[self.leaves[int(mark[1])].form], marked)
            prose = frozenset(at for at, leaf in present if leaf.form == Form.PROSE)
            self._templates[missing] = _Template(text, itemgetter(*order), prose)
        return self._templates[missing]

    @cached_property
    def _templates(self) -> "dict[tuple[bool, ...], _Template]":
        return {}

    @cached_property
    def _nothing(self) -> tuple[None, ...]:
        return (None,) * len(self.leaves)

    def schema(self, table: str) -> dict[str, Any]:
        """The schema file of a topic with this profile."""
        keys = {"idempotency_key": self.leaves[KEY].canonical, "period": self.leaves[PERIOD].canonical}
        if self.has_version:
            keys["version"] = self.leaves[VERSION].canonical
        return {
            "table_name": table,
            "owner": self.owner,
            "description": self.description,
            "keys": keys,
            "envelope_columns": [{"name": "message_id", "type": "STRING"}],
            "payload_columns": [_column(leaf) for leaf in self.leaves if leaf.type],
            "measures": list(self.measures),
        }


class _Template(NamedTuple):
    """A text with gaps, the cells that fill them in order, and those that must be escaped first."""

    text: str
    chosen: Callable[[Sequence[str | None]], tuple[str, ...]]
    prose: frozenset[int]


def _column(leaf: Leaf) -> dict[str, Any]:
    column: dict[str, Any] = {"name": leaf.column, "path": leaf.canonical, "type": leaf.type, "cde": leaf.cde}
    column |= {"default": leaf.default, "rules": dict(leaf.rules), "pii": leaf.pii}
    return {name: value for name, value in column.items() if value}


def written(values: Iterable[tuple[str, str]]) -> str:
    """A JSON object, from paths and the JSON at each of them."""
    tree: dict[str, Any] = {}
    for path, token in values:
        *outer, last = path.split(".")
        at = tree
        for name in outer:
            at = at.setdefault(name, {})
        at[last] = token
    return _object(tree)


def _object(tree: dict[str, Any]) -> str:
    members = (f'"{name}":{_object(value) if isinstance(value, dict) else value}' for name, value in tree.items())
    return f"{{{','.join(members)}}}"
