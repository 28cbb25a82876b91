"""Ordering keys of which a message went back to the source: what follows it must not overtake it."""

import time
from collections import OrderedDict

from leanops.usecases.bridge.inflight import Held, Key, Now


class Turns:
    """Knows, for a while, which message of a key has to come again before any other of that key."""

    def __init__(self, patience_s: float, now: Now = time.monotonic) -> None:
        self._patience_s, self._now = patience_s, now
        # In the order in which the waits end; a plain dict is slow to find its first after many have left.
        self._awaited: OrderedDict[Key, tuple[str, float]] = OrderedDict()

    def break_off(self, held: Held) -> None:
        """This message went back; of its key, it is the next unless an earlier one is awaited."""
        self._forget()
        key = held.key
        if key is not None and key not in self._awaited:
            self._awaited[key] = held.pulled.message_id, self._now() + self._patience_s

    def is_early(self, held: Held) -> bool:
        """Whether another message of its key has to come first; the one awaited ends the wait."""
        self._forget()
        key = held.key
        if key is None or key not in self._awaited:
            return False
        if held.pulled.message_id == self._awaited[key][0]:
            del self._awaited[key]
            return False
        return True

    def _forget(self) -> None:
        """Wait no longer for those whose time is over; each is looked at once."""
        now = self._now()
        while self._awaited:
            first = next(iter(self._awaited))
            if now < self._awaited[first][1]:
                return
            del self._awaited[first]
