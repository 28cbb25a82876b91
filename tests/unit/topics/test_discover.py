"""Discovery compared with the registry: new, known, gone and returned topics, and those that cannot be taken in."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leanops.domain.errors import SourceUnavailableError
from leanops.domain.table.definitions import OPS
from leanops.ports.source import ListedTopic, Subscription
from leanops.usecases.topics.discover import Action, Wanted, discover, tfvars
from leanops.usecases.topics.registry import add_topic, list_topics
from tests.support.builders import Clock
from tests.support.hub import Hub, hub_in
from tests.unit.conftest import Leanops

SAME_NAME = {"subscription": "{topic}"}


@dataclass
class Project:
    """A project in memory."""

    listed: dict[str, dict[str, str]]
    project: str = "shop"
    subscribed: dict[str, Subscription] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    def topics(self) -> list[ListedTopic]:
        return [ListedTopic(name, labels) for name, labels in self.listed.items()]

    def subscriptions(self) -> dict[str, Subscription]:
        return dict(self.subscribed)

    def subscribe(self, topic: str, subscription: str) -> None:
        if topic in self.broken:
            raise SourceUnavailableError("away")
        self.calls.append(subscription)
        self.subscribed[subscription] = Subscription(topic, True)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_in(tmp_path, clock=Clock()) as found:
        yield found


def run(hub: Hub, project: Project, wanted: Wanted | None = None, **rest: Any) -> dict[str, Action]:
    found = discover(hub.platform, project, hub.queue, wanted or Wanted(), **SAME_NAME | rest)
    return {one.topic: one.action for one in found}


def reason_of(hub: Hub, project: Project, topic: str, **rest: Any) -> str:
    found = discover(hub.platform, project, hub.queue, Wanted(), dry_run=True, **SAME_NAME | rest)
    return next(str(one.reason) for one in found if one.topic == topic)


def registry(hub: Hub) -> dict[str, dict[str, Any]]:
    rows = hub.platform.catalog.select("ops_db.topic_registry", list(OPS["topic_registry"].columns))
    found = {row["topic_name"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def registered(hub: Hub) -> list[str]:
    return [topic.name for topic in list_topics(hub.platform)]


def test_new_topics_are_registered_and_subscribed_once(hub: Hub) -> None:
    project = Project({"orders": {"team": "shop"}, "invoices": {}})
    assert run(hub, project) == {"invoices": Action.NEW, "orders": Action.NEW}
    assert registered(hub) == ["invoices", "orders"]
    row = registry(hub)["orders"]
    assert (row["project"], row["labels"], row["source_id"], row["status"]) == (
        "shop",
        '{"team": "shop"}',
        "orders",
        "READY",
    )
    head = hub.platform.catalog.load("ops_db.topic_registry")
    assert run(hub, project) == {"invoices": Action.KNOWN, "orders": Action.KNOWN}
    assert hub.platform.catalog.load("ops_db.topic_registry") == head
    assert project.calls == ["invoices", "orders"]


def test_a_dry_run_changes_nothing(hub: Hub) -> None:
    project = Project({"orders": {}})
    assert run(hub, project, dry_run=True) == {"orders": Action.NEW}
    assert (registered(hub), project.calls) == ([], [])


def test_prefix_and_labels_choose(hub: Hub) -> None:
    project = Project({"shop-orders": {"env": "prod"}, "shop-tests": {"env": "dev"}, "crm": {"env": "prod"}})
    chosen = Wanted("shop-", {"env": "prod"})
    assert run(hub, project, chosen) == {"shop-orders": Action.NEW}


def test_a_topic_that_cannot_be_taken_in_stops_no_other(hub: Hub) -> None:
    add_topic(hub.platform, "orders")
    project = Project({"Orders": {}, "errors": {}, "invoices": {}, "a.b": {}, "a-b": {}, "broken": {}})
    project.broken.add("broken")
    assert run(hub, project) == {
        "Orders": Action.REFUSED,
        "errors": Action.REFUSED,
        "a-b": Action.NEW,
        "a.b": Action.REFUSED,
        "broken": Action.FAILED,
        "invoices": Action.NEW,
    }
    project.broken.clear()
    assert run(hub, project)["broken"] is Action.REPAIRED
    assert run(hub, project)["broken"] is Action.KNOWN


def test_gone_topics_are_marked_and_come_back(hub: Hub) -> None:
    project = Project({"orders": {}, "invoices": {}})
    add_topic(hub.platform, "by-hand")
    run(hub, project)
    del project.listed["orders"]
    assert run(hub, project, Wanted("inv")) == {"invoices": Action.KNOWN, "orders": Action.GONE}
    assert {name: row["status"] for name, row in registry(hub).items()} == {
        "orders": "GONE",
        "invoices": "READY",
        "by-hand": "READY",
    }
    assert run(hub, project) == {"invoices": Action.KNOWN}
    assert registered(hub) == ["by-hand", "invoices", "orders"]
    project.listed["orders"] = {"team": "new"}
    project.subscribed["orders"] = Subscription(None, True)
    assert run(hub, project)["orders"] is Action.FAILED
    assert "let the bridge empty it first, then delete it" in reason_of(hub, project, "orders")
    del project.subscribed["orders"]
    assert run(hub, project)["orders"] is Action.BACK
    assert (registry(hub)["orders"]["status"], registry(hub)["orders"]["labels"]) == ("READY", '{"team": "new"}')
    assert project.subscribed["orders"] == Subscription("orders", True)


def test_a_subscription_without_our_label_is_left_alone_until_someone_says_that_it_is_ours(hub: Hub) -> None:
    project = Project({"orders": {}}, subscribed={"orders": Subscription("orders", False)})

    assert run(hub, project) == {"orders": Action.FAILED}
    assert "add the label leanops=bridge" in reason_of(hub, project, "orders")
    assert (registered(hub), project.calls) == ([], [])
    project.subscribed["orders"] = Subscription("orders", True)
    assert run(hub, project) == {"orders": Action.NEW}
    assert (registered(hub), project.calls) == (["orders"], [])


def test_subscriptions_are_called_as_the_bridge_looks_for_them(hub: Hub) -> None:
    project = Project({"orders": {}, "invoices": {}}, subscribed={"orders": Subscription("orders", False)})
    project.subscribed["lake-invoices"] = Subscription("orders", True)

    assert run(hub, project, subscription="lake-{topic}") == {"orders": Action.NEW, "invoices": Action.FAILED}
    assert "belongs to topic orders" in reason_of(hub, project, "invoices", subscription="lake-{topic}")
    assert project.calls == ["lake-orders"]
    del project.subscribed["lake-orders"]
    assert run(hub, project, subscription="lake-{topic}")["orders"] is Action.REPAIRED
    assert run(hub, project, subscription="goog-{topic}")["orders"] is Action.FAILED
    assert project.calls == ["lake-orders"] * 2


def test_a_filter_makes_no_topic_gone(hub: Hub) -> None:
    project = Project({"orders": {}, "invoices": {}})
    run(hub, project)
    assert run(hub, project, Wanted("inv")) == {"invoices": Action.KNOWN}
    assert {row["status"] for row in registry(hub).values()} == {"READY"}


def test_a_topic_added_by_hand_is_adopted_and_one_of_another_project_refused(hub: Hub) -> None:
    add_topic(hub.platform, "orders")
    assert run(hub, Project({"orders": {}})) == {"orders": Action.REPAIRED}
    assert registry(hub)["orders"]["project"] == "shop"
    other = Project({"orders": {}}, project="elsewhere")
    assert run(hub, other) == {"orders": Action.REFUSED}
    assert run(hub, Project({}, project="elsewhere")) == {}
    assert (registry(hub)["orders"]["project"], registry(hub)["orders"]["status"]) == ("shop", "READY")


def test_the_file_for_terraform_has_every_topic_and_is_stable(hub: Hub) -> None:
    project = Project({"orders": {}, "Shop.v1": {}, "x" * 200: {}})
    run(hub, project)
    project.listed = {"new": {}, "errors": {}}
    found = discover(hub.platform, project, hub.queue, Wanted(), dry_run=True, **SAME_NAME)
    written = tfvars(hub.platform, found)
    topics = json.loads(written)["topics"]
    assert list(topics) == ["Shop.v1", "new", "orders", "x" * 200]
    assert topics["Shop.v1"] == {"queue": "shop_v1", "table": "shop_v1_staging"}
    assert tfvars(hub.platform, found) == written


def test_without_a_project_the_command_says_what_to_do(
    leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    ran = leanops("topics", "discover")
    assert (ran.code, ran.err) == (2, "error: no Google project; give --project PROJECT, or set GOOGLE_CLOUD_PROJECT\n")
