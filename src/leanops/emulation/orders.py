"""A web shop's order events, seeded: the same every time, with everything that goes wrong in real streams."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from leanops.domain.events import Event
from leanops.emulation.shop import Shop

DAYS_PER_BATCH = 2.5


@dataclass(frozen=True)
class Facts:
    """What the generator knows of its events; the tables must say the same."""

    published: int
    malformed: int
    keys: int
    failing: int


@dataclass(frozen=True)
class Emulation:
    """Batches of events by name, and the truth about them."""

    batches: dict[str, list[Event]]
    facts: Facts


_Kind = Callable[[Shop], Event]
_FIRST: dict[_Kind, int] = {Shop.new_order: 980, Shop.duplicate: 15, Shop.broken_json: 5}
_CORRECTIONS: dict[_Kind, int] = {
    Shop.correction: 550,
    Shop.order_with_new_fields: 300,
    Shop.duplicate: 50,
    Shop.missing_critical_value: 40,
    Shop.invalid_value: 40,
    Shop.late_older_version: 10,
    Shop.broken_json: 10,
}
_MONTH_END: dict[_Kind, int] = {
    Shop.cross_period_correction: 400,
    Shop.order_with_new_fields: 300,
    Shop.repair: 100,
    Shop.late_older_version: 90,
    Shop.duplicate: 50,
    Shop.number_as_text: 50,
    Shop.broken_json: 10,
}
_BATCHES = {
    "first orders": (datetime(2026, 8, 30, tzinfo=UTC), 0.60, _FIRST),
    "corrections": (datetime(2026, 9, 28, tzinfo=UTC), 0.25, _CORRECTIONS),
    "month end": (datetime(2026, 10, 29, tzinfo=UTC), 0.15, _MONTH_END),
}


def emulate(events: int, seed: int) -> Emulation:
    """Three batches of about this many events together."""
    shop = Shop(random.Random(seed))
    batches: dict[str, list[Event]] = {}
    for name, (begins, share, kinds) in _BATCHES.items():
        chosen = shop.random.choices(list(kinds), list(kinds.values()), k=max(1, round(events * share)))
        shop.now, shop.step = begins, timedelta(days=DAYS_PER_BATCH) / len(chosen)
        # The first event makes an order: every other kind needs one.
        batches[name] = [kind(shop) if shop.orders else shop.new_order() for kind in chosen]
    published = sum(len(batch) for batch in batches.values())
    return Emulation(batches, Facts(published, shop.malformed, len(shop.orders), len(shop.broken)))
