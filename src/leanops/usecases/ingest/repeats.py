"""Idempotency: message ids that were delivered lately, remembered so that a repeat can be dropped."""

from collections.abc import Collection

from leanops.ports.state import IDEMPOTENCY_KEYS, Key, StateStore


def repeat_key(queue: str, message_id: str) -> str:
    """Under which a delivered message is remembered."""
    return f"{queue}/{message_id}"


def known(state: StateStore, queue: str, message_ids: Collection[str], now: int) -> set[str]:
    """Those of the messages that were delivered lately."""
    names: dict[Key, str] = {(repeat_key(queue, name),): name for name in message_ids}
    found = state.get_many(IDEMPOTENCY_KEYS, list(names))
    return {names[key] for key, stored in found.items() if int(stored.row["expires_at"] or 0) > now}


def remember(state: StateStore, queue: str, message_ids: Collection[str], until: int) -> None:
    """Note what was delivered, so that a repeat is known."""
    state.put_many(
        IDEMPOTENCY_KEYS,
        [{"idempotency_key": repeat_key(queue, name), "expires_at": until} for name in dict.fromkeys(message_ids)],
    )
