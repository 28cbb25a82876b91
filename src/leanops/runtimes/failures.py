"""Failures of a home in one line for people; what is unexpected leaves its trace in the home's logs."""

import logging
from collections.abc import Callable
from pathlib import Path

from leanops.adapters.files.traces import Traces
from leanops.domain.errors import LeanOpsError, reason_of

LOGS = "logs"
_log = logging.getLogger(__name__)


def explain(home: Path, engine_ended: Callable[[Exception], str | None], failure: Exception) -> str:
    """A failure in one line; with --debug the whole trace is printed as well."""
    _log.debug("%s", type(failure).__name__, exc_info=failure)
    if isinstance(failure, LeanOpsError):
        return str(failure)
    end = engine_ended(failure)
    trace = keep_trace(home, failure)
    if end:
        return f"{end}; {trace}" if trace else end
    return reason_of(failure, trace) if trace else reason_of(failure)


def keep_trace(home: Path, failure: Exception) -> str | None:
    """Where the trace of a failure is, in words; None where it could not be written."""
    traces = Traces(home / LOGS)
    return f"its trace is in {traces.file}" if traces.keep(failure) else None
