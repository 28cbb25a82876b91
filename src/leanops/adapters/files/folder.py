"""Files in a folder."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leanops.domain.errors import FilesUnavailableError, PermanentError
from leanops.ports.files import checked_name


class Folder:
    """The Files port on a folder; a name stays inside it, and a file is there whole or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with _answering(name):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)

    def get(self, name: str) -> bytes | None:
        path = self._path(name)
        with _answering(name):
            try:
                return path.read_bytes()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None

    def delete(self, name: str) -> None:
        path = self._path(name)
        with _answering(name):
            path.unlink(missing_ok=True)

    def names(self, prefix: str) -> Iterator[str]:
        with _answering(prefix):
            files = [path for path in self._root.rglob("*") if path.is_file() and not path.name.startswith(SCRATCH)]
        names = (path.relative_to(self._root).as_posix() for path in files)
        yield from sorted(name for name in names if name.startswith(prefix))

    def _path(self, name: str) -> Path:
        path = (self._root / checked_name(name)).resolve()
        if not path.is_relative_to(self._root):
            raise PermanentError(f"{name!r} leads out of the folder; remove the link")
        return path


SCRATCH = ".writing-"


def write_whole(path: Path, data: bytes) -> None:
    """Put a file in place in one step."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=SCRATCH)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(scratch).replace(path)
    except OSError:
        Path(scratch).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """A new name survives a power cut only once its folder is on disk too."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _answering(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as refused:
        raise FilesUnavailableError(
            f"the file {name} cannot be read or written ({refused.strerror}); check the folder, its rights and space"
        ) from refused
