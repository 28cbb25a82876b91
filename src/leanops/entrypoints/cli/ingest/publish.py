"""Events of a file, or of standard input, into a topic's queue."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Topic
from leanops.entrypoints.cli.output import counted, say
from leanops.entrypoints.cli.progress import counting

if TYPE_CHECKING:
    from leanops.domain.event.lines import Event
    from leanops.usecases.platform import Platform

EVENTS_PER_TICK = 1_000
File = Annotated[str, typer.Argument(metavar="FILE.jsonl|-", help="One event a line; - reads standard input.")]
Envelope = Annotated[
    bool | None,
    typer.Option(
        "--envelope/--no-envelope",
        help="Each line is an envelope with message_id, publish_time and payload; with --no-envelope none is.",
    ),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Return when the events are in RAW; the work is done here where no serve does it."),
]


def publish(topic: Topic, file: File, envelope: Envelope = None, wait: Wait = False) -> None:
    """Publish every line of a file as an event. If one line is bad, nothing is published."""
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
    say(f"{counted(published, 'event')} published to {topic}{', and in RAW' if wait else ''}")


@contextmanager
def _lines(file: str) -> Iterator[IO[bytes]]:
    """The file, readable twice; standard input is kept aside for that."""
    if file == "-":
        with tempfile.TemporaryFile() as kept:
            while piece := sys.stdin.buffer.read(1 << 20):
                kept.write(piece)
            kept.seek(0)
            yield kept
        return
    with ExitStack() as closing:
        try:
            source = closing.enter_context(Path(file).open("rb"))
        except OSError as missing:
            raise UsageError(f"{file} cannot be read: {(missing.strerror or 'no such file').lower()}") from None
        yield source


def _checked(platform: "Platform", lines: IO[bytes], file: str, envelope: bool | None) -> int:
    """How many events there are; raises at the first line that is none."""
    count = 0
    with counting(f"check {file}", None, "events") as progress:
        for count, _ in enumerate(_events(platform, lines, file, envelope), start=1):
            if count % EVENTS_PER_TICK == 0:
                progress(count)
    return count


def _events(platform: "Platform", lines: IO[bytes], file: str, envelope: bool | None) -> "Iterator[Event]":
    from leanops.usecases.ingest.publish import events_from_lines

    return events_from_lines(platform, lines, "standard input" if file == "-" else file, envelope=envelope)
