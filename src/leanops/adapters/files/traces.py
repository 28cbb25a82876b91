"""Traces of unexpected failures in a file that is small, private, and quotes no data."""

import os
import re
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from leanops.domain.errors import LeanOpsError

FILE = "failures.log"
MOST_BYTES = 1_000_000
MOST_LINES = 200
"""Of one exception; a recursion has thousands of frames."""
WITHHELD = "(text left out: it may quote data)"
_JAVA_FRAME = re.compile(r"^\s*at [\w.$/<>-]+\((?:[\w$]+\.(?:java|scala):\d+|Native Method|Unknown Source)\)$", re.M)
_JAVA_CLASS = re.compile(r"^(?:Caused by: )?((?:[a-z]\w*\.){2,}[A-Z][\w$]*(?:Exception|Error))\b", re.M)


class Traces:
    """Keeps the last megabyte of traces, and the megabyte before it as `failures.log.1`.

    The class and frames of a foreign exception are written, but not its text: an engine may quote a payload there.
    Of a Java trace inside that text, the class names and frames are written. Only the system's message about a file or
    a connection is written as it is; it names nothing else.
    """

    def __init__(self, folder: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.file = folder / FILE
        self._clock = clock

    def keep(self, failure: BaseException) -> bool:
        """Write a trace; whether it could be written. A full disk must not cause a second failure."""
        try:
            self.file.parent.mkdir(mode=0o700, exist_ok=True)
            if self.file.exists() and self.file.stat().st_size > MOST_BYTES:
                self.file.replace(self.file.with_name(f"{FILE}.1"))
            handle = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(self._text(failure))
        except OSError:
            return False
        return True

    def _text(self, failure: BaseException) -> str:
        heading = f"{self._clock():%Y-%m-%d %H:%M:%S} UTC, process {os.getpid()}, {threading.current_thread().name}"
        return "\n".join([heading, *_lines(failure, set()), "", ""])


def _lines(failure: BaseException, seen: set[int]) -> Iterator[str]:
    """An exception after those that led to it, as Python prints them."""
    seen.add(id(failure))
    before = failure.__cause__ or (None if failure.__suppress_context__ else failure.__context__)
    if before is not None and id(before) not in seen:
        yield from _lines(before, seen)
        yield "which led to"
    frames = [line for part in traceback.format_tb(failure.__traceback__) for line in part.splitlines()]
    yield from frames[-MOST_LINES:]
    yield f"{type(failure).__module__}.{type(failure).__qualname__}: {_message(failure)}"
    if not isinstance(failure, LeanOpsError):
        yield from _java_lines(failure)


def _message(failure: BaseException) -> str:
    if isinstance(failure, LeanOpsError):
        return str(failure)
    if isinstance(failure, OSError) and failure.errno:
        return " ".join(str(failure).split())
    return WITHHELD


def _java_lines(failure: BaseException) -> Iterator[str]:
    try:
        text = str(failure)
    except Exception:  # noqa: BLE001 - py4j asks Java for the text, and Java may be gone
        return
    matches = sorted([*_JAVA_CLASS.finditer(text), *_JAVA_FRAME.finditer(text)], key=lambda match: match.start())
    for match in matches[:MOST_LINES]:
        yield f"  {match[match.lastindex or 0].strip()}"
