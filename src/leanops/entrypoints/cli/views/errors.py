"""Quarantined rows: list, show."""

from typing import Annotated, Any, Literal

import typer

from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import (
    counted,
    limited,
    note,
    print_json,
    print_json_array,
    print_table,
    say,
    shown,
    to_second,
)

app = typer.Typer(no_args_is_help=True)
SHORT_ID = 12
_UNSETTLED = ("OPEN", "REPLAYED")
TopicFilter = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")]
RuleFilter = Annotated[str | None, typer.Option("--rule", metavar="RULE", help="Only this rule, such as cde_missing.")]
LayerFilter = Annotated[
    Literal["dlq", "standardized", "curated"] | None, typer.Option("--layer", help="Only this layer.")
]
StatusFilter = Annotated[
    Literal["open", "replayed", "resolved", "superseded", "discarded", "all"] | None,
    typer.Option("--status", help="Only with this status; open and replayed if left out."),
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
    """List quarantined rows, newest first, with every rule they break."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import find_topic
        from leanops.views.errors import Wanted, list_errors, summary

        if topic:
            find_topic(runtime.platform, topic)
        statuses = _UNSETTLED if status is None else None if status == "all" else (status.upper(),)
        page = list_errors(runtime.sources(), Wanted(topic, known_rule(rule), layer, statuses), limit)
    if as_json:
        print_json_array(page.rows)
        return
    columns = ("topic_name", "layer", "status", "message_id")
    rows = [
        [row["error_id"][:SHORT_ID], to_second(row["detected_ts"]), *map(row.get, columns), summary(row["failures"])]
        for row in page.rows
    ]
    if rows:
        print_table(("error", "detected", "topic", "layer", "status", "message", "failures"), rows)
    passed = f"; {page.passed:,} resolved or superseded, shown with --status all" if page.passed else ""
    say(limited(len(rows), "error", limit) + (passed if status is None else ""))


@app.command()
def show(error_id: ErrorId, as_json: Json = False) -> None:
    """Show one error and its event, read from RAW or from the archive of dead letters."""
    with opened() as runtime:
        from leanops.domain.failures import DEAD_LETTERS
        from leanops.entrypoints.cli.ingest.dlq import show_dead_letter
        from leanops.views.errors import find_error, payload_of

        sources = runtime.sources()
        error = find_error(sources, error_id)
        if error["layer"] == DEAD_LETTERS:
            show_dead_letter(runtime, error, as_json)
            return
        payload = payload_of(sources, error)
    note("the event is shown as it was received; it may hold personal data", style="yellow")
    text = payload.text if payload else None
    if as_json:
        print_json({**error, "payload": text, "copies": payload.copies if payload else 0})
        return
    print_error(error)
    if payload is None:
        say(f"the event is no longer in {error['source']}")
    else:
        size, copies = len(payload.text.encode()), counted(payload.copies, "row")
        say(f"payload, {counted(size, 'byte')}, {copies} in RAW:")
        say(payload.text)


def print_error(error: dict[str, Any]) -> None:
    """Print the row, and a line for each rule it breaks."""
    has_changed = error["stored_status"] != error["status"]
    left_out = ("failures",) if has_changed else ("failures", "stored_status")
    rows = [[name, shown(value)] for name, value in error.items() if name not in left_out]
    print_table(("error", ""), rows)
    say("")
    columns = ("rule", "column", "path", "message", "value")
    print_table(columns, [[failure[column] for column in columns] for failure in error["failures"]])
    say("")


def known_rule(rule: str | None) -> str | None:
    """The rule; raises UsageError with the nearest name if it does not exist."""
    import difflib

    from leanops.domain.errors import UsageError
    from leanops.domain.schema.rules import reasons

    known = reasons()
    if rule is None or rule in known:
        return rule
    close = [name for name in known if rule in name] or difflib.get_close_matches(rule, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
    raise UsageError(f"there is no rule {rule!r}; {hint}")
