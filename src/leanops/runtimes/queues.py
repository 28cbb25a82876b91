"""Which queues there are, by the scheme of their URL."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from leanops.domain.errors import UsageError
from leanops.ports.queue import Queue

QUEUES = {
    "sqlite": "leanops.adapters.sql.queue:SqlQueue",
    "postgresql": "leanops.adapters.sql.queue:SqlQueue",
    "sqs": "leanops.adapters.aws.queue:SqsQueue.from_url",
}
"""Scheme → module:function, imported when it is chosen; the contract suite runs on each of them."""


def open_queue(
    url: str, clock_ms: Callable[[], int], shortage: Callable[[], str | None] = lambda: None, **options: Any
) -> Queue:
    """The queues behind a URL; `shortage` says why nothing more may be sent, `options` are the adapter's own."""
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in QUEUES:
        raise UsageError(f"{scheme}: is not a kind of queue; choose one of: {', '.join(QUEUES)}")
    queue: Queue = resolve_name(QUEUES[scheme])(url, clock_ms, shortage, **options)
    return queue
