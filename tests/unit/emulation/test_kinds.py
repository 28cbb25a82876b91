"""Rates: those given replace the defaults, and impossible ones are refused with the reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import UsageError
from leanops.emulation.events.generator import phases
from leanops.emulation.events.kinds import DAY1, DAY2, DAY4, GROUPS, Kind, with_rates


def test_what_is_not_said_stays() -> None:
    assert with_rates(DAY2, "") == DAY2
    assert with_rates(DAY2, " , ") == DAY2
    assert with_rates(DAY2, "late=0.1") == {**DAY2, Kind.LATE: 0.1}
    assert with_rates(DAY2, "late=0.1, malformed=0") == {**DAY2, Kind.LATE: 0.1, Kind.MALFORMED: 0}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_shares_its_rate_evenly(group: str) -> None:
    rates = with_rates({}, f"{group}=0.3")
    assert set(rates) == set(GROUPS[group])
    assert len(set(rates.values())) == 1
    assert sum(rates.values()) == pytest.approx(0.3)


def test_three_of_a_hundred_events_of_day_2_lack_what_is_critical() -> None:
    assert sum(DAY2[kind] for kind in GROUPS["cde"]) == pytest.approx(0.03)


@given(st.dictionaries(st.sampled_from(list(Kind)), st.floats(0, 0.04)))
def test_the_rates_given_are_the_rates_used(rates: dict[Kind, float]) -> None:
    assert with_rates({}, ",".join(f"{kind}={rate!r}" for kind, rate in rates.items())) == rates


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        ("redeliver=0.1", "'redeliver' is not a kind of event; did you mean 'redelivery'?"),
        ("drifts=0.1", "did you mean 'drift'?"),
        ("zzz=0.1", "use one of cde, drift, new"),
        ("late", "the rate of late must be a number from 0 to 1, as in late=0.03"),
        ("late=", "must be a number"),
        ("late=often", "must be a number"),
        ("late=-0.1", "must be a number"),
        ("late=1.1", "must be a number"),
        ("late=nan", "must be a number"),
        ("late=0.6,new=0.5", "; at most 1 is possible"),
    ],
)
def test_impossible_rates_are_refused(rates: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        with_rates(DAY2, rates)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_only_day_2_is_changed() -> None:
    changed = phases("late=0.5")
    assert (changed["day1"].rates, changed["day4"].rates) == (DAY1, DAY4)
    assert changed["day2"].rates == {**DAY2, Kind.LATE: 0.5}


@pytest.mark.parametrize("rates", [DAY1, DAY2, DAY4])
def test_the_defaults_leave_room_for_what_is_usual(rates: dict[Kind, float]) -> None:
    assert sum(rates.values()) <= 1
