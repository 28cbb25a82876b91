"""Consumption where the platform and not a worker receives: stopped and started from outside."""

from typing import Protocol


class ConsumptionSwitch(Protocol):
    """Stops and starts the consumption of a queue; stopping what is stopped and starting what runs changes nothing."""

    def stop(self, queue: str) -> None:
        """Let nothing be received from the queue."""

    def start(self, queue: str) -> None:
        """Let the queue be consumed again, from where it stopped."""
