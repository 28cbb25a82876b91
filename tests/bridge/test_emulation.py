"""`leanops emulate --through pubsub`: what is published to Pub/Sub comes over a bridge, and what does not is named."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import duckdb
import pytest

from leanops.adapters.gcp.topics import PubSubTopics
from leanops.domain.errors import EmulationError, UsageError
from leanops.emulation import ledger
from leanops.emulation.events.generator import DAY
from leanops.emulation.events.kinds import COPIES
from leanops.emulation.play.crossing import Crossing, missing
from leanops.emulation.play.feed import Feed, land, make_part, send
from leanops.emulation.play.homes import fresh_home, scenario_of
from leanops.emulation.play.pubsub import prepare
from leanops.emulation.scenario import PUBSUB, Scenario
from leanops.emulation.verify.fates import Fates
from leanops.emulation.verify.verdict import Verdict, verify
from leanops.entrypoints.cli.app import run
from leanops.runtimes.embedded import Embedded
from leanops.usecases.topics.registry import add_topics
from tests.support.pubsub.cloud import Cloud
from tests.support.pubsub.emulator import PROJECT
from tests.support.pubsub.living import living
from tests.support.pubsub.processes import until

BROKEN = "malformed=0.2,oversized=0.02,bad_time=0.1,late=0.1"


@pytest.fixture(autouse=True)
def endpoint(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)


@contextmanager
def emulation(folder: Path, scenario: Scenario) -> Iterator[Embedded]:
    """The home of an emulation with its topics, without Spark."""
    runtime = Embedded(fresh_home(folder / "emulation", scenario))
    add_topics(runtime.platform, dict.fromkeys(scenario.names()))
    try:
        yield runtime
    finally:
        runtime.close()


def wrong(verdict: Verdict) -> dict[str, str]:
    """Every message named by a check, and what is said of it."""
    return {one.message_id: one.what for topic in verdict.topics for check in topic.checks for one in check.examples}


def test_two_days_cross_a_bridge_and_every_message_lands(tmp_path: Path) -> None:
    scenario = Scenario(topics=2, rates=BROKEN, through=PUBSUB)
    with emulation(tmp_path, scenario) as runtime:
        feed = Feed(runtime)
        try:
            for phase, events in {"day1": 600, "day2": 400}.items():
                scenario.events[phase] = events
                assert feed.run(scenario, phase) == events
        finally:
            feed.close()

        verdict = verify(runtime, scenario)

        assert wrong(verdict) == {}
        assert verdict.passed
        for topic in verdict.topics:
            checks = {check.name: check.expected for check in topic.checks}
            assert checks["dead letters"] > 0
            assert checks["messages in RAW"] + checks["dead letters"] == 500
            parts = ledger.parts(runtime.home, topic.topic)
            kinds, times = duckdb.sql(
                f"SELECT list(DISTINCT kind), count(publish_us) FROM read_parquet({parts})"
            ).fetchall()[0]
            assert {"malformed", "oversized", "bad_time", "late"} <= set(kinds)
            assert not set(kinds) & set(COPIES)
            assert times == 0


def test_a_message_that_somebody_else_took_is_counted_and_named(tmp_path: Path, cloud: Cloud) -> None:
    scenario = Scenario(topics=1, through=PUBSUB, events={"day1": 300})
    with emulation(tmp_path, scenario) as runtime:
        prepare(scenario.names(), "{topic}")
        (topic,) = scenario.names()
        make_part(runtime.home, scenario, "day1", topic, 0)
        taken = cloud.take(topic)
        crossing = Crossing(runtime, partial(land, runtime))
        try:
            until(lambda: land(runtime) or missing(runtime, [topic]) == 1)
            with pytest.raises(EmulationError, match=r"^1 of the published events did not arrive"):
                crossing.wait([topic], lambda _left: None, patience_s=0)
        finally:
            crossing.close()

        assert wrong(verify(runtime, scenario)) == {taken: "is nowhere, not on its way"}


def test_a_bridge_that_ended_is_not_waited_for(tmp_path: Path) -> None:
    scenario = Scenario(topics=1, through=PUBSUB, events={"day1": 5})
    with emulation(tmp_path, scenario) as runtime:
        prepare(scenario.names(), "{topic}")
        (topic,) = scenario.names()
        make_part(runtime.home, scenario, "day1", topic, 0)
        crossing = Crossing(runtime, lambda: None)
        try:
            for process in living(runtime.home):
                os.kill(process, signal.SIGKILL)
            with pytest.raises(EmulationError, match="the worker bridge ended by itself with -9"):
                crossing.wait([topic], lambda _left: None)
        finally:
            crossing.close()


def test_a_version_a_day_ahead_of_the_day_it_is_published_is_none(tmp_path: Path) -> None:
    scenario = Scenario(topics=2, events={"day1": 200})
    topic, profile = next((name, profile) for name, profile in scenario.names().items() if profile.has_version)
    with emulation(tmp_path, scenario) as runtime:
        made = [one._replace(publish_us=one.publish_us - 2 * DAY) for one in scenario.stream(topic, "day1").chunk(0)]
        send(runtime, topic, made)
        land(runtime)
        ledger.write(runtime.home, topic, profile, "day1-00000", made, ids=[one.message_id for one in made])
        fates = Fates(runtime, scenario, topic)

        found = fates.rows("SELECT message_id, is_fallback, last_us FROM message ORDER BY 1")

        fates.close()
    assert found == sorted((one.message_id, True, one.publish_us) for one in made)


def test_what_an_earlier_emulation_left_does_not_come_to_a_later_one(cloud: Cloud) -> None:
    prepare(["orders"], "{topic}")
    stray = PubSubTopics(PROJECT).publish("orders", [b"{}", b""])
    assert sorted(cloud.left("orders")) == sorted(stray)

    prepare(["orders"], "{topic}")

    assert cloud.left("orders") == []


def test_a_topic_of_somebody_else_is_left_alone(monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", f"{cloud.word}-production")
    PubSubTopics(f"{cloud.word}-production").create("orders", ("team", "shop"))

    with pytest.raises(UsageError, match=r"topic orders of project .* does not belong to an emulation"):
        prepare(["orders"], "{topic}")


def test_a_project_of_somebody_else_is_refused_before_anything_is_made_or_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    project, home = f"{cloud.word}-production", fresh_home(tmp_path / "home", Scenario(seed=5))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", project)
    PubSubTopics(project).create("payments", ("team", "shop"))

    with pytest.raises(UsageError, match="topic payments of project"):
        prepare(["orders", "payments"], "{topic}")
    code = run(["emulate", "clean", "--home", str(home), "--through", "pubsub"])

    assert (code, len(capsys.readouterr().err.splitlines())) == (2, 1)
    assert scenario_of(home).seed == 5
    listing = PubSubTopics(project)
    assert [topic.name for topic in listing.topics()] == ["payments"]
    assert listing.subscriptions() == {}
    listing.close()


@pytest.mark.parametrize(
    ("words", "missing_variable", "said"),
    [
        ([], "GOOGLE_CLOUD_PROJECT", "set GOOGLE_CLOUD_PROJECT"),
        (["--rates", "redelivery=0.1"], "", "duplicate and redelivery and envelope cannot be sent through Pub/Sub"),
    ],
)
def test_what_keeps_it_from_starting_is_said_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    missing_variable: str,
    said: str,
) -> None:
    monkeypatch.delenv(missing_variable, raising=False)

    code = run(["emulate", "clean", "--home", str(tmp_path / "new"), "--through", "pubsub", *words])

    told = capsys.readouterr().err
    assert code == 2
    assert said in told
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_a_missing_client_of_google_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "leanops.adapters.gcp.topics", None)

    code = run(["emulate", "clean", "--home", str(tmp_path / "new"), "--through", "pubsub"])

    assert code == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: Pub/Sub needs Google's client; install it with: pip install 'leanops[gcp]'"
    ]
