"""What a story is made of: it holds every kind, and every law has events that decide about it."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from leanops.emulation.events.broken import BROKEN
from leanops.emulation.events.generator import DAY, HOUR, Message
from leanops.emulation.events.kinds import DAY2, DAY4, Kind
from leanops.emulation.events.profile import VERSION, Profile
from leanops.emulation.events.profiles import PROFILES
from leanops.emulation.scenario import DAYS
from tests.oracle.casts import check
from tests.support.emulation.stories import all_told, is_copy, story, told

each_profile = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
versioned = pytest.mark.parametrize("topic", [profile.name for profile in PROFILES if profile.has_version])
TIMES: dict[str, Callable[[Message], Any]] = {
    "version": lambda one: version_of(one),
    "published": lambda one: one.publish_us,
    "id": lambda one: one.message_id.encode(),
    "arrived": lambda one: one.ingestion_ms,
}


def version_of(message: Message) -> int:
    ahead = 0 if message.version_us is None else message.version_us - message.publish_us
    return message.publish_us if message.version_us is None or ahead > DAY else message.version_us


@cache
def fifty_thousand(topic: str) -> list[Message]:
    """The messages of a topic in the story of CI's size, in which each has a row."""
    sizes = {day: size * 50_000 // DAYS["day1"] for day, size in DAYS.items()}
    return all_told(story(1, rates="", **sizes), topic)


def winners(topic: str, *order: str) -> dict[str, str]:
    """Key → the message that would win in this order; - turns a part around."""
    versions = defaultdict[str, list[Message]](list)
    for message in fifty_thousand(topic):
        if message.key and message.rule is None and not is_copy(message):
            versions[message.key].append(message)
    found = {}
    for key, several in versions.items():
        for part in reversed(order):
            several = sorted(several, key=TIMES[part.lstrip("-")], reverse=part.startswith("-"))
        found[key] = several[-1].message_id
    return {key: found[key] for key in found if len(versions[key]) > 1}


def differing(topic: str, *order: str) -> float:
    """The share of keys with several versions that another winner in this order would have."""
    right, other = winners(topic, "version", "published", "id"), winners(topic, *order)
    return sum(right[key] != other[key] for key in right) / len(right)


@versioned
@pytest.mark.parametrize(
    ("order", "share"),
    [
        (("published", "version", "id"), 0.02),
        (("arrived",), 0.05),
        (("id",), 0.05),
        (("version", "-published", "id"), 0.01),
        (("version", "id"), 0.005),
        (("version", "published", "-id"), 0.01),
    ],
)
def test_another_order_of_versions_gives_many_keys_another_winner(
    topic: str, order: tuple[str, ...], share: float
) -> None:
    assert differing(topic, *order) > share


@pytest.mark.parametrize(("order", "share"), [(("arrived",), 0.05), (("id",), 0.05), (("published", "-id"), 0.01)])
def test_where_events_have_no_version_their_publish_time_and_id_decide(order: tuple[str, ...], share: float) -> None:
    assert differing("payments", *order) > share


@each_profile
def test_a_tied_message_has_the_version_of_another_of_its_key(profile: Profile) -> None:
    scenario = story(2, rates="", day1=8_000, day2=4_000)
    versions = defaultdict[tuple[str | None, int], list[Message]](list)
    for message in all_told(scenario, profile.name):
        if not is_copy(message):
            versions[message.key, version_of(message)].append(message)
    tied = [one for one in told(scenario, profile.name, "day2") if one.kind == Kind.TIED]
    others = {one.message_id: next(iter(versions[one.key, version_of(one)])) for one in tied}
    days = {message.message_id.split("-")[1].lower() for message in others.values()}
    assert days == {"day1", "day2"}
    if profile.has_version:
        assert all(len(versions[one.key, version_of(one)]) > 1 for one in tied)
        assert {one.publish_us > others[one.message_id].publish_us for one in tied} == {True, False}
    assert any(one.message_id < others[one.message_id].message_id for one in tied)


@versioned
def test_a_version_is_ahead_of_its_publish_time_by_less_than_a_day_a_day_or_more(topic: str) -> None:
    ahead = [
        one.version_us - one.publish_us for one in fifty_thousand(topic) if one.kind == Kind.AHEAD and one.version_us
    ]
    assert {(one > DAY) - (one < DAY) for one in ahead} == {-1, 0, 1}
    assert all(HOUR <= one <= 2 * DAY and (one <= DAY - HOUR or one == DAY or one >= DAY + HOUR) for one in ahead)


def test_where_events_have_no_version_none_is_ahead() -> None:
    assert not [one for one in fifty_thousand("payments") if one.kind == Kind.AHEAD or one.cells[VERSION]]


@each_profile
@pytest.mark.parametrize(("phase", "rates"), [("day2", DAY2), ("day4", DAY4)])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_kind_comes_on_its_day_however_rare(
    profile: Profile, phase: str, rates: dict[Kind, float], seed: int
) -> None:
    scenario = story(seed, rates="", day1=4_000, day2=1_000, day4=200)
    found = {message.kind for message in told(scenario, profile.name, phase)}
    assert set(rates) - found == (set() if profile.has_version else {Kind.AHEAD} & set(rates))


@each_profile
def test_a_kind_without_a_rate_never_comes(profile: Profile) -> None:
    scenario = story(1, rates="oversized=0,odd=0,stale=0", day1=4_000, day2=4_000)
    assert not {Kind.OVERSIZED, Kind.ODD, Kind.STALE} & {one.kind for one in told(scenario, profile.name, "day2")}


@each_profile
def test_a_story_of_few_events_has_some_that_are_usual(profile: Profile) -> None:
    messages = told(story(1, rates="", day1=400, day2=120), profile.name, "day2")
    assert sum(message.kind == Kind.CORRECTION for message in messages) >= 10


@each_profile
def test_every_way_to_be_broken_too_large_or_addressed_comes_on_day_2(profile: Profile) -> None:
    second = [one for one in fifty_thousand(profile.name) if "-day2-" in one.message_id.lower() and not is_copy(one)]
    large = [one for one in second if one.kind == Kind.OVERSIZED]
    assert sum(one.kind == Kind.MALFORMED for one in second) >= len(BROKEN)
    assert {one.rule for one in second if one.kind == Kind.MALFORMED} == {rule for rule, _ in BROKEN}
    assert {one.is_dead for one in large} == {True, False}
    assert any(len(one.text) < 1_000_000 < len(one.text.encode()) for one in large)
    assert [len(one.text.encode()) for one in second if one.rule is None and len(one.text) > 500_000] == [1_000_000]
    assert {one.idempotency_key == one.key for one in second if one.idempotency_key} == {True, False}
    assert any(one.attributes and one.idempotency_key is None for one in second)


def without(column: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A column of a schema without each of its features in turn."""
    for feature in ("cde", "default", "pii"):
        if feature in column:
            yield feature, {name: value for name, value in column.items() if name != feature}
    for rule in column.get("rules", ()):
        yield rule, column | {"rules": {name: value for name, value in column["rules"].items() if name != rule}}
    if column["type"] != "STRING":
        yield "type", column | {"type": "STRING", "rules": {}}


@each_profile
def test_every_feature_of_a_schema_decides_about_an_event(profile: Profile) -> None:
    messages = told(story(3, day1=4_000, day2=20_000), profile.name, "day2")
    paths = {leaf.canonical: at for at, leaf in enumerate(profile.leaves)}
    idle = []
    for column in profile.schema(profile.name)["payload_columns"]:
        cells = {message.cells[paths[column["path"]]] for message in messages if message.rule is None}
        right = {cell: check(column, cell) for cell in cells}
        idle += [
            (column["name"], feature)
            for feature, other in without(column)
            if all(check(other, cell) == right[cell] for cell in cells)
        ]
    assert idle == []
