"""The circuit breakers' clock on AWS: a schedule calls it every minute."""

from collections.abc import Mapping
from typing import Any

from leanops.entrypoints.lambdas.invocation import Context, log, runtime


def handler(_event: Mapping[str, Any], context: Context) -> list[str]:
    """Stop once more what is open, and begin the probes whose pause is over; their queues."""
    begun = runtime(context).breakers.turn_switches()
    if begun:
        log.info("probes begun", queues=begun)
    return begun
