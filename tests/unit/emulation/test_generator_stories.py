"""What a story is made of: it holds every kind, and every law has events that decide about it."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from leanops.emulation.events.generator import DAY, HOUR, Message
from leanops.emulation.events.kinds import DAY2, DAY4, Kind
from leanops.emulation.events.profile import VERSION, Profile
from leanops.emulation.events.profiles import PROFILES
from leanops.emulation.events.texts import BROKEN
from leanops.emulation.scenario import DAYS
from tests.oracle.casts import check
from tests.support.emulation.stories import all_messages, is_copy, messages_of, story

each_profile = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
versioned = pytest.mark.parametrize("topic", [profile.name for profile in PROFILES if profile.has_version])
TIMES: dict[str, Callable[[Message], Any]] = {
    "version": lambda message: version_of(message),
    "published": lambda message: message.publish_us,
    "id": lambda message: message.message_id.encode(),
    "arrived": lambda message: message.ingestion_ms,
}


def version_of(message: Message) -> int:
    ahead = 0 if message.version_us is None else message.version_us - message.publish_us
    return message.publish_us if message.version_us is None or ahead > DAY else message.version_us


@cache
def fifty_thousand(topic: str) -> list[Message]:
    """The messages of a topic in the story of CI's size, in which each has a row."""
    sizes = {day: size * 50_000 // DAYS["day1"] for day, size in DAYS.items()}
    return all_messages(story(1, rates="", **sizes), topic)


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
    for message in all_messages(scenario, profile.name):
        if not is_copy(message):
            versions[message.key, version_of(message)].append(message)
    tied = [message for message in messages_of(scenario, profile.name, "day2") if message.kind == Kind.TIED]
    others = {message.message_id: next(iter(versions[message.key, version_of(message)])) for message in tied}
    days = {message.message_id.split("-")[1].lower() for message in others.values()}
    assert days == {"day1", "day2"}
    if profile.has_version:
        assert all(len(versions[message.key, version_of(message)]) > 1 for message in tied)
        assert {message.publish_us > others[message.message_id].publish_us for message in tied} == {True, False}
    assert any(message.message_id < others[message.message_id].message_id for message in tied)


@versioned
def test_a_version_is_ahead_of_its_publish_time_by_less_than_a_day_a_day_or_more(topic: str) -> None:
    ahead = [
        message.version_us - message.publish_us
        for message in fifty_thousand(topic)
        if message.kind == Kind.AHEAD and message.version_us
    ]
    assert {(by > DAY) - (by < DAY) for by in ahead} == {-1, 0, 1}
    assert all(HOUR <= by <= 2 * DAY and (by <= DAY - HOUR or by == DAY or by >= DAY + HOUR) for by in ahead)


def test_where_events_have_no_version_none_is_ahead() -> None:
    assert not [
        message for message in fifty_thousand("payments") if message.kind == Kind.AHEAD or message.cells[VERSION]
    ]


@each_profile
@pytest.mark.parametrize(("phase", "rates"), [("day2", DAY2), ("day4", DAY4)])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_kind_comes_on_its_day_however_rare(
    profile: Profile, phase: str, rates: dict[Kind, float], seed: int
) -> None:
    scenario = story(seed, rates="", day1=4_000, day2=1_000, day4=200)
    found = {message.kind for message in messages_of(scenario, profile.name, phase)}
    assert set(rates) - found == (set() if profile.has_version else {Kind.AHEAD} & set(rates))


@each_profile
def test_a_kind_without_a_rate_never_comes(profile: Profile) -> None:
    scenario = story(1, rates="oversized=0,odd=0,stale=0", day1=4_000, day2=4_000)
    kinds = {message.kind for message in messages_of(scenario, profile.name, "day2")}
    assert not {Kind.OVERSIZED, Kind.ODD, Kind.STALE} & kinds


@each_profile
def test_a_story_of_few_events_has_some_that_are_usual(profile: Profile) -> None:
    messages = messages_of(story(1, rates="", day1=400, day2=120), profile.name, "day2")
    assert sum(message.kind == Kind.CORRECTION for message in messages) >= 10


@each_profile
def test_every_way_to_be_broken_too_large_or_addressed_comes_on_day_2(profile: Profile) -> None:
    second = [
        message
        for message in fifty_thousand(profile.name)
        if "-day2-" in message.message_id.lower() and not is_copy(message)
    ]
    large = [message for message in second if message.kind == Kind.OVERSIZED]
    assert sum(message.kind == Kind.MALFORMED for message in second) >= len(BROKEN)
    assert {message.rule for message in second if message.kind == Kind.MALFORMED} == {rule for rule, _ in BROKEN}
    assert {message.is_dead for message in large} == {True, False}
    assert any(len(message.text) < 1_000_000 < len(message.text.encode()) for message in large)
    largest = [message.text for message in second if message.rule is None and len(message.text) > 500_000]
    assert [len(text.encode()) for text in largest] == [1_000_000]
    assert {message.idempotency_key == message.key for message in second if message.idempotency_key} == {True, False}
    assert any(message.attributes and message.idempotency_key is None for message in second)


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
    messages = messages_of(story(3, day1=4_000, day2=20_000), profile.name, "day2")
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
