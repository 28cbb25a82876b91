"""A web shop whose orders change; every method of it is one event, right or wrong."""

import json
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from leanops.domain.events import Event

STATUSES = ("NEW", "PAID", "SHIPPED", "CANCELLED")
CURRENCIES = ("EUR", "USD", "GBP")
Payload = dict[str, Any]


@dataclass(eq=False)
class Order:
    """An order and its newest version."""

    number: int
    payload: Payload
    updated: datetime


@dataclass
class Shop:
    """Orders as they change; every method gives one event."""

    random: random.Random
    orders: list[Order] = field(default_factory=list)
    broken: list[Order] = field(default_factory=list)
    sent: list[Event] = field(default_factory=list)
    malformed: int = 0
    events: int = 0
    now: datetime = datetime.min
    step: timedelta = timedelta()

    def new_order(self) -> Event:
        number = len(self.orders) + 1
        order = Order(number, self._payload(number), self.now)
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
        name, value = self.random.choice((("amount", -5), ("quantity", "many"), ("currency", "???"), ("amount", 1.005)))
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

    def _known(self) -> Order:
        """Some valid order, so that what is known of the broken ones stays true; a new one where there is none."""
        if len(self.broken) == len(self.orders):
            self.orders.append(Order(len(self.orders) + 1, self._payload(len(self.orders) + 1), self.now))
            return self.orders[-1]
        while True:
            order = self.random.choice(self.orders)
            if order not in self.broken:
                return order

    def _newer(self, order: Order, *, is_valid: bool = True) -> Event:
        if order in self.broken:
            self.broken.remove(order)
        if not is_valid:
            self.broken.append(order)
        order.updated = self.now
        return self._send(order)

    def _send(self, order: Order) -> Event:
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


def _replaced(event: Event, payload: Payload) -> Event:
    text = json.dumps(payload, ensure_ascii=False)
    return Event(event.message_id, event.publish_time, text, event.ingestion_ts)


def _received(event: Event, now: datetime) -> Event:
    return Event(event.message_id, event.publish_time, event.payload, _millis(now))


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
