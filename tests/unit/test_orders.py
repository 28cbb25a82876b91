"""The generator: the same for the same seed, and honest about what it made."""

import json

import pytest

from leanops.domain.flatten import Limits, ParseError, flatten
from leanops.domain.schema import schema_from_json
from leanops.emulation.demo import schema_text
from leanops.emulation.orders import Emulation, emulate


@pytest.fixture(scope="module")
def emulation() -> Emulation:
    return emulate(3_000, seed=7)


def test_a_seed_gives_the_same_events_every_time() -> None:
    assert emulate(200, seed=1) == emulate(200, seed=1)
    assert emulate(200, seed=1) != emulate(200, seed=2)


@pytest.mark.parametrize("events", [10, 50])
def test_small_emulations_work_too(events: int) -> None:
    assert abs(emulate(events, seed=3).facts.published - events) <= 2


def test_the_facts_are_those_of_the_events(emulation: Emulation) -> None:
    events = [event for batch in emulation.batches.values() for event in batch]
    keys, broken = set(), 0
    for event in events:
        try:
            cells = flatten(event.payload, Limits())
        except ParseError:
            broken += 1
        else:
            keys.add(cells["$._metadata.idempotencyKeyResource"].text)
    assert (len(events), broken, len(keys)) == (
        emulation.facts.published,
        emulation.facts.malformed,
        emulation.facts.keys,
    )
    assert emulation.facts.failing > 0


def test_copies_of_a_message_are_exact(emulation: Emulation) -> None:
    seen: dict[str, tuple[str, object]] = {}
    copies = 0
    for event in (event for batch in emulation.batches.values() for event in batch):
        said = (event.payload, event.publish_time)
        copies += event.message_id in seen
        assert seen.setdefault(event.message_id, said) == said
    assert copies > 0


def test_the_schema_of_the_demo_is_valid_and_names_what_events_hold(emulation: Emulation) -> None:
    schema = schema_from_json(schema_text(), "orders.schema.json")
    first = json.loads(emulation.batches["first orders"][0].payload)
    cells = flatten(json.dumps(first), Limits())
    assert set(schema.named_paths) <= set(cells)
