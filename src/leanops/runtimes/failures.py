"""Failures of a home in one line for people; what is unexpected leaves its trace in the home's logs."""

import logging
from collections.abc import Callable
from pathlib import Path

from leanops.adapters.files.traces import Traces
from leanops.domain.errors import LeanOpsError, reason_of

LOGS = "logs"
_log = logging.getLogger(__name__)


class Failures:
    """Explains failures; `engine` says of one that the engine itself has ended, and why that may be."""

    def __init__(self, home: Path, engine: Callable[[Exception], str | None]) -> None:
        self._home, self._engine = home, engine

    def explain(self, failure: Exception) -> str:
        """One line; with --debug the whole trace is printed as well."""
        _log.debug("%s", type(failure).__name__, exc_info=failure)
        if isinstance(failure, LeanOpsError):
            return str(failure)
        told = self._engine(failure)
        where = keep_trace(self._home, failure)
        if told:
            return f"{told}; {where}" if where else told
        return reason_of(failure, where) if where else reason_of(failure)


def keep_trace(home: Path, failure: Exception) -> str | None:
    """Where the trace of a failure is, in words; None where it could not be written."""
    traces = Traces(home / LOGS)
    return f"its trace is in {traces.file}" if traces.keep(failure) else None
