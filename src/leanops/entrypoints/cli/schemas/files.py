"""Schema files named on the command line."""

from pathlib import Path

from leanops.domain.errors import UsageError


def read_schema(path: Path) -> str:
    """The text of a schema file, or a line that says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as missing:
        raise UsageError(f"{path} cannot be read: {(missing.strerror or 'no such file').lower()}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8; convert it first") from None
