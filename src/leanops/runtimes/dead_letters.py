"""Dead-letter queues of the embedded runtime, emptied into dlq_errors."""

from leanops.domain.errors import LeanOpsError
from leanops.domain.event.names import queue_name
from leanops.ports.queue import DEAD
from leanops.runtimes.embedded import Embedded
from leanops.usecases.dlq.drain import Drained, drain, process
from leanops.usecases.topics.registry import list_topics
from leanops.usecases.workers import DEAD_LETTERS, Tell


def archive_and_drain(runtime: Embedded) -> tuple[int, Drained]:
    """Archive what the dead-letter queues hold, and drain everything archived; how many events, and what the drain did.

    A queue whose letters cannot be archived stops no other; its failure is raised in the end.
    """
    platform = runtime.platform
    names = [name.removesuffix(DEAD) for name in runtime.queue.ready() if name.endswith(DEAD)]
    topics = {queue_name(topic.name): topic.name for topic in list_topics(platform)} if names else {}
    archived, failures = 0, list[LeanOpsError]()
    for name in names:
        try:
            archived += process(platform, runtime.queue, runtime.files, [name], lambda name: topics.get(name, name))
        except LeanOpsError as failure:
            failures.append(failure)
    drained = drain(platform)
    if failures:
        raise failures[0]
    return archived, drained


def turn(runtime: Embedded, tell: Tell) -> int:
    """The background part; how many letters it drained."""
    _, drained = archive_and_drain(runtime)
    if drained.letters:
        tell(DEAD_LETTERS, f"{drained.letters:,} events in dlq_errors; see them with: leanops dlq list")
    return drained.letters
