"""The generator: pure, and what its ledger says of an event is what a parser and the oracle find in its text."""

import json
import re
from collections import Counter
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.domain.limits import Limits
from leanops.domain.payload.flatten import Cell, ParseError, flat
from leanops.domain.schema.lint import lint
from leanops.emulation.events.generator import CHUNK, DAY, FIRST_DAY, Message
from leanops.emulation.events.kinds import DAY2, DAY4, Kind
from leanops.emulation.events.profile import Profile
from leanops.emulation.events.profiles import PROFILES
from tests.oracle import flat as oracle
from tests.oracle.casts import check
from tests.oracle.rows import key_of, period_of, version_of
from tests.support.emulation.stories import all_messages, is_copy, messages_of, moment, raw_row, story

seeds = st.integers(0, 2**32)
each_profile = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
few, fewer = settings(max_examples=8), settings(max_examples=3)


def parsed(text: str) -> dict[str, Cell] | str:
    """The cells of a text, or the rule that refuses it."""
    try:
        return flat(text, Limits()).cells
    except ParseError as wrong:
        return wrong.rule


@fewer
@given(seed=seeds, order=st.permutations([("day1", 0), ("day1", 1), ("day2", 0), ("day2", 1), ("day4", 0)]))
def test_a_chunk_depends_on_its_seed_and_number_alone(seed: int, order: list[tuple[str, int]]) -> None:
    sizes = {"day1": CHUNK + 300, "day2": CHUNK + 100, "day4": 200}
    scenario = story(seed, topics=1, **sizes)
    streams = {phase: scenario.stream("orders", phase) for phase in sizes}
    for phase, index in order:
        alone = story(seed, topics=1, **sizes).stream("orders", phase).chunk(index)
        assert streams[phase].chunk(index) == alone


def test_another_seed_or_topic_gives_other_events() -> None:
    def texts(seed: int, topic: str) -> set[str]:
        return {message.text for message in messages_of(story(seed, topics=5, day1=500), topic, "day1")}

    assert not texts(1, "orders") & texts(2, "orders")
    assert not texts(1, "orders") & texts(1, "orders_2")


@few
@given(seed=seeds)
@each_profile
def test_the_ledger_has_exactly_the_cells_of_every_event(profile: Profile, seed: int) -> None:
    for message in all_messages(story(seed, day1=600, day2=1200, day4=200), profile.name):
        found = parsed(message.text)
        if isinstance(found, str):
            assert found == message.rule
            continue
        assert message.rule is None
        cells = {leaf.canonical: cell for leaf, cell in zip(profile.leaves, message.cells, strict=True)}
        there = {path: cell for path, cell in cells.items() if cell is not None}
        assert {path: cell.text for path, cell in found.items()} == there | dict(message.extra)
        kinds = {leaf.canonical: leaf.kind for leaf in profile.leaves}
        changed = {path for path, cell in found.items() if path in kinds and cell.kind != kinds[path]}
        assert changed == set(message.changed)


@few
@given(seed=seeds)
@each_profile
def test_the_oracle_finds_the_same_key_version_period_and_failures(profile: Profile, seed: int) -> None:
    schema = profile.schema(profile.name)
    for message in all_messages(story(seed, day1=400, day2=1600, day4=200), profile.name):
        parsed, raw = oracle.flatten(message.text, oracle.Limits()), raw_row(profile.name, message)
        if isinstance(parsed, oracle.Bad):
            assert parsed.rule == message.rule
            continue
        assert message.rule is None
        version, period = version_of(raw, parsed, schema), period_of(raw, parsed, schema)
        expected = raw.publish_time if message.version_us is None or is_too_far(message) else moment(message.version_us)
        assert key_of(raw, parsed, schema, b"") == message.key
        assert (version or raw.publish_time) == expected
        assert (version is None) == (message.is_fallback or is_too_far(message))
        assert period == (message.period or f"{raw.publish_time:%Y-%m}")
        failures = ["cde_missing idempotency_key"] if message.key is None else []
        for column in schema["payload_columns"]:
            failures += [f"{rule} {column['name']}" for rule in check(column, parsed.cells.get(column["path"]))[1]]
        assert sorted(failures) == list(message.failures)


def test_each_message_is_made_once_and_its_copies_differ_in_their_arrival_alone() -> None:
    messages = all_messages(story(3, topics=2, day1=2_000, day2=4_000, day4=1_000), "payments")
    made = {message.message_id: message for message in messages if not is_copy(message)}
    copies = [message for message in messages if is_copy(message)]
    assert len(made) + len(copies) == len(messages)
    assert {message.kind for message in copies} == {Kind.DUPLICATE, Kind.REDELIVERY}
    for copy in copies:
        first = made[copy.message_id]
        assert copy._replace(kind=first.kind, ingestion_ms=first.ingestion_ms) == first
        assert copy.ingestion_ms >= first.ingestion_ms


def test_a_redelivery_comes_days_later_and_a_duplicate_moments() -> None:
    scenario = story(3, topics=1, day1=2_000, day2=4_000)
    first = {message.message_id for message in messages_of(scenario, "orders", "day1")}
    second = messages_of(scenario, "orders", "day2")
    assert {message.message_id for message in second if message.kind == Kind.REDELIVERY} <= first
    sent: set[str] = set()
    for message in second:
        assert message.kind != Kind.DUPLICATE or message.message_id in sent
        sent.add(message.message_id)


@pytest.mark.parametrize(("phase", "asked"), [("day2", DAY2), ("day4", DAY4)])
def test_each_kind_is_as_frequent_as_was_asked(phase: str, asked: dict[Kind, float]) -> None:
    size = 20_000
    messages = messages_of(story(7, topics=1, rates="", day1=1_000, **{phase: size}), "orders", phase)
    found = Counter(message.kind for message in messages)
    assert set(found) <= {*asked, Kind.CORRECTION, Kind.CROSS_PERIOD}
    for kind, rate in asked.items():
        assert abs(found[kind] - rate * size) <= 5 * sqrt(rate * (1 - rate) * size) + 1, kind


@each_profile
def test_each_schema_passes_lint(profile: Profile) -> None:
    assert lint({"schema.json": json.dumps(profile.schema("a_table")).encode()}) == []


@each_profile
def test_personal_data_is_known_by_its_shape(profile: Profile) -> None:
    messages = messages_of(story(2, day1=2_000), profile.name, "day1")
    for at, leaf in enumerate(profile.leaves):
        assert (leaf.pii is None) == (leaf.shape is None), leaf.path
        for message in messages if leaf.shape else ():
            cell = message.cells[at]
            assert cell is None or re.search(leaf.shape or "", cell), leaf.path
            assert cell is None or not re.search(leaf.shape or "", "*" * (len(cell) - 4) + cell[-4:]), leaf.path


@each_profile
def test_a_shape_finds_nothing_that_is_not_personal(profile: Profile) -> None:
    shapes = "|".join(leaf.shape for leaf in profile.leaves if leaf.shape) or "(?!)"
    for message in messages_of(story(2, day1=2_000), profile.name, "day1"):
        for leaf, cell in zip(profile.leaves, message.cells, strict=True):
            assert leaf.pii or not re.search(shapes, cell or ""), leaf.path


@each_profile
def test_each_wrong_value_breaks_its_rule_and_no_other(profile: Profile) -> None:
    columns = {column["path"]: column for column in profile.schema("a_table")["payload_columns"]}
    wrong = [(leaf, rule, token) for leaf in profile.leaves for rule in leaf.wrong for token in leaf.wrong[rule]]
    for leaf, rule, token in wrong:
        (cell,) = flat(f'{{"x":{token}}}', Limits()).cells.values()
        assert check(columns[leaf.canonical], cell.text)[1] == [rule], (leaf.path, token)
        assert leaf.shape is None or re.search(leaf.shape, cell.text), (leaf.path, token)


def test_personal_data_of_each_treatment_can_be_wrong() -> None:
    leaves = [leaf for profile in PROFILES for leaf in profile.leaves]
    assert {leaf.pii for leaf in leaves if leaf.wrong} == {leaf.pii for leaf in leaves}


@each_profile
def test_what_is_late_never_wins_over_what_came_on_the_first_day(profile: Profile) -> None:
    scenario = story(4, day1=4_000, day2=4_000, day4=800)
    first = {message.key: order(message) for message in messages_of(scenario, profile.name, "day1")}
    for phase in ("day2", "day4"):
        late = [message for message in messages_of(scenario, profile.name, phase) if message.kind == Kind.LATE]
        assert late
        assert [message for message in late if order(message) >= first[message.key]] == []
        assert all(message.ingestion_ms > message.publish_us // 1_000 for message in late)


@each_profile
def test_a_correction_is_newer_than_the_event_of_the_first_day_it_corrects(profile: Profile) -> None:
    scenario = story(4, day1=4_000, day2=4_000, day4=800)
    first = {message.key: order(message) for message in messages_of(scenario, profile.name, "day1")}
    corrections = {Kind.CORRECTION, Kind.CROSS_PERIOD, Kind.FAR_PERIOD}
    for phase in ("day2", "day4"):
        found = [message for message in messages_of(scenario, profile.name, phase) if message.kind in corrections]
        assert {message.kind for message in found} == corrections
        assert [message for message in found if order(message) <= first[message.key]] == []


@each_profile
def test_a_correction_across_periods_lies_in_another_month_than_its_first_event(profile: Profile) -> None:
    scenario = story(8, day1=4_000, day2=8_000, day4=2_000)
    first = {message.key: message.period for message in messages_of(scenario, profile.name, "day1")}
    apart: dict[Kind, set[int]] = {kind: set() for kind in (Kind.CORRECTION, Kind.CROSS_PERIOD, Kind.FAR_PERIOD)}
    for message in [*messages_of(scenario, profile.name, "day2"), *messages_of(scenario, profile.name, "day4")]:
        if message.kind in apart:
            apart[message.kind].add(months(message.period) - months(first[message.key]))
    assert apart[Kind.CORRECTION] == {0}
    assert apart[Kind.CROSS_PERIOD] == {-1, 1}
    assert apart[Kind.FAR_PERIOD] == {-36, -12, -2, 3}


def test_new_events_are_about_things_nobody_has_told_of() -> None:
    scenario = story(9, topics=1, day1=1_000, day2=4_000, day4=1_000)
    known: set[str | None] = set()
    for phase in ("day1", "day2", "day4"):
        new = [message.key for message in messages_of(scenario, "orders", phase) if message.kind == Kind.NEW]
        assert len(set(new)) == len(new)
        assert not known & set(new)
        known |= set(new)


def test_day_4_lies_in_the_next_month_and_versions_in_the_future_are_those_that_should() -> None:
    scenario = story(1, topics=1, day1=1_000, day2=1_000, day4=1_000)
    months_of = {
        phase: {
            f"{moment(message.publish_us):%Y-%m}"
            for message in messages_of(scenario, "orders", phase)
            if message.kind not in (Kind.LATE, Kind.TIED) and not is_copy(message)
        }
        for phase in ("day1", "day2", "day4")
    }
    assert months_of == {"day1": {f"{FIRST_DAY:%Y-%m}"}, "day2": {"2026-10"}, "day4": {"2026-11"}}
    ahead = {
        message.kind
        for message in all_messages(scenario, "orders")
        if message.version_us is not None and message.version_us > message.publish_us and not is_copy(message)
    }
    assert ahead == {Kind.AHEAD, Kind.TIED}


def order(message: Message) -> tuple[int, int, str]:
    """The version of a message."""
    last = message.publish_us if message.version_us is None else message.version_us
    return last, message.publish_us, message.message_id


def is_too_far(message: Message) -> bool:
    """Whether its version is more than a day after its publish time."""
    return message.version_us is not None and message.version_us > message.publish_us + DAY


def months(period: str | None) -> int:
    assert period is not None
    return int(period[:4]) * 12 + int(period[5:])
