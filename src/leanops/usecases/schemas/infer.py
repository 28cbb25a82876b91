"""Proposes a first schema from what the events in RAW hold, read by the casts of the cycle itself."""

import json
from dataclasses import dataclass, replace
from typing import Any

from leanops.domain.errors import UsageError
from leanops.domain.event.names import table_stem
from leanops.domain.schema.infer import InferredColumn, Proposal, propose
from leanops.domain.schema.model import Keys, schema_from_json
from leanops.ports.engine import Measured
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.raw_events import events_of, raw_rows
from leanops.usecases.topics.registry import find_topic

SAMPLE = 100_000
"""About how many events are read by default."""
_TOO_MANY = "left out: paths that the first events do not have, because there are too many"


@dataclass(frozen=True)
class Inferred:
    """A proposal as the text of a schema file, and what it was made from."""

    topic: str
    text: str
    rows: int
    events: int
    is_sample: bool
    keys: dict[str, str]
    columns: tuple[InferredColumn, ...]
    notes: tuple[str, ...]
    never_filled: tuple[str, ...]
    """Paths that were only ever null: nothing is known of them."""

    def as_json(self) -> dict[str, Any]:
        """The fields without the text, which is written to a file, and columns as that file defines them."""
        columns = [{**column.definition(), "events": column.events} for column in self.columns]
        form = {**vars(self), "columns": columns}
        del form["text"]
        return form


def infer_schema(platform: Platform, topic: str, *, sample: int = SAMPLE) -> Inferred:
    """Propose a schema that accepts every event read: all of RAW, or about `sample` rows of it."""
    find_topic(platform, topic)
    raw = platform.catalog.load(platform.rules.databases.raw_table(topic))
    count = raw_rows(raw)
    if raw is None or not count:
        raise UsageError(f"topic {topic!r} has no events yet; publish some, then try again")
    share = min(1.0, sample / count)
    measured = platform.engine().measure(events_of(platform, topic, raw, Keys(), share))
    active = platform.schemas.active(topic)
    return _inferred(topic, active.table_name if active else table_stem(topic), measured, is_sample=share < 1)


def _inferred(topic: str, table_name: str, measured: Measured, *, is_sample: bool) -> Inferred:
    counts, seen = measured.counts, measured.seen
    good = counts.get("rows", 0) - counts.get("parse_errors", 0)
    if not seen:
        raise UsageError(f"no event of topic {topic!r} holds a value; see: leanops errors list --topic {topic}")
    proposal = propose(seen, good, good - counts.get("missing_keys", 0))
    if measured.has_more:
        proposal = replace(proposal, notes=(*proposal.notes, _TOO_MANY))
    text = proposed_text(table_name, proposal)
    schema_from_json(text, "the proposal")
    return Inferred(
        topic=topic,
        text=text,
        rows=counts.get("rows", 0),
        events=good,
        is_sample=is_sample,
        keys=dict(proposal.keys),
        columns=proposal.columns,
        notes=proposal.notes,
        never_filled=tuple(sorted(measured.kinds.keys() - {path.path for path in seen})),
    )


def proposed_text(table_name: str, proposal: Proposal) -> str:
    """The schema file of a proposal."""
    keys = {"keys": dict(proposal.keys)} if proposal.keys else {}
    members = {
        "table_name": table_name,
        "version": 1,
        "description": " ".join(["Inferred from RAW.", *(f"{note}." for note in proposal.notes)]),
        **keys,
        "envelope_columns": [{"name": "message_id", "type": "STRING"}, {"name": "publish_time", "type": "TIMESTAMP"}],
        "payload_columns": [column.definition() for column in proposal.columns],
    }
    return json.dumps(members, ensure_ascii=False, indent=2) + "\n"
