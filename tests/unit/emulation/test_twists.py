"""What each kind does to an event is what it is called."""

import json
from collections.abc import Callable
from random import Random

import pytest

from leanops.domain.event.record import RawRecord, encode
from leanops.domain.limits import Limits
from leanops.domain.payload.flatten import ParseError, flat
from leanops.emulation.events.generator import Message
from leanops.emulation.events.kinds import Kind
from leanops.emulation.events.profile import PERIOD, VERSION, Leaf, Profile
from leanops.emulation.events.profiles import PROFILES
from leanops.emulation.events.texts import BROKEN, ODD
from leanops.emulation.events.twists import Twisted, twisted
from leanops.ports.delivery import MAX_RECORD_BYTES
from tests.oracle import flat as oracle
from tests.support.emulation.stories import messages_of, story

Odd = Callable[[Profile, str], tuple[str, dict[str, str]]]
each_profile = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)


def clean(profile: Profile, seed: int, events: int = 300) -> list[Message]:
    return messages_of(story(seed, topics=4, day1=events * 4), profile.name, "day1")


def text_cells(text: str) -> dict[str, str]:
    return {path: cell.text for path, cell in flat(text, Limits()).cells.items()}


def kinds(text: str) -> dict[str, str]:
    return {path: cell.kind for path, cell in flat(text, Limits()).cells.items()}


def differing(before: str, after: str) -> set[str]:
    """The paths whose text is another one, or that are gone or new."""
    old, new = text_cells(before), text_cells(after)
    return {path for path in {*old, *new} if old.get(path) != new.get(path)}


def at_path(text: str, leaf: Leaf) -> list[object]:
    """What stands at a leaf's path: nothing, or one value."""
    found = json.loads(text)
    for name in leaf.path.split("."):
        if not isinstance(found, dict) or name not in found:
            return []
        found = found[name]
    return [found]


def missing_cde(event: Twisted, before: str) -> Leaf:
    """The one leaf that was changed; its failure is the only one, but for the key's."""
    (path,) = differing(before, event.text())
    (leaf,) = [leaf for leaf in event.profile.leaves if leaf.canonical == path]
    failures = {failure for failure in event.failures if failure != "cde_missing idempotency_key"}
    assert leaf.cde
    assert failures == ({f"cde_missing {leaf.column}"} if leaf.type else set())
    assert event.has_key == (leaf != event.profile.leaves[0])
    return leaf


def nulls(event: Twisted, before: str) -> None:
    assert at_path(event.text(), missing_cde(event, before)) == [None]


def blanks(event: Twisted, before: str) -> None:
    (value,) = at_path(event.text(), missing_cde(event, before))
    assert isinstance(value, str)
    assert value.strip() == ""


def leaves_out(event: Twisted, before: str) -> None:
    assert at_path(event.text(), missing_cde(event, before)) == []


def adds(event: Twisted, before: str) -> None:
    old, new = text_cells(before), text_cells(event.text())
    assert old.items() < new.items()
    assert not event.failures


def loses(event: Twisted, before: str) -> None:
    old, new = text_cells(before), text_cells(event.text())
    assert new.items() < old.items()
    assert not event.failures


def renames(suffix: str) -> Callable[[Twisted, str], None]:
    def holds(event: Twisted, before: str) -> None:
        old, new = text_cells(before), text_cells(event.text())
        (gone,), (came,) = old.keys() - new.keys(), new.keys() - old.keys()
        assert came == gone + suffix
        assert new[came] == old[gone]
        assert not event.failures

    return holds


def retypes(event: Twisted, before: str) -> None:
    old, new = kinds(before), kinds(event.text())
    assert not differing(before, event.text())
    assert [(old[path], new[path]) for path in old if old[path] != new[path]] == [("number", "string")]
    assert not event.failures


def flattens(event: Twisted, before: str) -> None:
    old, new = text_cells(before), text_cells(event.text())
    (group,) = new.keys() - old.keys()
    assert not [path for path in new if path.startswith(f"{group}.")]
    assert all(path.startswith(f"{group}.") for path in old.keys() - new.keys())
    assert not event.failures


def miscasts(event: Twisted, before: str) -> None:
    assert len(differing(before, event.text())) == 1
    assert [failure.split()[0] for failure in event.failures] == ["cast_failed"]


def misrules(event: Twisted, before: str) -> None:
    rules = [failure.split()[0] for failure in event.failures]
    assert len(differing(before, event.text())) == len(rules)
    assert rules[0].startswith("rule_")
    assert rules[1:] in ([], ["cast_failed"])


def mistimes(event: Twisted, before: str) -> None:
    times = {event.profile.leaves[at].canonical for at in (PERIOD, VERSION)}
    (path,) = differing(before, event.text())
    assert path in times
    assert event.has_period == (path != event.profile.leaves[PERIOD].canonical)
    assert event.is_fallback == (path == event.profile.leaves[VERSION].canonical)


def is_addressed(event: Twisted, before: str) -> None:
    key = event.profile.leaves[0]
    own, left = text_cells(before)[key.canonical], text_cells(event.text()).get(key.canonical)
    assert differing(before, event.text()) <= {key.canonical}
    assert event.has_key
    assert event.idempotency_key in ((None, "not-this-one") if left == own else (own,))
    assert event.failures == ([f"cde_missing {key.column}"] if key.type and left != own else [])
    assert json.dumps(json.loads(event.attributes or ""), ensure_ascii=False, separators=(",", ":")) == event.attributes


def is_unusual(event: Twisted, before: str) -> None:
    text, period = event.text(), event.profile.leaves[PERIOD].canonical
    old, new = text_cells(before), text_cells(text)
    assert text != before
    assert not event.failures
    assert event.has_period == (period in new)
    assert {path: cell for path, cell in new.items() if path not in old} == event.extra
    assert {path for path in old if path not in new} <= {period}
    assert [
        path for path in old if path in new and new[path] not in (old[path], f"{old[path]}.0", f"{old[path]}e0")
    ] == []


def breaks(event: Twisted, _before: str) -> None:
    with pytest.raises(ParseError) as refused:
        flat(event.text(), Limits())
    assert refused.value.rule == event.rule


def swells(event: Twisted, before: str) -> None:
    breaks(event, before)
    record = RawRecord("a-message-id-of-usual-length", 0, event.profile.name, event.text(), 0)
    assert event.rule == "too_large"
    assert event.is_dead == (len(encode(record)) > MAX_RECORD_BYTES)


DOES = {
    Kind.CDE_NULL: nulls,
    Kind.CDE_BLANK: blanks,
    Kind.CDE_MISSING: leaves_out,
    Kind.BAD_TYPE: miscasts,
    Kind.BAD_RULE: misrules,
    Kind.BAD_TIME: mistimes,
    Kind.DRIFT_NEW: adds,
    Kind.DRIFT_VANISHED: loses,
    Kind.DRIFT_RENAMED: renames("V2"),
    Kind.DRIFT_OBJECT: renames(".value"),
    Kind.DRIFT_TYPE: retypes,
    Kind.DRIFT_SCALAR: flattens,
    Kind.ENVELOPE: is_addressed,
    Kind.ODD: is_unusual,
    Kind.MALFORMED: breaks,
    Kind.OVERSIZED: swells,
}
UNCHANGED = {
    Kind.NEW, Kind.CORRECTION, Kind.CROSS_PERIOD, Kind.FAR_PERIOD, Kind.DUPLICATE, Kind.REDELIVERY, Kind.LATE,
    Kind.STALE, Kind.TIED, Kind.AHEAD,
}  # fmt: skip


def test_every_kind_is_tested_here() -> None:
    assert {*DOES, *UNCHANGED} == set(Kind)


@pytest.mark.parametrize("kind", DOES)
@each_profile
def test_a_kind_does_what_it_is_called(profile: Profile, kind: Kind) -> None:
    random = Random(f"{profile.name}/{kind}")
    for message in clean(profile, 5, events=20 if kind == Kind.OVERSIZED else 300):
        DOES[kind](twisted(kind, profile, message.cells, random), message.text)


@pytest.mark.parametrize("at", range(len(BROKEN)))
@each_profile
def test_each_way_to_break_a_text_is_refused_for_its_reason(profile: Profile, at: int) -> None:
    rule, change = BROKEN[at]
    for message in clean(profile, 6, events=20):
        text = change(message.text, Random(at))
        with pytest.raises(ParseError) as refused:
            flat(text, Limits())
        assert refused.value.rule == rule
        assert oracle.flatten(text, oracle.Limits()) == oracle.Bad(rule)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@each_profile
def test_what_is_unusual_is_no_mistake(profile: Profile, odd: Odd) -> None:
    for message in clean(profile, 6, events=5):
        front, extra = odd(profile, message.text)
        found = oracle.flatten(f"{{{front}{message.text[1:]}", oracle.Limits())
        assert isinstance(found, oracle.Flat)
        assert found.cells == text_cells(message.text) | extra


AT_LIMIT = [
    ("too_deep", '"deeper":{"x":' + "[" * 63 + "]" * 63 + "},", ODD["the deepest"]),
    ("too_many_keys", '"one":{},', ODD["the most keys"]),
    ("too_large", " ", ODD["the largest"]),
]


@pytest.mark.parametrize(("rule", "more", "odd"), AT_LIMIT, ids=[rule for rule, *_ in AT_LIMIT])
@each_profile
def test_at_a_limit_one_step_more_is_too_much(profile: Profile, rule: str, more: str, odd: Odd) -> None:
    (message,) = clean(profile, 6, events=1)
    text = f"{odd(profile, message.text)[0]}{message.text[1:]}"
    assert text_cells(f"{{{text}").items() >= text_cells(message.text).items()
    with pytest.raises(ParseError) as refused:
        flat(f"{{{more}{text}", Limits())
    assert refused.value.rule == rule


@pytest.mark.parametrize("kind", [Kind.DRIFT_VANISHED, Kind.DRIFT_RENAMED, Kind.DRIFT_OBJECT])
@each_profile
def test_a_field_that_vanishes_is_missed_in_curated(profile: Profile, kind: Kind) -> None:
    typed = {leaf.canonical for leaf in profile.leaves if leaf.type}
    for message in clean(profile, 7, events=100):
        event = twisted(kind, profile, message.cells, Random(1))
        assert text_cells(message.text).keys() - text_cells(event.text()).keys() <= typed
