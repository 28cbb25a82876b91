"""Circuit breakers on the command line."""

from pathlib import Path

import pytest

from leanops.runtimes.background import breakers_of
from leanops.runtimes.embedded import Embedded
from tests.unit.cli.test_topics import audit
from tests.unit.conftest import Leanops


@pytest.fixture
def topic(leanops: Leanops, home: Path) -> str:
    leanops("topics", "add", "orders", "Invoices.v1")
    return "Invoices.v1"


def test_a_breaker_opened_by_hand_is_shown_closed_and_written_down(leanops: Leanops, topic: str) -> None:
    assert leanops("breaker", "open", topic, "--reason", "rubbish").code == 0
    first, second = leanops("breaker", "show", "--json").json
    assert (first["topic"], first["state"], first["by_hand"], first["reason"]) == (topic, "OPEN", True, "rubbish")
    assert (second["topic"], second["state"], second["since"]) == ("orders", "CLOSED", None)
    assert "rubbish" in leanops("breaker", "show").out
    assert leanops("breaker", "close", topic).out == f"{topic}: its queue is read again\n"
    assert {one["state"] for one in leanops("breaker", "show", "--json").json} == {"CLOSED"}
    assert [(row["action"], row["topic_name"], row["details"]) for row in audit(leanops)][2:] == [
        ("breaker open", topic, '{"reason": "rubbish"}'),
        ("breaker close", topic, None),
    ]


def test_a_breaker_that_failures_opened_says_why(leanops: Leanops, topic: str, home: Path) -> None:
    runtime = Embedded(home)
    breakers_of(runtime).report("orders", 1, 30)
    runtime.close()
    first, *_ = leanops("breaker", "show", "--json").json
    assert (first["topic"], first["by_hand"]) == ("orders", False)
    assert first["reason"] == "30 of 31 events failed within 60 s"


def test_the_breaker_of_a_topic_nobody_added_is_a_one_line_error(leanops: Leanops, topic: str) -> None:
    for words in (("open", "nosuch"), ("close", "nosuch")):
        ran = leanops("breaker", *words)
        assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_a_home_without_topics_says_what_to_do(leanops: Leanops, home: Path) -> None:
    assert leanops("breaker", "show").out == "no topics yet; add one with: leanops topics add TOPIC\n"
