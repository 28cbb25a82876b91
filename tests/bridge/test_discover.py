"""Discovery on Google's Pub/Sub emulator, through the command line."""

import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.pubsub_v1 import PublisherClient, SubscriberClient

from leanops.adapters.gcp.topics import PubSubTopics
from leanops.domain.errors import SourceUnavailableError
from leanops.entrypoints.cli.app import run
from tests.support.engines import free_port


class Publisher:
    """The publisher's side of one project."""

    def __init__(self, project: str) -> None:
        self.project = project
        self._topics, self._subscriptions = PublisherClient(), SubscriberClient()

    def make(self, name: str, **labels: str) -> None:
        self._topics.create_topic(request={"name": f"projects/{self.project}/topics/{name}", "labels": labels})

    def remove(self, name: str) -> None:
        self._topics.delete_topic(request={"topic": f"projects/{self.project}/topics/{name}"})

    def subscribe(self, name: str, **labels: str) -> None:
        path = f"projects/{self.project}/{{}}/{name}"
        request = {"name": path.format("subscriptions"), "topic": path.format("topics"), "labels": labels}
        self._subscriptions.create_subscription(request=request)

    def subscription(self, name: str) -> Any:
        path = f"projects/{self.project}/subscriptions/{name}"
        return self._subscriptions.get_subscription(request={"subscription": path})

    def remove_subscription(self, name: str) -> None:
        path = f"projects/{self.project}/subscriptions/{name}"
        self._subscriptions.delete_subscription(request={"subscription": path})

    def close(self) -> None:
        self._topics.transport.close()
        self._subscriptions.transport.close()


@pytest.fixture
def publisher(address: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
    monkeypatch.setenv("LEANOPS_HOME", str(home))
    found = Publisher(f"shop-{secrets.token_hex(4)}")
    yield found
    found.close()


def discovered(capsys: pytest.CaptureFixture[str], publisher: Publisher, *words: str) -> dict[str, str]:
    capsys.readouterr()
    run(["topics", "discover", "--project", publisher.project, "--json", *words])
    return {row["topic"]: row["action"] for row in json.loads(capsys.readouterr().out)}


def test_topics_are_taken_in_marked_and_taken_back(publisher: Publisher, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("orders", "Shop.v1~x+y%z", "errors"):
        publisher.make(name)
    assert discovered(capsys, publisher, "--dry-run")["orders"] == "new"
    first = discovered(capsys, publisher)
    assert first == {"orders": "new", "Shop.v1~x+y%z": "new", "errors": "refused"}
    made = publisher.subscription("Shop.v1~x+y%z")
    assert (made.ack_deadline_seconds, made.message_retention_duration.days) == (60, 7)
    assert made.enable_message_ordering
    assert "expiration_policy" in made
    assert not made.expiration_policy.ttl
    assert dict(made.labels) == {"leanops": "bridge"}
    assert set(discovered(capsys, publisher).values()) == {"known", "refused"}
    publisher.remove("orders")
    assert discovered(capsys, publisher)["orders"] == "gone"
    publisher.make("orders")
    assert discovered(capsys, publisher)["orders"] == "failed"
    publisher.remove_subscription("orders")
    assert discovered(capsys, publisher)["orders"] == "back"
    assert discovered(capsys, publisher)["orders"] == "known"


def test_a_subscription_of_someone_else_is_left_alone(publisher: Publisher, capsys: pytest.CaptureFixture[str]) -> None:
    publisher.make("orders")
    publisher.subscribe("orders")
    assert discovered(capsys, publisher) == {"orders": "failed"}
    publisher.remove_subscription("orders")
    publisher.subscribe("orders", leanops="bridge")
    assert discovered(capsys, publisher) == {"orders": "new"}


def test_subscriptions_are_called_as_the_setting_says(
    publisher: Publisher, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_BRIDGE_SUBSCRIPTION", "lake-{topic}")
    publisher.make("orders")
    assert discovered(capsys, publisher) == {"orders": "new"}
    assert publisher.subscription("lake-orders").topic.endswith("/topics/orders")
    assert discovered(capsys, publisher) == {"orders": "known"}


def test_prefix_and_labels_choose(publisher: Publisher, capsys: pytest.CaptureFixture[str]) -> None:
    publisher.make("shop-orders", env="prod")
    publisher.make("shop-tests", env="dev")
    publisher.make("crm", env="prod")
    chosen = discovered(capsys, publisher, "--prefix", "shop-", "--label", "env=prod")
    assert chosen == {"shop-orders": "new"}


def test_more_topics_than_a_page_holds_are_all_listed(publisher: Publisher) -> None:
    names = {f"topic-{number}" for number in range(1_200)}
    for name in names:
        publisher.make(name)
    listing = PubSubTopics(publisher.project)
    assert {topic.name for topic in listing.topics()} == names
    listing.close()


def test_the_file_for_terraform_is_written_and_the_hook_sees_it(
    publisher: Publisher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher.make("orders")
    file, copy = tmp_path / "topics.auto.tfvars.json", tmp_path / "copy"
    program = f"import os, shutil; shutil.copy(os.environ['TFVARS_FILE'], {str(copy)!r})"
    hook = f'{sys.executable} -c "{program}"'
    words = ["--tfvars", str(file), "--hook", hook]
    assert discovered(capsys, publisher, *words) == {"orders": "new"}
    assert json.loads(copy.read_text()) == {"topics": {"orders": {"queue": "orders", "table": "orders_staging"}}}
    assert discovered(capsys, publisher, *words) == {"orders": "new"}
    assert file.read_bytes() == copy.read_bytes()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--hook", "true"), 2),
        (("--label", "env"), 2),
        (("--tfvars", "/nosuch/folder/file"), 2),
        (("--tfvars", "{file}", "--hook", "false"), 1),
        (("--tfvars", "{file}", "--hook", "nosuchprogram"), 2),
        (("--tfvars", "{file}", "--hook", "'"), 2),
    ],
)
def test_what_cannot_be_done_is_one_line(
    publisher: Publisher, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int
) -> None:
    given = [word.format(file=tmp_path / "file") for word in words]
    assert run(["topics", "discover", "--project", publisher.project, *given]) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_a_project_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{free_port()}")
    listing = PubSubTopics("nowhere", patience_s=0.5)
    with pytest.raises(SourceUnavailableError, match="nowhere"):
        listing.topics()
    listing.close()
