"""Quarantined rows: list, show."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leanops.domain.words import counted
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import (
    limited,
    note,
    print_json,
    print_json_array,
    print_table,
    say,
    shown,
    to_second,
)

if TYPE_CHECKING:
    from leanops.runtimes.runtime import Runtime

app = typer.Typer(no_args_is_help=True)
SHORT_ID = 12
SHOWN_CHARACTERS = 4_000
Event = tuple[dict[str, Any], str, str | None]
"""The fields of an event in JSON, a line about it, and its text; None if it no longer exists."""
_UNSETTLED = ("OPEN", "REPLAYED")


def _known_rule(rule: str) -> str:
    """The rule; raises UsageError with the nearest name if it does not exist."""
    import difflib

    from leanops.domain.errors import UsageError
    from leanops.domain.schema.rules import reasons

    known = reasons()
    if rule in known:
        return rule
    close = [name for name in known if rule in name] or difflib.get_close_matches(rule, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
    raise UsageError(f"there is no rule {rule!r}; {hint}")


TopicFilter = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")]
RuleFilter = Annotated[
    str | None,
    typer.Option("--rule", metavar="RULE", parser=_known_rule, help="Only this rule, such as cde_missing."),
]
LayerFilter = Annotated[
    Literal["dlq", "standardized", "curated"] | None, typer.Option("--layer", help="Only this layer.")
]
StatusFilter = Annotated[
    Literal["open", "replayed", "resolved", "superseded", "discarded", "all"] | None,
    typer.Option("--status", help="Only errors with this status; by default open and replayed."),
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
    with opened(topic) as runtime:
        from leanops.views.errors import Wanted, list_errors, summary

        statuses = _UNSETTLED if status is None else None if status == "all" else (status.upper(),)
        page = list_errors(runtime.sources(), Wanted(topic, rule, layer, statuses), limit)
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
    show_error(error_id, None, as_json)


def show_error(error_id: str, layer: str | None, as_json: bool) -> None:
    """Print an error, a line for each rule it breaks, and its event; `layer` is where to look, None is everywhere."""
    with opened() as runtime:
        from leanops.domain.failures import DEAD_LETTERS
        from leanops.views.errors import find_error

        error = find_error(runtime.sources(), error_id, layer)
        read = _archived if error["layer"] == DEAD_LETTERS else _in_raw
        fields, line, text = read(runtime, error)
    note("the event is shown as it was received; it may hold personal data", style="yellow")
    if as_json:
        print_json({**error, **fields})
        return
    left_out = {"failures"} if error["stored_status"] != error["status"] else {"failures", "stored_status"}
    print_table(("error", ""), [[name, shown(value)] for name, value in error.items() if name not in left_out])
    say("")
    columns = ("rule", "column", "path", "message", "value")
    print_table(columns, [[failure[column] for column in columns] for failure in error["failures"]])
    say(f"\n{line}")
    if text is not None:
        say(text)


def _in_raw(runtime: "Runtime", error: dict[str, Any]) -> Event:
    from leanops.views.errors import payload_of

    payload = payload_of(runtime.sources(), error)
    if payload is None:
        return {"payload": None, "copies": 0}, f"the event is no longer in {error['source']}", None
    size, copies = counted(len(payload.text.encode()), "byte"), counted(payload.copies, "row")
    fields = {"payload": payload.text, "copies": payload.copies}
    return fields, f"payload, {size}, {copies} in RAW:", payload.text


def _archived(runtime: "Runtime", error: dict[str, Any]) -> Event:
    """The archived bytes as text; those that are not UTF-8 as escapes."""
    body = runtime.files.get(str(error["source"]))
    if body is None:
        return {"archived": None, "bytes": None}, f"the archived file {error['source']} no longer exists", None
    text = body.decode("utf-8", "backslashreplace")
    fields = {"archived": text, "bytes": len(body)}
    return fields, f"archived, {counted(len(body), 'byte')}:", _for_people(text, error["error_id"])


def _for_people(text: str, error_id: str) -> str:
    """The text; on a terminal only the beginning of a long one."""
    if len(text) <= SHOWN_CHARACTERS or not sys.stdout.isatty():
        return text
    hint = f"see all of it with: leanops dlq show {error_id[:SHORT_ID]} | less"
    return f"{text[:SHOWN_CHARACTERS]}\n… and {counted(len(text) - SHOWN_CHARACTERS, 'more character')}; {hint}"
