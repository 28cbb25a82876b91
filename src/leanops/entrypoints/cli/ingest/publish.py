"""Events from a file or standard input into a topic's queue."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from leanops.entrypoints.cli.files import readable
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Topic
from leanops.entrypoints.cli.output import counted, say
from leanops.entrypoints.cli.progress import counting

if TYPE_CHECKING:
    from leanops.domain.event.lines import Event
    from leanops.usecases.platform import Platform

EVENTS_PER_TICK = 1_000
File = Annotated[str, typer.Argument(metavar="FILE.jsonl|-", help="One event per line; - reads standard input.")]
Envelope = Annotated[
    bool | None,
    typer.Option(
        "--envelope/--no-envelope",
        help="Whether each line is an envelope with message_id, publish_time and payload, or a payload.",
    ),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Return when the events are in RAW; does the work itself if no serve is running."),
]


def publish(topic: Topic, file: File, envelope: Envelope = None, wait: Wait = False) -> None:
    """Publish every line of a file as an event. If any line is invalid, nothing is published."""
    with opened() as runtime:
        from leanops.runtimes.background import landing_of
        from leanops.usecases.ingest.publish import publish as send
        from leanops.usecases.ingest.publish import wait_until_landed
        from leanops.usecases.topics.registry import find_topic

        platform = runtime.platform
        find_topic(platform, topic)
        with _lines(file) as lines:
            total = _checked(platform, lines, file, envelope)
            lines.seek(0)
            with counting(f"publish {topic}", total, "events") as progress:
                events = _events(platform, lines, file, envelope)
                published = send(platform, runtime.queue, runtime.files, topic, events, progress)
        if wait:
            wait_until_landed(landing_of(runtime), topic)
    say(f"{counted(published, 'event')} published to {topic}{' and landed in RAW' if wait else ''}")


@contextmanager
def _lines(file: str) -> Iterator[IO[bytes]]:
    """The file, readable twice; standard input is copied to a temporary file for that."""
    if file == "-":
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.seek(0)
            yield copy
        return
    with ExitStack() as closing:
        with readable(file):
            lines = closing.enter_context(Path(file).open("rb"))
        yield lines


def _checked(platform: "Platform", lines: IO[bytes], file: str, envelope: bool | None) -> int:
    """The number of events; raises at the first line that is not one."""
    count = 0
    with counting(f"check {file}", None, "events") as progress:
        for count, _ in enumerate(_events(platform, lines, file, envelope), start=1):
            if count % EVENTS_PER_TICK == 0:
                progress(count)
    return count


def _events(platform: "Platform", lines: IO[bytes], file: str, envelope: bool | None) -> "Iterator[Event]":
    from leanops.usecases.ingest.publish import events_from_lines

    return events_from_lines(platform, lines, "standard input" if file == "-" else file, envelope=envelope)
