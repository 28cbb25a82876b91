"""Files named on the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leanops.domain.errors import UsageError


@contextmanager
def readable(file: Path | str) -> Iterator[None]:
    """Turn a failure to read a file into a message that says why."""
    try:
        yield
    except OSError as failure:
        raise UsageError(f"{file} cannot be read: {(failure.strerror or 'no such file').lower()}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8; convert it first") from None


def read_schema(path: Path) -> str:
    """The text of a schema file."""
    with readable(path):
        return path.read_text(encoding="utf-8")
