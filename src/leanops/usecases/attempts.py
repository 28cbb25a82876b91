"""Failed attempts, counted by topic and layer: a wait that grows, and at last a topic that is parked."""

from leanops.domain.table.batch import pipeline_id
from leanops.ports.state import ATTEMPTS, Row
from leanops.usecases.platform import Platform

LONGEST_WAIT_MS = 86_400_000


def record_failure(platform: Platform, topic: str, layer: str, reason: str, *, park: bool = False) -> None:
    """Count a failed attempt; after the last one the layer is parked until someone retries it."""
    key = (pipeline_id(topic, layer),)
    stored = platform.state.get(ATTEMPTS, key)
    tries = 1 + int(stored.row["tries"] or 0) if stored else 1
    row: Row = {
        "pipeline_id": key[0],
        "tries": tries,
        "parked": park or tries >= platform.rules.pipeline.tries or bool(stored and stored.row["parked"]),
        "next_try_at": platform.now_ms() + _backoff_ms(platform, tries),
        "reason": reason,
        "updated_at": platform.now_ms(),
    }
    platform.state.put(ATTEMPTS, row, expected=stored.revision if stored else None)


def wait_left_ms(platform: Platform, failure: Row) -> int:
    """How long until a failed layer or operation is tried again."""
    left = int(failure["next_try_at"] or 0) - platform.now_ms()
    # A longer wait than any was set by a clock that was ahead; a small difference between clocks is tolerated.
    return left if 0 < left <= 2 * _backoff_ms(platform, int(failure["tries"] or 1)) else 0


def _backoff_ms(platform: Platform, tries: int) -> int:
    return int(min(platform.rules.pipeline.backoff_s * 1000 * 2 ** (tries - 1), LONGEST_WAIT_MS))


def forget_failures(platform: Platform, topic: str, layer: str) -> None:
    """Reset the count of failed attempts."""
    stored = platform.state.get(ATTEMPTS, (pipeline_id(topic, layer),))
    if stored:
        platform.state.delete(ATTEMPTS, (pipeline_id(topic, layer),), expected=stored.revision)
