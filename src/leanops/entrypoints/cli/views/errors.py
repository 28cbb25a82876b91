"""Quarantined rows: listed and inspected."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import counted, note, print_json, print_json_array, print_table, say, shown

app = typer.Typer(no_args_is_help=True)
SHORT_ID = 12
_SHOWN = ("topic_name", "layer", "status", "message_id")


class Layer(StrEnum):
    """The layer an error was found in."""

    DLQ = "dlq"
    STANDARDIZED = "standardized"
    CURATED = "curated"


class StatusName(StrEnum):
    """What became of an error; resolved and superseded follow from the tables as they are now."""

    OPEN = "open"
    REPLAYED = "replayed"
    RESOLVED = "resolved"
    SUPERSEDED = "superseded"
    DISCARDED = "discarded"
    ALL = "all"


_UNSETTLED = (StatusName.OPEN.name, StatusName.REPLAYED.name)
TopicFilter = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")]
RuleFilter = Annotated[str | None, typer.Option("--rule", metavar="RULE", help="Only this rule, like cde_missing.")]
LayerFilter = Annotated[Layer | None, typer.Option("--layer", help="Only this layer.")]
StatusFilter = Annotated[
    StatusName | None, typer.Option("--status", help="Only with this status; open and replayed if left out.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most this many, newest first.")]
ErrorId = Annotated[str, typer.Argument(metavar="ERROR_ID", help="Id of the error, or its first characters.")]


@app.command("list")
def list_(
    topic: TopicFilter = None,
    rule: RuleFilter = None,
    layer: LayerFilter = None,
    status: StatusFilter = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List quarantined rows, newest first, with every rule broken."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import find_topic
        from leanops.views.errors import Wanted, list_errors, summary

        if topic:
            find_topic(runtime.platform, topic)
        found = list_errors(runtime.sources(), Wanted(topic, known_rule(rule), layer, _statuses(status)), limit)
    if as_json:
        print_json_array(found.rows)
        return
    rows = [
        [
            row["error_id"][:SHORT_ID],
            row["detected_ts"].replace(microsecond=0),
            *(row[name] for name in _SHOWN),
            summary(row["failures"]),
        ]
        for row in found.rows
    ]
    if rows:
        print_table(("error", "detected", "topic", "layer", "status", "message", "failures"), rows)
    said = f"the newest {limit:,}; more with --limit" if len(rows) == limit else counted(len(rows), "error")
    passed = status is None and found.passed
    say(f"{said}; {found.passed:,} resolved or superseded left out, see them with --status all" if passed else said)


def _statuses(status: StatusName | None) -> tuple[str, ...] | None:
    if status is None:
        return _UNSETTLED
    return None if status is StatusName.ALL else (status.name,)


@app.command()
def show(error_id: ErrorId, as_json: Json = False) -> None:
    """Show one error and its event, fetched from RAW, or from the archive of dead letters."""
    with opened() as runtime:
        from leanops.entrypoints.cli.ingest.dlq import show_dead_letter
        from leanops.views.errors import find_error, payload_of

        sources = runtime.sources()
        error = find_error(sources, error_id)
        if error["layer"] == Layer.DLQ:
            show_dead_letter(runtime, error, as_json)
            return
        payload = payload_of(sources, error)
    note("the payload is the event as it was received; it may hold personal data", style="yellow")
    text = payload.text if payload else None
    if as_json:
        print_json({**error, "payload": text, "copies": payload.copies if payload else 0})
        return
    print_error(error)
    if payload is None:
        say(f"the event is no longer in {error['source']}")
    else:
        say(f"payload, {len(payload.text.encode()):,} bytes, {payload.copies} in RAW:")
        say(payload.text)


def print_error(error: dict[str, Any]) -> None:
    """The row, and a line for each rule it broke."""
    told = error["stored_status"] != error["status"]
    left_out = ("failures",) if told else ("failures", "stored_status")
    rows = [[name, shown(value)] for name, value in error.items() if name not in left_out]
    print_table(("error", ""), rows)
    say("")
    columns = ("rule", "column", "path", "message", "value")
    failures = [[failure[column] for column in columns] for failure in error["failures"]]
    print_table(columns, failures)
    say("")


def known_rule(rule: str | None) -> str | None:
    """The rule itself if it is on the list; a typo is told."""
    import difflib

    from leanops.domain.errors import UsageError
    from leanops.domain.schema.rules import reasons

    known = reasons()
    if rule is None or rule in known:
        return rule
    close = [one for one in known if rule in one] or difflib.get_close_matches(rule, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
    raise UsageError(f"there is no rule {rule!r}; {hint}")
