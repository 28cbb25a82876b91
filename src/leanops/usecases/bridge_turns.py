"""Ordering keys of which a message went back to the source: what follows it must not overtake it."""

import time

from leanops.usecases.bridge_hand import Held, Key, Now

MANY_KEYS = 10_000


class Turns:
    """Knows, for a while, which message of a key has to come again before any other of that key."""

    def __init__(self, patience_s: float, now: Now = time.monotonic) -> None:
        self._patience_s, self._now = patience_s, now
        self._awaited: dict[Key, tuple[str, float]] = {}

    def break_off(self, held: Held) -> None:
        """This message went back; of its key, it is the next unless an earlier one is awaited."""
        key = held.key
        if key is None or self._is_awaited(key):
            return
        if len(self._awaited) >= MANY_KEYS:
            self._awaited = {one: awaited for one, awaited in self._awaited.items() if self._is_awaited(one)}
        self._awaited[key] = held.pulled.message_id, self._now() + self._patience_s

    def is_early(self, held: Held) -> bool:
        """Whether another message of its key has to come first; the one awaited ends the wait."""
        key = held.key
        if key is None or not self._is_awaited(key):
            return False
        if held.pulled.message_id == self._awaited[key][0]:
            del self._awaited[key]
            return False
        return True

    def _is_awaited(self, key: Key) -> bool:
        awaited = self._awaited.get(key)
        return awaited is not None and self._now() < awaited[1]
