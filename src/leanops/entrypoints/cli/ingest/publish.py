"""Events from a file or standard input into a topic's queue."""

import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from leanops.domain.words import counted
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.input import readable
from leanops.entrypoints.cli.options import Topic
from leanops.entrypoints.cli.output import say
from leanops.entrypoints.cli.progress import counting

if TYPE_CHECKING:
    from leanops.domain.event.lines import Event

EVENTS_PER_TICK = 1_000
File = Annotated[str, typer.Argument(metavar="FILE.jsonl|-", help="One event per line; - reads standard input.")]
Envelope = Annotated[
    bool | None,
    typer.Option(
        "--envelope/--no-envelope",
        help="Each line is an envelope (message_id, publish_time, payload); with --no-envelope each is a payload, even "
        "one that looks like an envelope. If left out, a line is a payload, and an envelope is refused.",
    ),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Return when the events are in RAW; does the work itself if no serve is running."),
]


def publish(topic: Topic, file: File, envelope: Envelope = None, wait: Wait = False) -> None:
    """Publish every line of a file as an event. If any line is invalid, nothing is published."""
    with opened(topic) as runtime, _lines(file) as lines:
        from leanops.runtimes.background import landing_of
        from leanops.usecases.ingest.publish import events_from_lines, wait_until_landed
        from leanops.usecases.ingest.publish import publish as send

        source = "standard input" if file == "-" else file
        if file == "-":
            shutil.copyfileobj(sys.stdin.buffer, lines)

        def events() -> "Iterable[Event]":
            lines.seek(0)
            return events_from_lines(runtime.platform, lines, source, envelope=envelope)

        total = _checked(events(), file)
        with counting(f"publish {topic}", total, "events") as progress:
            published = send(runtime.platform, runtime.queue, runtime.files, topic, events(), progress)
        if wait:
            wait_until_landed(landing_of(runtime), topic)
    say(f"{counted(published, 'event')} published to {topic}{' and landed in RAW' if wait else ''}")


def _lines(file: str) -> IO[bytes]:
    """The file, or an empty one for a copy of standard input: both can be read twice."""
    with readable(file):
        return tempfile.TemporaryFile() if file == "-" else Path(file).open("rb")


def _checked(events: "Iterable[Event]", file: str) -> int:
    """The number of events; raises at the first line that is not one."""
    count = 0
    with counting(f"check {file}", None, "events") as progress:
        for count, _ in enumerate(events, start=1):
            if count % EVENTS_PER_TICK == 0:
                progress(count)
    return count
