"""Which of several bridges reads a subscription: rendezvous hashing, so that a new count moves only its share."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from leanops.domain.errors import UsageError

FROM_HOST = "host"
_SHARD = re.compile(rf"(\d{{1,4}}|{FROM_HOST})/(\d{{1,4}})")
_ORDINAL = re.compile(r".*-(\d{1,4})")


@dataclass(frozen=True)
class Shard:
    """One of `count` bridges, counted from 0."""

    index: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def of(self, subscriptions: Iterable[str]) -> list[str]:
        """The subscriptions that are this shard's, in their order."""
        return [subscription for subscription in subscriptions if shard_of(subscription, self.count) == self.index]


def shard_of(subscription: str, count: int) -> int:
    """The shard, of `count`, that reads a subscription; one more shard takes some subscriptions and moves no other."""
    return max(range(count), key=lambda index: _weight(subscription, index))


def _weight(subscription: str, index: int) -> bytes:
    return blake2b(f"{index}\n{subscription}".encode(), digest_size=8).digest()


def parse_shard(text: str, host: str) -> Shard:
    """`2/8` is the third of eight; `host/8` takes the number from the host's name, as in a StatefulSet."""
    parts = _SHARD.fullmatch(text)
    if parts is None:
        raise UsageError(f"{text!r} is not a shard; write it like 2/8 (counted from 0), or host/8 in a StatefulSet")
    index = _ordinal(host) if parts[1] == FROM_HOST else int(parts[1])
    count = int(parts[2])
    if index >= count:
        raise UsageError(f"shard {index} of {count} does not exist: they are 0 to {count - 1}; give another count")
    return Shard(index, count)


def _ordinal(host: str) -> int:
    ordinal = _ORDINAL.fullmatch(host.split(".")[0])
    if ordinal is None:
        raise UsageError(f"the host name {host!r} does not end in a number like bridge-3; write the shard as 3/8")
    return int(ordinal[1])
