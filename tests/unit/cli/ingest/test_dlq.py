"""Dead letters on the command line: listed, shown, drained, replayed and discarded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leanops.domain.event.envelope import Envelope, encoded, micros
from leanops.domain.failures import Rule, error_id
from leanops.ports.queue import Outgoing, dead_letter_queue
from leanops.runtimes.embedded import Embedded
from leanops.usecases.dlq.drain import drain
from leanops.usecases.ingest.archive import DeadLetter, archive
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import NOW
from tests.unit.cli.test_topics import audit
from tests.unit.conftest import Leanops

M1 = error_id("dlq", "orders", "m1")
ODD = b'{"message_id": "m2", "payload": "\x1b[31m\xff"}'


def body(message_id: str) -> bytes:
    return encoded(Envelope("orders", message_id, micros(NOW), payload="{}"))


@pytest.fixture
def runtime(home: Path) -> Iterator[Embedded]:
    runtime = Embedded(home)
    add_topic(runtime.platform, "orders")
    yield runtime
    runtime.close()


@pytest.fixture
def dead_letters(runtime: Embedded) -> Embedded:
    """Two dead letters of a topic, and one of a topic nobody registered."""
    found = [
        DeadLetter("orders", body("m1"), Rule.TOO_LARGE, "[red]large[/red]", "m1", micros(NOW)),
        DeadLetter("orders", ODD, Rule.BAD_ENVELOPE, "it is odd", "m2"),
        DeadLetter("ghosts", body("m3"), Rule.UNROUTABLE, "no table", "m3"),
    ]
    archive(found, runtime.files, runtime.platform.state, runtime.platform.clock)
    drain(runtime.platform)
    return runtime


def test_dead_letters_are_listed_by_topic_rule_and_status(leanops: Leanops, dead_letters: Embedded) -> None:
    everything = leanops("dlq", "list")
    assert everything.code == 0
    assert "too_large: [red]large[/red]" in everything.out
    assert "3 dead letters" in everything.out

    def listed(*words: str) -> set[str]:
        return {row["message_id"] for row in leanops("dlq", "list", "--json", *words).json}

    assert listed("--topic", "orders") == {"m1", "m2"}
    assert listed("--topic", "ghosts", "--status", "open") == {"m3"}
    assert listed("--rule", "too_large") == {"m1"}
    assert listed("--status", "replayed") == set()


def test_errors_list_has_dead_letters_too(leanops: Leanops, dead_letters: Embedded) -> None:
    assert {row["layer"] for row in leanops("errors", "list", "--json").json} == {"dlq"}
    assert len(leanops("errors", "list", "--layer", "dlq", "--json").json) == 3
    assert leanops("errors", "show", M1).out == leanops("dlq", "show", M1).out


def test_a_dead_letter_is_shown_with_its_bytes_and_a_warning(leanops: Leanops, dead_letters: Embedded) -> None:
    ran = leanops("dlq", "show", error_id("dlq", "orders", "m2")[:10])
    assert ran.code == 0
    assert '{"message_id": "m2", "payload": "\\x1b[31m\\xff"}' in ran.out
    assert "personal data" in ran.err
    shown = leanops("dlq", "show", M1, "--json").json
    assert (shown["archived"], shown["bytes"]) == (body("m1").decode(), len(body("m1")))
    dead_letters.files.delete(shown["source"])
    assert "no longer exists" in leanops("dlq", "show", M1).out


def test_a_long_dead_letter_is_cut_on_a_screen_and_whole_in_a_pipe(
    leanops: Leanops, dead_letters: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    [row] = leanops("dlq", "list", "--topic", "orders", "--json", "--limit", "1").json
    dead_letters.files.put(row["source"], b"x" * 1_000_000)
    assert leanops("dlq", "show", row["error_id"]).out.count("x") >= 1_000_000
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shown = leanops("dlq", "show", row["error_id"]).out
    assert len(shown) < 10_000
    assert f"996,000 more characters; see all of it with: leanops dlq show {row['error_id'][:8]}" in shown.replace(
        "\n", " "
    )


def test_drain_empties_the_dead_letter_queues(leanops: Leanops, runtime: Embedded) -> None:
    runtime.queue.send([Outgoing(dead_letter_queue("orders"), body("m9"))])
    ran = leanops("dlq", "drain")
    assert "1 event archived" in ran.out
    assert "1 dead letter drained" in ran.out
    (row,) = leanops("dlq", "list", "--json").json
    assert (row["message_id"], row["failures"][0]["rule"]) == ("m9", "receives_exceeded")
    assert "0 events archived" in leanops("dlq", "drain").out


def test_a_replay_wants_a_yes_and_is_written_down(leanops: Leanops, dead_letters: Embedded) -> None:
    asked = leanops("dlq", "replay", "--topic", "orders")
    assert (asked.code, asked.err.splitlines()[-1]) == (
        2,
        "error: this would replay 2 dead letters; confirm with --yes",
    )
    tried = leanops("dlq", "replay", "--dry-run", "--json")
    assert {row["message_id"]: row["outcome"] for row in tried.json} == {
        "m1": "would be done",
        "m2": "would be done",
        "m3": "not registered",
    }
    assert dead_letters.queue.depth("orders").messages == 0
    ran = leanops("dlq", "replay", "--topic", "orders", "--yes", "--rate", "1000")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "2 replayed")
    assert dead_letters.queue.depth("orders").messages == 2
    again = leanops("dlq", "replay", "--yes", "--topic", "orders")
    assert (again.code, again.out) == (0, "no matching dead letter\n")
    assert leanops("dlq", "replay", "--id", M1[:8], "--json").json[0]["outcome"] == "already replayed or discarded"
    assert [(row["action"], row["details"]) for row in audit(leanops)] == [("dlq replay", '{"replayed": 2}')]


def test_a_replay_that_could_not_send_everything_says_so_by_its_code(leanops: Leanops, dead_letters: Embedded) -> None:
    ran = leanops("dlq", "replay", "--yes")
    assert ran.code == 3
    assert "2 replayed, 1 not registered" in ran.out


def test_discarded_dead_letters_are_not_replayed(leanops: Leanops, dead_letters: Embedded) -> None:
    ran = leanops("dlq", "discard", "--id", M1, "--yes")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "1 discarded")
    replayed = leanops("dlq", "replay", "--topic", "orders", "--yes", "--json").json
    assert [row["message_id"] for row in replayed] == ["m2"]
    assert [row["action"] for row in audit(leanops)] == ["dlq discard", "dlq replay"]
    assert {row["message_id"] for row in leanops("dlq", "list", "--status", "discarded", "--json").json} == {"m1"}


@pytest.mark.parametrize(
    "words",
    [
        ("show", "zz"),
        ("show", "abcdef01"),
        ("replay", "--id", "' or 1"),
        ("replay", "--id", "abcdef01"),
        ("replay", "--topic", "nosuch"),
        ("discard", "--topic", "no such'"),
        ("list", "--topic", "nosuch"),
        ("list", "--rule", "too_larg"),
        ("list", "--status", "gone"),
    ],
)
def test_a_typo_is_one_line(leanops: Leanops, dead_letters: Embedded, words: tuple[str, ...]) -> None:
    ran = leanops("dlq", *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_a_home_without_dead_letters_has_none(leanops: Leanops, home: Path) -> None:
    assert leanops("dlq", "list").out == "0 dead letters\n"
    assert leanops("dlq", "replay", "--yes").out == "no matching dead letter\n"
