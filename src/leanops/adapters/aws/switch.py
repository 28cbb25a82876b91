"""Consumption on AWS: Lambda's event source mappings, one per queue, switched on and off."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from leanops.adapters.aws.answers import answering, is_missing, pages
from leanops.domain.errors import PermanentError, QueueUnavailableError

Answer = TypeVar("Answer")

ON = {"Creating", "Enabled", "Enabling", "Updating"}


class EventSourceSwitch:
    """The ConsumptionSwitch port on a boto3 Lambda client: the mapping of queue prefix + name to one function."""

    def __init__(self, client: Any, function: str, *, prefix: str = "") -> None:
        self._client, self._function, self._prefix = client, function, prefix
        self._mappings: dict[str, str] = {}

    def stop(self, queue: str) -> None:
        self._turn(queue, on=False)

    def start(self, queue: str) -> None:
        self._turn(queue, on=True)

    def is_on(self, queue: str) -> bool:
        """Whether the queue is consumed, or about to be."""
        return self._of_mapping(queue, lambda uuid: self._client.get_event_source_mapping(UUID=uuid)["State"] in ON)

    def _turn(self, queue: str, *, on: bool) -> None:
        # Checked first, because a mapping cannot be changed while its last change is in progress.
        if self.is_on(queue) is on:
            return
        self._of_mapping(queue, lambda uuid: self._client.update_event_source_mapping(UUID=uuid, Enabled=on))

    def _of_mapping(self, queue: str, call: Callable[[str], Answer]) -> Answer:
        """What a call about the queue's mapping returns; if it was re-created since, its new id is looked up once."""
        try:
            with self._about(queue):
                return call(self._mapping(queue))
        except PermanentError as failure:
            if not is_missing(failure):
                raise
        self._mappings.clear()
        with self._about(queue):
            return call(self._mapping(queue))

    def _mapping(self, queue: str) -> str:
        if queue not in self._mappings:
            self._mappings.update(self._all())
        if queue not in self._mappings:
            name = self._prefix + queue
            raise PermanentError(f"Lambda {self._function} does not consume the queue {name}; apply the infrastructure")
        return self._mappings[queue]

    def _all(self) -> Iterator[tuple[str, str]]:
        """Every queue the function consumes, and the id of its mapping."""
        about = answering("Lambda", f"function {self._function}", QueueUnavailableError)
        for page in pages(self._client, "list_event_source_mappings", about, FunctionName=self._function):
            for mapping in page["EventSourceMappings"]:
                name = mapping["EventSourceArn"].rpartition(":")[2]
                if name.startswith(self._prefix):
                    yield name[len(self._prefix) :], mapping["UUID"]

    def _about(self, queue: str) -> Any:
        return answering("Lambda", f"event source mapping of {self._prefix}{queue}", QueueUnavailableError)
