"""The delivery stream: records on their way to RAW, and the buffer of the stream we run ourselves."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_RECORD_BYTES = 1_024_000
"""What Firehose takes: the same event lands or does not land on every runtime."""


class Delivery(Protocol):
    """Takes records and keeps them until they are in RAW, at least once."""

    def put(self, records: Sequence[bytes]) -> list[int]:
        """Put records, each a line of JSON of up to MAX_RECORD_BYTES; the positions of those to be put again.

        Raises DeliveryUnavailableError where it takes nothing right now.
        """


@dataclass(frozen=True)
class Waiting:
    """What a buffer holds."""

    records: int
    bytes: int
    oldest_ms: int | None
    """Of what no flush has claimed yet: when the oldest was put."""
    claimed: int
    """Records that a flush is landing."""


class Buffer(Delivery, Protocol):
    """A durable buffer. A flush claims records under an id, lands them, then forgets them by that id."""

    def waiting(self) -> Waiting:
        """What it holds."""

    def hurry(self) -> None:
        """Let what waits now be due now."""

    def holds_before(self, moment_ms: int) -> bool:
        """Whether any record put up to this moment, claimed or not, is still here."""

    def claim(self, flush_id: str, at_most_bytes: int) -> bool:
        """Claim the oldest records up to this size (at least one put); whether there were any."""

    def renew(self, flush_id: str) -> None:
        """Keep a claim for another while."""

    def take_over(self) -> str | None:
        """A claim that nobody renewed in time, now ours: its flush id."""

    def unfinished(self) -> Collection[str]:
        """The ids of all claims, whoever has them."""

    def lines(self, flush_id: str) -> Iterator[bytes]:
        """The claimed records: lines of JSON, put by put."""

    def keep(self, flush_id: str, records: Sequence[bytes], retry_s: float) -> None:
        """Let a claim hold only these records, and nobody take it over before the time has passed."""

    def forget(self, flush_id: str) -> None:
        """Delete what a flush has landed."""
