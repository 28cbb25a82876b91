"""Consumption on AWS: Lambda's event source mappings, one per queue, switched on and off."""

from collections.abc import Iterator
from typing import Any, Self

from leanops.adapters.aws.answers import answering, connect
from leanops.domain.errors import PermanentError, QueueUnavailableError

ON = {"Creating", "Enabled", "Enabling", "Updating"}


class EventSourceSwitch:
    """The ConsumptionSwitch port on a boto3 Lambda client: the mapping of queue prefix + name to one function."""

    def __init__(self, client: Any, function: str, *, prefix: str = "") -> None:
        self._client, self._function, self._prefix = client, function, prefix
        self._mappings: dict[str, str] = {}

    @classmethod
    def connect(
        cls,
        function: str,
        *,
        prefix: str = "",
        region: str | None = None,
        endpoint: str | None = None,
        attempts: int = 4,
    ) -> Self:
        """A switch with a client of its own; region and credentials come from the environment unless given."""
        return cls(connect("lambda", region=region, endpoint=endpoint, attempts=attempts), function, prefix=prefix)

    def stop(self, queue: str) -> None:
        """Let nothing be received from the queue; its messages stay where they are."""
        self._turn(queue, on=False)

    def start(self, queue: str) -> None:
        """Let the queue be consumed again, from where it stopped."""
        self._turn(queue, on=True)

    def is_on(self, queue: str) -> bool:
        """Whether the queue is consumed, or about to be."""
        uuid = self._mapping(queue)
        with self._about(queue):
            return self._client.get_event_source_mapping(UUID=uuid)["State"] in ON

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def _turn(self, queue: str, *, on: bool) -> None:
        # Asked first, because a mapping takes no change while the last one is under way.
        if self.is_on(queue) is on:
            return
        with self._about(queue):
            self._client.update_event_source_mapping(UUID=self._mapping(queue), Enabled=on)

    def _mapping(self, queue: str) -> str:
        if queue not in self._mappings:
            self._mappings.update(self._all())
        if queue not in self._mappings:
            name = self._prefix + queue
            raise PermanentError(f"Lambda {self._function} does not consume the queue {name}; apply the infrastructure")
        return self._mappings[queue]

    def _all(self) -> Iterator[tuple[str, str]]:
        """Every queue the function consumes, and the id of its mapping."""
        with answering("Lambda", f"function {self._function}", QueueUnavailableError):
            pages = list(self._client.get_paginator("list_event_source_mappings").paginate(FunctionName=self._function))
        for page in pages:
            for mapping in page["EventSourceMappings"]:
                name = mapping["EventSourceArn"].rpartition(":")[2]
                if name.startswith(self._prefix):
                    yield name[len(self._prefix) :], mapping["UUID"]

    def _about(self, queue: str) -> Any:
        return answering("Lambda", f"event source mapping of {self._prefix}{queue}", QueueUnavailableError)
