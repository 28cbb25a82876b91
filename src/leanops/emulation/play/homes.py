"""The home of an emulation: made anew only over an emulation, and played with by one command at a time."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
"""What an emulation has in its home, beside files half written."""


class _Marked(msgspec.Struct):
    """What another program's file of that name does not say; the scenario says what it has to be."""

    made_by: str


def scenario_of(home: Path) -> Scenario:
    """The scenario of an emulation's home; raises UsageError where it is none."""
    try:
        text = (home / FILE).read_bytes()
        msgspec.json.decode(text, type=_Marked)
        return msgspec.json.decode(text, type=Scenario)
    except (OSError, ValueError):
        raise UsageError(f"{home} is no emulation; make one with: leanops emulate clean") from None


@contextmanager
def held(home: Path, anew: Scenario | None = None, settings: str = "") -> Iterator[None]:
    """The emulation of a home, made `anew` if there is a scenario, while no other command plays with it.

    Commands that only look, and the workers of a soak, ask nobody. Raises UsageError where another one plays.
    """
    if anew is None:
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
            raise UsageError(f"another command is at work in {home}; wait until it ends, or choose another") from None
        if anew is not None:
            fresh_home(home, anew, settings)
        yield


def fresh_home(home: Path, scenario: Scenario, settings: str = "") -> Path:
    """An empty home for an emulation; an earlier emulation is replaced, any other folder is left alone."""
    _check_free(home)
    with _possible(home):
        # The folder itself stays: somebody may be in it, or it may be where a disk is mounted.
        make_private(home)
        for path in home.iterdir():
            # As long as there is a scenario, what was half removed can be made anew.
            if path.name not in (FILE, LOCK):
                _remove(path)
        scenario.save(home)
        (home / "leanops.toml").write_text(settings)
        return create_home(home)


def _check_free(home: Path) -> None:
    """Raise UsageError where something would be lost that no emulation made."""
    with _possible(home):
        found = [path.name for path in home.iterdir()] if home.is_dir() else []
        is_taken = not home.is_dir() and home.exists()
    names = {name for name in found if not name.startswith(SCRATCH)} - {LOCK}
    if is_taken or (names and not _is_emulation(home)):
        raise UsageError(f"{home} is there already and is no emulation; remove it, or choose another folder")
    if strange := sorted(names - NAMES):
        raise UsageError(f"{home} holds {strange[0]}, which no emulation made; move it away, or choose another folder")


def _is_emulation(home: Path) -> bool:
    try:
        scenario_of(home)
    except UsageError:
        return False
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def _possible(home: Path) -> Iterator[None]:
    """What the system refuses, told in a line."""
    try:
        yield
    except OSError as refused:
        raise UsageError(f"{home} cannot be made ({refused.strerror}); choose another folder") from None
