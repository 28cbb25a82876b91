"""What can be special about an event, and how often it is."""

import difflib
from collections.abc import Mapping
from enum import StrEnum

from leanops.domain.errors import UsageError


class Kind(StrEnum):
    """Everything the generator does to events; the ledger counts by kind."""

    NEW = "new"
    CORRECTION = "correction"
    CROSS_PERIOD = "cross_period"
    FAR_PERIOD = "far_period"
    DUPLICATE = "duplicate"
    REDELIVERY = "redelivery"
    LATE = "late"
    STALE = "stale"
    TIED = "tied"
    AHEAD = "ahead"
    ENVELOPE = "envelope"
    ODD = "odd"
    DRIFT_NEW = "drift_new"
    DRIFT_VANISHED = "drift_vanished"
    DRIFT_RENAMED = "drift_renamed"
    DRIFT_TYPE = "drift_type"
    DRIFT_OBJECT = "drift_object"
    DRIFT_SCALAR = "drift_scalar"
    CDE_NULL = "cde_null"
    CDE_BLANK = "cde_blank"
    CDE_MISSING = "cde_missing"
    BAD_TYPE = "bad_type"
    BAD_RULE = "bad_rule"
    BAD_TIME = "bad_time"
    MALFORMED = "malformed"
    OVERSIZED = "oversized"


COPIES = (Kind.DUPLICATE, Kind.REDELIVERY)
"""Not made, but sent again."""
QUEUE_ONLY = (*COPIES, Kind.ENVELOPE)
"""Cannot be sent through Pub/Sub, which gives every message an id and an envelope of its own."""
GROUPS = {
    "cde": (Kind.CDE_NULL, Kind.CDE_BLANK, Kind.CDE_MISSING),
    "drift": tuple(kind for kind in Kind if kind.startswith("drift_")),
}
"""Names of several kinds that share a rate."""
Rates = Mapping[Kind, float]


def _spread(named: Mapping[str, float]) -> dict[Kind, float]:
    rates: dict[Kind, float] = {}
    for name, rate in named.items():
        kinds = GROUPS.get(name) or (Kind(name),)
        rates |= dict.fromkeys(kinds, rate / len(kinds))
    return rates


DAY1: Rates = {}
DAY2: Rates = _spread(
    {
        "new": 0.08,
        "cross_period": 0.02,
        "far_period": 0.005,
        "duplicate": 0.03,
        "redelivery": 0.02,
        "late": 0.03,
        "stale": 0.06,
        "tied": 0.04,
        "ahead": 0.01,
        "envelope": 0.01,
        "odd": 0.01,
        "drift": 0.06,
        "cde": 0.03,
        "bad_type": 0.01,
        "bad_rule": 0.015,
        "bad_time": 0.005,
        "malformed": 0.01,
        "oversized": 0.0001,
    }
)
SOAK: Rates = {**DAY2, Kind.NEW: 0.3}
DAY4: Rates = _spread(
    {"far_period": 0.15, "correction": 0.05, "duplicate": 0.03, "redelivery": 0.03, "late": 0.04, "stale": 0.04}
)


def with_rates(defaults: Rates, changes: str) -> Rates:
    """The defaults with the changes `kind=rate,…`; raises UsageError if they are not possible."""
    rates = dict(defaults)
    for part in filter(None, (part.strip() for part in changes.split(","))):
        name, _, number = part.partition("=")
        if name not in GROUPS and name not in set(Kind):
            close = difflib.get_close_matches(name, [*GROUPS, *Kind], n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"use one of {', '.join([*GROUPS, *Kind])}"
            raise UsageError(f"{name!r} is not a kind of event; {hint}")
        try:
            rate = float(number)
        except ValueError:
            rate = -1.0
        if not 0 <= rate <= 1:
            raise UsageError(f"the rate of {name} must be a number from 0 to 1, as in {name}=0.03")
        rates |= _spread({name: rate})
    if sum(rates.values()) > 1 + 1e-9:
        raise UsageError(f"the rates add up to {sum(rates.values()):.2f}; at most 1 is possible")
    return rates
