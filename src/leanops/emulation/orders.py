"""A web shop's order events, seeded: the same every time, with everything that goes wrong in real streams."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from leanops.domain.envelope import Event

DAYS_PER_BATCH = 2.5
STATUSES = ("NEW", "PAID", "SHIPPED", "CANCELLED")
CURRENCIES = ("EUR", "USD", "GBP")
Payload = dict[str, Any]


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


@dataclass(eq=False)
class _Order:
    """An order and its newest version."""

    number: int
    payload: Payload
    updated: datetime


@dataclass
class _Shop:
    """Orders as they change; every method gives one event."""

    random: random.Random
    orders: list[_Order] = field(default_factory=list)
    broken: list[_Order] = field(default_factory=list)
    sent: list[Event] = field(default_factory=list)
    malformed: int = 0
    events: int = 0
    now: datetime = datetime.min
    step: timedelta = timedelta()

    def new_order(self) -> Event:
        number = len(self.orders) + 1
        order = _Order(number, self._payload(number), self.now)
        self.orders.append(order)
        return self._send(order)

    def order_with_new_fields(self) -> Event:
        event = self.new_order()
        order = self.orders[-1]
        order.payload["order"]["channel"] = self.random.choice(("web", "app", "store"))
        order.payload["customer"]["loyalty"] = {"tier": self.random.choice(("gold", "silver")), "points": 120}
        self.sent[-1] = _replaced(event, order.payload)
        return self.sent[-1]

    def correction(self) -> Event:
        order = self._known()
        order.payload["order"]["status"] = self.random.choice(STATUSES)
        order.payload["order"]["amount"] = self._amount()
        return self._newer(order)

    def cross_period_correction(self) -> Event:
        order = self._known()
        others = {"2026-08", "2026-09", "2026-10"} - {order.payload["periodReference"]}
        order.payload["periodReference"] = self.random.choice(sorted(others))
        return self._newer(order)

    def repair(self) -> Event:
        order = self.random.choice(self.broken) if self.broken else self._known()
        order.payload = self._payload(order.number)
        return self._newer(order)

    def missing_critical_value(self) -> Event:
        order = self._known()
        part, name = self.random.choice((("order", "id"), ("customer", "id")))
        order.payload[part][name] = self.random.choice((None, "  "))
        return self._newer(order, is_valid=False)

    def invalid_value(self) -> Event:
        order = self._known()
        name, value = self.random.choice((("amount", -5), ("quantity", "many"), ("currency", "XXX"), ("amount", 1.005)))
        order.payload["order"][name] = value
        return self._newer(order, is_valid=False)

    def number_as_text(self) -> Event:
        order = self._known()
        order.payload["order"]["quantity"] = str(self.random.randint(1, 9))
        return self._newer(order)

    def duplicate(self) -> Event:
        event = self.random.choice(self.sent)
        return _received(event, self.now)

    def late_older_version(self) -> Event:
        order = self._known()
        old = json.loads(json.dumps(order.payload))
        old["order"]["updatedAt"] = _text(order.updated - timedelta(hours=6))
        return self._event(old)

    def broken_json(self) -> Event:
        self.malformed += 1
        payload = json.dumps(self._payload(self.random.randint(1, 999)))
        return self._event(payload[: self.random.randint(5, len(payload) - 1)], remember=False)

    def _known(self) -> _Order:
        """Some valid order, so that what is known of the broken ones stays true; a new one where there is none."""
        if len(self.broken) == len(self.orders):
            self.orders.append(_Order(len(self.orders) + 1, self._payload(len(self.orders) + 1), self.now))
            return self.orders[-1]
        while True:
            order = self.random.choice(self.orders)
            if order not in self.broken:
                return order

    def _newer(self, order: _Order, *, is_valid: bool = True) -> Event:
        if order in self.broken:
            self.broken.remove(order)
        if not is_valid:
            self.broken.append(order)
        order.updated = self.now
        return self._send(order)

    def _send(self, order: _Order) -> Event:
        order.payload["order"]["updatedAt"] = _text(order.updated)
        return self._event(order.payload)

    def _event(self, payload: Payload | str, *, remember: bool = True) -> Event:
        self.now += self.step
        self.events += 1
        text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
        event = Event(f"demo-{self.events:07d}", self.now, text, _millis(self.now) + 1500)
        if remember:
            self.sent.append(event)
        return event

    def _payload(self, number: int) -> Payload:
        customer = 1 + number % 997
        return {
            "_metadata": {"idempotencyKeyResource": f"order-{number:06d}", "source": "webshop"},
            "periodReference": f"{self.now:%Y-%m}",
            "order": {
                "id": f"O-{number:06d}",
                "status": "NEW",
                "amount": self._amount(),
                "currency": self.random.choice(CURRENCIES),
                "quantity": self.random.randint(1, 9),
                "orderedAt": _text(self.now),
                "lines": [{"sku": f"S-{self.random.randint(1, 400)}", "qty": 1}],
            },
            "customer": {
                "id": f"C-{customer:04d}",
                "email": f"customer{customer}@example.com",
                "phone": f"+49 30 {100000 + customer}",
            },
        }

    def _amount(self) -> float:
        return self.random.randint(100, 50_000) / 100


_Kind = Callable[[_Shop], Event]
_FIRST: dict[_Kind, int] = {_Shop.new_order: 980, _Shop.duplicate: 15, _Shop.broken_json: 5}
_CORRECTIONS: dict[_Kind, int] = {
    _Shop.correction: 550,
    _Shop.order_with_new_fields: 300,
    _Shop.duplicate: 50,
    _Shop.missing_critical_value: 40,
    _Shop.invalid_value: 40,
    _Shop.late_older_version: 10,
    _Shop.broken_json: 10,
}
_MONTH_END: dict[_Kind, int] = {
    _Shop.cross_period_correction: 400,
    _Shop.order_with_new_fields: 300,
    _Shop.repair: 100,
    _Shop.late_older_version: 90,
    _Shop.duplicate: 50,
    _Shop.number_as_text: 50,
    _Shop.broken_json: 10,
}
_BATCHES = {
    "first orders": (datetime(2026, 8, 30, tzinfo=UTC), 0.60, _FIRST),
    "corrections": (datetime(2026, 9, 28, tzinfo=UTC), 0.25, _CORRECTIONS),
    "month end": (datetime(2026, 10, 29, tzinfo=UTC), 0.15, _MONTH_END),
}


def emulate(events: int, seed: int) -> Emulation:
    """Three batches of about this many events together."""
    shop = _Shop(random.Random(seed))
    batches: dict[str, list[Event]] = {}
    for name, (begins, share, kinds) in _BATCHES.items():
        chosen = shop.random.choices(list(kinds), list(kinds.values()), k=max(1, round(events * share)))
        shop.now, shop.step = begins, timedelta(days=DAYS_PER_BATCH) / len(chosen)
        # The first event makes an order: every other kind needs one.
        batches[name] = [kind(shop) if shop.orders else shop.new_order() for kind in chosen]
    published = sum(len(batch) for batch in batches.values())
    return Emulation(batches, Facts(published, shop.malformed, len(shop.orders), len(shop.broken)))


def _replaced(event: Event, payload: Payload) -> Event:
    text = json.dumps(payload, ensure_ascii=False)
    return Event(event.message_id, event.publish_time, text, event.ingestion_ts)


def _received(event: Event, now: datetime) -> Event:
    return Event(event.message_id, event.publish_time, event.payload, _millis(now))


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
