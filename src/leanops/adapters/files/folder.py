"""Files in a folder."""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from leanops.domain.errors import FileRefusedError, FilesUnavailableError, PermanentError
from leanops.ports.files import checked_name

# Errors that may concern one name only, while the folder is sound. A full disk concerns all names.
_OF_ONE_NAME = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EIO, errno.ELOOP),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
}


class Folder:
    """The Files port on a folder; names stay inside it, links are not followed, and files are written whole."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with self._answering(name):
            _make_folder(path.parent)
            write_whole(path, data)

    def replace(self, name: str, before: bytes | None, data: bytes) -> bool:
        """Under a lock, because a folder has no conditional write."""
        with self._answering(name):
            self._root.mkdir(parents=True, exist_ok=True)
            with (self._root / LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if self.get(name) != before:
                    return False
                self.put(name, data)
                return True

    def get(self, name: str) -> bytes | None:
        with self._answering(name):
            try:
                return self._path(name).read_bytes()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None

    def delete(self, name: str) -> None:
        with self._answering(name):
            self._path(name).unlink(missing_ok=True)

    def delete_same(self, name: str, data: bytes) -> None:
        """Renamed first, so that the file that is compared is the one that is removed."""
        path = self._path(name)
        aside = path.with_name(f"{SCRATCH}{uuid4().hex}")
        with self._answering(name):
            try:
                path.rename(aside)
            except (FileNotFoundError, NotADirectoryError):
                return
            if aside.read_bytes() != data:
                # A link, because a rename would replace a file that has come since.
                with suppress(FileExistsError):
                    path.hardlink_to(aside)
            aside.unlink()

    def make_folder(self, name: str) -> None:
        with self._answering(name):
            self._path(name).mkdir(parents=True, exist_ok=True)

    def place(self, name: str) -> str:
        """Its path."""
        return str(self._root / name)

    def names(self, prefix: str) -> Iterator[str]:
        with self._answering(prefix):
            paths = [path for path in self._root.rglob("*") if path.is_file() and not path.is_symlink()]
        names = (path.relative_to(self._root).as_posix() for path in paths if not path.name.startswith(SCRATCH))
        yield from sorted(name for name in names if name.startswith(prefix))

    def _path(self, name: str) -> Path:
        path = self._root / checked_name(name)
        if path.resolve() != path:
            raise PermanentError(f"{name!r} is a link or leads through one; put the file itself there")
        return path

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as refused:
            is_sound = self._root.is_dir() and os.access(self._root, os.R_OK | os.W_OK | os.X_OK)
            error = FileRefusedError if is_sound and refused.errno in _OF_ONE_NAME else FilesUnavailableError
            reason = refused.strerror or type(refused).__name__
            raise error(
                f"the file {name} cannot be read or written ({reason}); check the folder, its rights and space"
            ) from refused


SCRATCH = ".writing-"
LOCK = f"{SCRATCH}lock"


def write_whole(path: Path, data: bytes) -> None:
    """Put a file in place in one step."""
    with _written(path.parent, data) as scratch:
        scratch.replace(path)
    _sync_folder(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Put a file in place in one step, unless it exists already."""
    with _written(path.parent, data) as scratch:
        try:
            # A link, because a rename would replace what another process has put there meanwhile.
            path.hardlink_to(scratch)
        except FileExistsError:
            return
        except OSError:
            # Not every file system has links.
            scratch.rename(path)
    _sync_folder(path.parent)


@contextmanager
def _written(folder: Path, data: bytes) -> Iterator[Path]:
    """A scratch file with these bytes, on disk; it is removed at the end, unless it was renamed."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=SCRATCH)
    scratch = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)


def _make_folder(path: Path) -> None:
    """Create a folder and those above it; each new name is on disk."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        _sync_folder(folder.parent)


def _sync_folder(path: Path) -> None:
    """A new name survives a power cut only once its folder is on disk too."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
