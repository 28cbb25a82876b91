"""Every subscription is read by exactly one bridge, and a change of their number moves as few as possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import UsageError
from leanops.domain.event.shards import Shard, parse_shard, shard_of

SUBSCRIPTIONS = [f"projects/p/subscriptions/topic-{number}" for number in range(700)]


@given(st.lists(st.text(min_size=1), unique=True, max_size=30), st.integers(1, 12))
def test_every_subscription_belongs_to_exactly_one_shard(subscriptions: list[str], count: int) -> None:
    shares = [Shard(index, count).of(subscriptions) for index in range(count)]

    assert sorted(name for share in shares for name in share) == sorted(subscriptions)


@given(st.text(), st.integers(1, 30))
def test_one_shard_more_takes_some_and_moves_no_other(subscription: str, count: int) -> None:
    before, after = shard_of(subscription, count), shard_of(subscription, count + 1)

    assert after in (before, count)


def test_the_ninth_of_nine_shards_takes_about_a_ninth() -> None:
    moved = [name for name in SUBSCRIPTIONS if shard_of(name, 8) != shard_of(name, 9)]

    assert len(moved) < 2 * len(SUBSCRIPTIONS) / 9


def test_shares_are_even() -> None:
    shares = [len(Shard(index, 8).of(SUBSCRIPTIONS)) for index in range(8)]

    assert sum(shares) == 700
    assert min(shares) > 700 / 8 * 0.6
    assert max(shares) < 700 / 8 * 1.4


def test_a_share_stays_what_it_is_in_every_process_and_version() -> None:
    assert [shard_of(name, 8) for name in SUBSCRIPTIONS[:8]] == [1, 0, 3, 4, 3, 3, 4, 6]


@pytest.mark.parametrize(
    ("text", "host", "shard"),
    [
        ("2/8", "laptop", Shard(2, 8)),
        ("0/1", "laptop", Shard(0, 1)),
        ("host/8", "leanops-bridge-3", Shard(3, 8)),
        ("host/16", "leanops-bridge-11.leanops-bridge.data.svc", Shard(11, 16)),
    ],
)
def test_a_shard_is_written_out_or_taken_from_the_host(text: str, host: str, shard: Shard) -> None:
    assert parse_shard(text, host) == shard


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("8/8", "laptop"),
        ("0/0", "laptop"),
        ("-1/8", "laptop"),
        ("2", "laptop"),
        ("2/8/1", "laptop"),
        ("host/8", "laptop"),
        ("host/8", "bridge-8"),
        ("", "bridge-1"),
    ],
)
def test_what_is_no_shard_is_refused_in_one_line(text: str, host: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_shard(text, host)

    assert len(str(refused.value).splitlines()) == 1
