"""What the embedded runtime needs, checked one by one; each problem says how to fix it."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from leanops.adapters.iceberg import jars
from leanops.adapters.sql.state import SqlState
from leanops.domain.errors import LeanOpsError
from leanops.domain.words import counted
from leanops.ports.state import SCHEMA_REGISTRY
from leanops.settings import SETTINGS, Settings, load_settings
from leanops.usecases.platform import SHORTEST_KEY

ENOUGH_DISK = 2 << 30
_OLDEST, _TOO_NEW = (3, 11), (3, 14)


@dataclass(frozen=True)
class Finding:
    """One check: what was found, and how to fix it where it is a problem."""

    name: str
    ok: bool
    found: str
    fix: str | None = None


def check_all() -> Iterator[Finding]:
    """Every check, in the order in which they build on each other."""
    for check in (_leanops, _python, _spark, _iceberg, _java, _jars):
        yield _guarded(check)
    home = _guarded(_home)
    yield home
    if home.ok:
        for inside in (_settings, _private, _writable, _disk, _catalog, _state, _pii_key):
            yield _guarded(inside, Path(home.found))


def _guarded(check: Callable[..., Finding], *arguments: Any) -> Finding:
    """The finding of a check; an error that it raises is a problem."""
    name = check.__name__.strip("_").replace("_", " ")
    try:
        finding = check(*arguments)
    except LeanOpsError as problem:
        found, _, fix = str(problem).partition("; ")
        return Finding(name, False, found, fix or None)
    except ImportError as problem:
        return Finding(
            name, False, f"the package {problem.name} is missing", "install it with: pip install 'leanops[embedded]'"
        )
    except OSError as problem:
        return Finding(name, False, f"{problem.strerror}: {problem.filename}", "check the permissions")
    return Finding(name, True, finding.found) if finding.ok else finding


def _leanops() -> Finding:
    return Finding("leanops", True, version("leanops"))


def _python() -> Finding:
    here = sys.version_info
    is_supported = _OLDEST <= (here.major, here.minor) < _TOO_NEW
    return Finding("python", is_supported, f"{here.major}.{here.minor}.{here.micro}", "use Python 3.11, 3.12 or 3.13")


def _spark() -> Finding:
    try:
        return Finding("spark", True, f"PySpark {version('pyspark')}")
    except PackageNotFoundError:
        return Finding("spark", False, "PySpark is not installed", "pip install 'leanops[embedded]'")


def _iceberg() -> Finding:
    runtime = jars.coordinates("sqlite")[0].rpartition(":")[2]
    return Finding("iceberg", True, f"Iceberg {runtime} in Spark, PyIceberg {version('pyiceberg')}")


def _java() -> Finding:
    home = jars.java_home()
    program = home / "bin" / "java"
    fix = "set JAVA_HOME to a Java 17, or unset it to use the bundled one"
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Finding("java", False, f"{program} does not run", fix)
    lines = (answer.stderr or answer.stdout).splitlines()
    return Finding("java", answer.returncode == 0, f"{lines[0] if lines else 'no answer'} in {home}", fix)


def _jars() -> Finding:
    files = jars.fetch_jars(jars.coordinates("sqlite"), jars.PINS)
    return Finding("jars", True, f"{len(files)} in {files[0].parent}")


def _home() -> Finding:
    # Imported here: with a package missing, the checks before this one still report.
    from leanops.runtimes.embedded import find_home

    return Finding("home", True, str(find_home()))


def _settings(home: Path) -> Finding:
    settings = load_settings(home)
    changed = sum(setting.value_in(settings) != setting.value_in(Settings()) for setting in SETTINGS.values())
    return Finding("settings", True, f"valid, {changed} changed from the default")


def _private(home: Path) -> Finding:
    me = os.geteuid()
    for path in (home, *sorted(home.glob("*.db*"))):
        status = path.stat()
        if status.st_uid != me:
            return Finding("private", False, f"{path} belongs to user {status.st_uid}", f"chown -R {me} {home}")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            return Finding("private", False, f"{path} is open to others, mode {mode:o}", f"chmod -R go-rwx {home}")
    return Finding("private", True, "nobody else can read it")


def _writable(home: Path) -> Finding:
    with tempfile.NamedTemporaryFile(dir=home, prefix=".doctor-"):
        return Finding("writable", True, "files can be created")


def _disk(home: Path) -> Finding:
    free = shutil.disk_usage(home).free
    return Finding("disk", free >= ENOUGH_DISK, f"{free / (1 << 30):,.1f} GB free", "free at least 2 GB")


def _catalog(home: Path) -> Finding:
    from leanops.runtimes.embedded import Embedded

    try:
        with closing(Embedded(home)) as runtime:
            tables = sum(len(runtime.catalog.list_tables(space)) for space in runtime.catalog.list_namespaces())
    except SQLAlchemyError:
        return Finding("catalog", False, f"{home}/catalog.db does not open", "restore it from a backup")
    return Finding("catalog", True, counted(tables, "table"))


def _state(home: Path) -> Finding:
    with closing(SqlState(f"sqlite:///{home}/state.db")) as state:
        return Finding("state", True, counted(sum(1 for _ in state.rows(SCHEMA_REGISTRY)), "topic"))


def _pii_key(home: Path) -> Finding:
    given = os.environ.get("LEANOPS_PII_KEY")
    if given:
        is_long = len(given.encode()) >= SHORTEST_KEY
        fix = f"set it to {SHORTEST_KEY} bytes or more, like the output of: openssl rand -hex 32"
        return Finding("pii key", is_long, f"from LEANOPS_PII_KEY{'' if is_long else ', too short'}", fix)
    key = home / "pii.key"
    if not key.exists() or not key.read_text().strip():
        return Finding("pii key", False, f"no key in {key}", "restore it from a backup, or set LEANOPS_PII_KEY")
    mode = stat.S_IMODE(key.stat().st_mode)
    return Finding("pii key", mode & 0o077 == 0, f"{key}, mode {mode:o}", f"chmod 600 {key}")
