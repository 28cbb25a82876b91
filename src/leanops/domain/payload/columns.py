"""Column names of JSON paths: one name for ever, and no two paths share one."""

import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256

from leanops.domain.errors import PermanentError
from leanops.domain.payload.paths import segments_of
from leanops.domain.table.definitions import STANDARDIZED_SYSTEM_COLUMNS, breaks_merge, is_engine_name

LONGEST_NAME = 128
_ODD = re.compile(r"[^a-z0-9_]")


def plain_name(path: str) -> str:
    """The name a path asks for: segments joined by `_`, lower case, nothing outside `[a-z0-9_]`."""
    name = _ODD.sub("_", "_".join(segment or "_" for segment in segments_of(path)).lower())
    return (f"_{name}" if name[0].isdigit() else name)[:LONGEST_NAME]


def register(known: Mapping[str, str], paths: Iterable[str]) -> dict[str, str]:
    """Names for the paths that have none yet, given in path order; a name never moves."""
    taken = {*STANDARDIZED_SYSTEM_COLUMNS, *known.values()}
    named: dict[str, str] = {}
    for path in sorted(set(paths) - known.keys(), key=str.encode):
        name = _free_name(path, taken)
        taken.add(name)
        named[path] = name
    return named


def _free_name(path: str, taken: set[str]) -> str:
    wanted = plain_name(path)
    if wanted not in taken and not is_engine_name(wanted):
        return wanted
    digest = sha256(path.encode()).hexdigest()
    for digits in range(6, len(digest) + 1):
        suffix = f"_{digest[:digits]}"
        name = wanted[: LONGEST_NAME - len(suffix)] + suffix
        if name not in taken:
            return name
    raise AssertionError(f"all names of {path} are taken")


def is_unusable(name: str, system: Collection[str]) -> bool:
    """Whether a payload column must not keep its name, though an earlier version gave it."""
    return name in system or breaks_merge(name)


def check_names(table: str, columns: Iterable[str], system: Collection[str], remedy: str) -> None:
    """Refuse a table whose payload columns have names that are the system's or Spark's now."""
    taken = sorted(name for name in columns if is_unusable(name, system))
    if taken:
        raise PermanentError(
            f"{table} has payload columns with names that are Lean-Ops' own or Spark's ({', '.join(taken)}), "
            f"so nothing is written to it; {remedy}"
        )
