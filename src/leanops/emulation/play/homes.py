"""The home of an emulation: only an emulation is ever replaced, and one command at a time works in it."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from leanops.adapters.files.folder import SCRATCH
from leanops.domain.errors import UsageError
from leanops.emulation import ledger
from leanops.emulation.play import crew
from leanops.emulation.scenario import FILE, REPORT, Scenario
from leanops.runtimes.embedded import create_home, make_private

LOCK = "emulation.lock"
_DATABASES = ("catalog.db", "state.db", "queue.db", "delivery.db")
NAMES = {
    *(FILE, LOCK, "leanops.toml", "pii.key", "warehouse", "schemas", "scratch", "files"),
    *(f"{name}{more}" for name in _DATABASES for more in ("", "-wal", "-shm", "-journal")),
    *(ledger.FOLDER, crew.LOGS, REPORT),
}
"""What an emulation has in its home, beside half-written files."""


def scenario_of(home: Path) -> Scenario:
    """The scenario in the home of an emulation; raises UsageError if the folder is not one."""
    try:
        fields = msgspec.json.decode((home / FILE).read_bytes(), type=dict[str, Any])
        # Only its mark tells the file of an emulation from another of that name.
        return msgspec.convert({"made_by": None} | fields, Scenario)
    except (OSError, ValueError):
        raise UsageError(f"{home} is not an emulation; create one with: leanops emulate clean") from None


@contextmanager
def held(home: Path, new: Scenario | None = None, settings: str = "") -> Iterator[None]:
    """Hold the emulation of a home, replaced by a `new` one if given; raises UsageError if another command holds it.

    Commands that only read, and the workers of a soak, need not hold it.
    """
    if new is None:
        scenario_of(home)
    else:
        _check_free(home)
    with _possible(home):
        make_private(home)
        lock = (home / LOCK).open("ab")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another command is at work in {home}; wait for it, or choose another folder") from None
        if new is not None:
            fresh_home(home, new, settings)
        yield


def fresh_home(home: Path, scenario: Scenario, settings: str = "") -> Path:
    """Create an empty home for an emulation; an earlier emulation is replaced, any other folder is left alone."""
    _check_free(home)
    with _possible(home):
        # The folder itself stays: it may be somebody's current folder or a mount point.
        make_private(home)
        for path in home.iterdir():
            # As long as there is a scenario, a half-removed emulation can be replaced.
            if path.name not in (FILE, LOCK):
                _remove(path)
        scenario.save(home)
        (home / "leanops.toml").write_text(settings)
        return create_home(home)


def _check_free(home: Path) -> None:
    """Raise UsageError if anything would be lost that is not part of an emulation."""
    with _possible(home):
        paths = home.iterdir() if home.is_dir() else [home] if home.exists() else []
        names = {path.name for path in paths if not path.name.startswith(SCRATCH)} - {LOCK}
    if not names:
        return
    try:
        scenario_of(home)
    except UsageError:
        raise UsageError(f"{home} exists and is not an emulation; remove it, or choose another folder") from None
    if other := sorted(names - NAMES):
        raise UsageError(f"{home} holds {other[0]}, which no emulation wrote; move it, or choose another folder")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def _possible(home: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a UsageError."""
    try:
        yield
    except OSError as refused:
        raise UsageError(f"{home} cannot be created ({refused.strerror}); choose another folder") from None
