"""Whatever the queue refuses, and however often: nothing is lost, and every ordering key ends in order."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.ports.queue import Outgoing
from tests.support.pubsub.inbox import Gate, Inbox, bridging, message, until

KEYS = st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=12)
REFUSALS = st.lists(st.sets(st.integers(0, 11), max_size=4), max_size=6)


@settings(max_examples=40)
@given(KEYS, st.integers(1, 4), REFUSALS, st.sampled_from([0.0, 60.0]))
def test_every_message_is_acknowledged_and_every_key_ends_in_order(
    keys: list[str], batch: int, refusals: list[set[int]], hold_s: float
) -> None:
    sent = [message(number, key=key) for number, key in enumerate(keys)]
    left = list(refusals)

    def refuse(messages: Sequence[Outgoing]) -> list[int]:
        refused = left.pop() if left else set()
        return [position for position in range(len(messages)) if position in refused]

    with tempfile.TemporaryDirectory() as folder:
        queue = Gate(Path(folder))
        queue.judge = refuse

        async def work() -> None:
            inbox = Inbox("orders")
            for start in range(0, len(sent), batch):
                inbox.publish("orders", *sent[start : start + batch])
            async with bridging(inbox, queue, Path(folder), hold_s=hold_s, longest_pause_s=0.001):
                await until(lambda: len(set(inbox.acked)) == len(sent))

        asyncio.run(work())
        queue.close()

    last = {name: at for at, name in enumerate(queue.taken)}
    for key in ("a", "b"):
        names = [one.message_id for one in sent if one.ordering_key == key]
        assert sorted(names, key=lambda name: last[name]) == names
