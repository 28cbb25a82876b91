"""The background part that takes waiting schema files and resumes unfinished operations."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

from leanops.domain.problems import printable
from leanops.ports.schemas import Pending
from leanops.usecases.platform import Actor, Platform
from leanops.usecases.workers import SCHEMAS, Tell

SETTLED_S = 1.0
HALF_S = 30.0
"""How long a text that is not JSON must stay the same: it may be the first half of a file."""
WHO = Actor("serve", "files")


class SchemaPart:
    """Takes schema files; remembers which are still being written, and why others wait."""

    def __init__(
        self, platform: Platform, tell: Tell = lambda _part, _text: None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._platform, self._tell, self._now_s = replace(platform, actor=WHO), tell, now_s
        self._seen: dict[Pending, tuple[str, float]] = {}
        self._told: dict[Pending, str] = {}
        self._problems: dict[Pending, str] = {}

    def turn(self) -> int:
        """Resume unfinished operations, then take every file that has stopped changing; returns how many there were."""
        from leanops.usecases.operations.unfinished import resume_unfinished

        finished = resume_unfinished(self._platform, lambda line: self._tell(SCHEMAS, line))
        waiting = self._platform.schemas.pending()
        for kept in (self._seen, self._told, self._problems):
            for gone in kept.keys() - set(waiting):
                del kept[gone]
        return finished + sum(self._guarded(pending) for pending in waiting)

    def problem(self) -> str | None:
        """Why a file cannot be taken, until it can."""
        return next(iter(self._problems.values()), None)

    def _guarded(self, pending: Pending) -> bool:
        """Take a file; one that cannot be taken does not stop the others."""
        try:
            taken = self._is_settled(pending) and self._take(pending)
        except Exception as failure:  # noqa: BLE001 - a file that fails, however it does, does not stop the others
            name = printable(f"{pending.topic}: {pending.name}")
            self._problems[pending] = f"{name} cannot be taken: {self._platform.explain(failure)}"
            self._tell_once(pending, self._problems[pending])
            return False
        self._problems.pop(pending, None)
        return taken

    def _is_settled(self, pending: Pending) -> bool:
        """Whether a file has been the same for a while; one that is being copied would be read by half."""
        data = self._platform.schemas.read_pending(pending.topic, pending.name) or b""
        content, now = sha256(data).hexdigest(), self._now_s()
        known, since = self._seen.get(pending, ("", now))
        if content != known:
            self._seen[pending] = (content, now)
            return False
        return now - since >= (SETTLED_S if _is_json(data) else HALF_S)

    def _take(self, pending: Pending) -> bool:
        from leanops.usecases.schemas.inbox import take_pending
        from leanops.usecases.schemas.validate import Outcome

        verdict = take_pending(self._platform, pending)
        self._tell_once(pending, verdict.sentence())
        return verdict.outcome != Outcome.WAITING

    def _tell_once(self, pending: Pending, text: str) -> None:
        if self._told.get(pending) != text:
            self._told[pending] = text
            self._tell(SCHEMAS, text)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
