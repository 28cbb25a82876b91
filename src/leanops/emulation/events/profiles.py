"""The four profiles: orders of a web shop, card payments, sensor readings, and visits to a site."""

from datetime import timedelta

from leanops.emulation.events.profile import (
    Form,
    Leaf,
    Profile,
    day,
    decimal,
    listed,
    numbered,
    one_of,
    person,
    second,
    sometimes,
    whole,
)

BARE, PROSE = Form.BARE, Form.PROSE
_GIVEN = one_of("")
"""For periods and versions, which the generator fills in."""
_EMAIL, _PHONE, _CARD, _ADDRESS = r"person-[0-9]{3}", r"\+00 555", r"4929-[0-9]{2}", r"198\.51\."
"""What gives a value away, even if only a part of it is shown."""
_STATUS = ("NEW", "PAID", "SHIPPED", "CANCELLED")
_DEVICES = ("phone", "tablet", "desktop")
_MANY = ('"many"', '"12,50"', '"0x1F"')

ORDERS = Profile(
    "orders",
    "Orders of a web shop",
    "webshop-data",
    (
        Leaf("_metadata.idempotencyKeyResource", numbered("order-%08d"), cde=True),
        Leaf("periodReference", _GIVEN),
        Leaf("order.updatedAt", _GIVEN, type="TIMESTAMP"),
        Leaf("_metadata.source", one_of("webshop", "app", "partner")),
        Leaf("order.id", numbered("O-%08d"), type="STRING", cde=True),
        Leaf(
            "order.status",
            one_of(*_STATUS * 3, None),
            type="STRING",
            default="NEW",
            rules={"allowed": list(_STATUS)},
            wrong={"rule_allowed": ('"LOST"', '"paid"')},
        ),
        Leaf(
            "order.amount",
            decimal(1, 900, 2),
            BARE,
            "DECIMAL(18,2)",
            cde=True,
            rules={"min": 0},
            wrong={"rule_min": ("-5.00", "-0.01"), "cast_failed": ('"many"', "1.005", '"12,50"')},
        ),
        Leaf(
            "order.currency",
            one_of("EUR", "USD", "GBP"),
            type="STRING",
            rules={"pattern": "[A-Z]{3}"},
            wrong={"rule_pattern": ('"€"', '"euro"')},
        ),
        Leaf(
            "order.quantity",
            whole(1, 9),
            BARE,
            "INT",
            rules={"min": 1, "max": 100},
            wrong={"rule_min": ("0",), "rule_max": ("101",), "cast_failed": ("1.5", "99999999999", *_MANY)},
        ),
        Leaf("order.orderedAt", second(), type="TIMESTAMP", wrong={"cast_failed": ('"2026-13-01"', '"noon"')}),
        Leaf("order.express", one_of("true", "false"), BARE, "BOOLEAN", wrong={"cast_failed": ('"yes"', "1")}),
        Leaf("order.lines", listed(1, 3, '{"sku":"S-%d","qty":1}'), BARE, "STRING"),
        Leaf("order.note", sometimes(0.2, one_of('say "hello"', "back\\slash", "naïve 東京 ✓", "two\nlines")), PROSE),
        Leaf("customer.id", person("C-%06d", 40_000), type="STRING", cde=True),
        Leaf(
            "customer.email",
            person("person-%06d@people.example", 40_000),
            type="STRING",
            rules={"pattern": "[^@ ]+@people[.]example"},
            pii="hmac",
            shape=_EMAIL,
            # Invalid personal data must be hidden in the error tables as well.
            wrong={"rule_pattern": ('"person-000042 at people.example"', '"mail person-000043@people.example"')},
        ),
        Leaf("customer.phone", person("+00 555 %07d", 40_000), type="STRING", pii="mask", shape=_PHONE),
        Leaf("shipping.city", sometimes(0.6, one_of("Berlin", "São Paulo", "東京", "Lagos")), type="STRING"),
        Leaf("shipping.cost", sometimes(0.5, decimal(0, 40, 2, 401)), BARE, "DECIMAL(9,2)"),
    ),
    measures=("order_amount",),
)

PAYMENTS = Profile(
    "payments",
    "Card payments and their bookings",
    "payments-data",
    (
        Leaf("payment.id", numbered("PAY-%09d"), type="STRING", cde=True),
        Leaf("bookingMonth", _GIVEN),
        Leaf("payment.version", _GIVEN),
        Leaf(
            "payment.amount",
            decimal(-200, 2_000, 4),
            BARE,
            "DECIMAL(20,4)",
            cde=True,
            rules={"max": 100_000},
            wrong={"rule_max": ("100000.0001", "1e9"), "cast_failed": ("0.00001", *_MANY)},
        ),
        Leaf("payment.fee", decimal(0, 9, 3, 901), BARE, "DOUBLE", wrong={"cast_failed": ("1e999", '"free"')}),
        Leaf(
            "payment.method",
            one_of("card", "wallet", "transfer"),
            type="STRING",
            cde=True,
            rules={"allowed": ["card", "wallet", "transfer"]},
            wrong={"rule_allowed": ('"cash"', '"Card"')},
        ),
        Leaf("payment.approved", one_of("true", "true", "false"), BARE, "BOOLEAN", wrong={"cast_failed": ('"ok"',)}),
        Leaf("payment.bookedOn", day(), type="DATE", wrong={"cast_failed": ('"31.10.2026"',)}),
        Leaf(
            "card.number",
            person("4929-0000-%08d", 60_000),
            type="STRING",
            rules={"pattern": "4929-[0-9]{4}-[0-9]{8}"},
            pii="mask",
            shape=_CARD,
            wrong={"rule_pattern": ('"4929-0000-00000042-7"', '"card 4929-0000-00000043"')},
        ),
        Leaf(
            "card.holder",
            person("person-%06d@people.example", 60_000),
            type="STRING",
            rules={"max_length": 40},
            pii="drop",
            shape=_EMAIL,
            wrong={"rule_length": ('"person-000044@people.example, person-000045@people.example"',)},
        ),
        Leaf("risk.score", sometimes(0.4, decimal(0, 1, 5)), BARE, "DOUBLE"),
        Leaf("risk.flags", sometimes(0.3, listed(0, 3, '"F%02d"')), BARE, "STRING"),
    ),
    measures=("payment_amount",),
    has_version=False,
)

READINGS = Profile(
    "readings",
    "Readings of sensors in the field",
    "field-data",
    (
        Leaf("reading.uid", numbered("r-%010d"), cde=True),
        Leaf("periodReference", _GIVEN),
        Leaf("reading.measuredAt", _GIVEN, type="TIMESTAMP"),
        Leaf("device.id", person("dev-%05d", 5_000), type="STRING", cde=True),
        Leaf("device.firmware", one_of("1.4.2", "1.5.0", "2.0.0-rc1"), type="STRING"),
        Leaf(
            "reading.temperature",
            decimal(-40, 60, 3),
            BARE,
            "DOUBLE",
            cde=True,
            rules={"min": -90, "max": 90},
            wrong={"rule_min": ("-273.16", "-90.001"), "rule_max": ("451",), "cast_failed": _MANY},
        ),
        Leaf("reading.humidity", decimal(0, 100, 2, 1_001), BARE, "DECIMAL(5,2)", wrong={"cast_failed": ("1e9",)}),
        Leaf(
            "reading.battery",
            whole(0, 100),
            BARE,
            "INT",
            rules={"min": 0, "max": 100},
            wrong={"rule_min": ("-1",), "rule_max": ("101", "1e4"), "cast_failed": ("50.5",)},
        ),
        Leaf("reading.counter", whole(10**12, 10**12 + 999), BARE, "BIGINT", wrong={"cast_failed": ("1e19",)}),
        Leaf("device.online", one_of("true", "false"), BARE, "BOOLEAN"),
        Leaf("location.lat", sometimes(0.5, decimal(-90, 90, 6)), BARE, "DOUBLE"),
        Leaf("location.lon", sometimes(0.5, decimal(-180, 180, 6)), BARE, "DOUBLE"),
        Leaf("reading.samples", listed(2, 5, "%d"), BARE, "STRING"),
    ),
)

SESSIONS = Profile(
    "sessions",
    "Visits to the site, wide and mostly optional",
    "web-analytics",
    (
        Leaf("_metadata.idempotencyKeyResource", numbered("session-%09d"), cde=True),
        Leaf("period_reference", _GIVEN),
        Leaf("session.lastSeen", _GIVEN, type="TIMESTAMP"),
        Leaf("session.startedAt", second(before=timedelta(minutes=17)), type="TIMESTAMP"),
        Leaf("session.seconds", whole(1, 3_600), BARE, "BIGINT", wrong={"cast_failed": ("0.5", *_MANY)}),
        Leaf("session.converted", one_of("true", "false", "false"), BARE, "BOOLEAN"),
        Leaf("user.id", person("U-%07d", 80_000), type="STRING", cde=True),
        Leaf(
            "user.email",
            sometimes(0.5, person("person-%06d@people.example", 80_000)),
            type="STRING",
            pii="hmac",
            shape=_EMAIL,
        ),
        Leaf("user.address", person("198.51.%d.7", 255), type="STRING", pii="mask", shape=_ADDRESS),
        Leaf(
            "user.country",
            one_of("DE", "BR", "JP", "NG", "US"),
            type="STRING",
            rules={"min_length": 2, "max_length": 2},
            wrong={"rule_length": ('"DEU"', '"D"')},
        ),
        Leaf("user.language", sometimes(0.8, one_of("de", "pt-BR", "ja", "en")), type="STRING"),
        Leaf("device.kind", one_of(*_DEVICES * 3, None), type="STRING", default="desktop"),
        Leaf("device.browser.name", one_of("Firefox", "Chromium", "Safari"), type="STRING"),
        Leaf("device.browser.version", whole(90, 140), type="STRING"),
        Leaf("device.screen.width", whole(320, 1_920), BARE, "INT", wrong={"cast_failed": _MANY}),
        Leaf("device.screen.height", whole(480, 1_200), BARE, "INT"),
        Leaf("source.campaign", sometimes(0.3, one_of("autumn", "brand", "retarget")), type="STRING"),
        Leaf("source.medium", sometimes(0.3, one_of("mail", "search", "social")), type="STRING"),
        Leaf("source.cost", sometimes(0.2, decimal(0, 2, 4, 2_001)), BARE, "DECIMAL(10,4)"),
        Leaf("pages", listed(1, 4, '{"path":"/p/%d","ms":120}'), BARE, "STRING"),
        Leaf("experiment.name", sometimes(0.4, one_of("checkout-a", "checkout-b"))),
        Leaf("experiment.group", sometimes(0.4, whole(1, 4)), BARE),
        Leaf("comment", sometimes(0.05, one_of("great!", 'a "quoted" word', "tab\there", "émoji ✨")), PROSE),
    ),
)

PROFILES = (ORDERS, PAYMENTS, READINGS, SESSIONS)
