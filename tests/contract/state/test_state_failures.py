"""What state stores say and do when an engine is unreachable, locked, too full, or answers nothing."""

import secrets
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import psycopg
import pytest
from botocore.config import Config

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.state import TTL, DynamoState
from leanops.adapters.sql.state import SqlState
from leanops.domain.errors import PermanentError, RetryableError, StateUnavailableError
from leanops.ports.state import ATTEMPTS, BATCHES, IDEMPOTENCY_KEYS, LOCKS, Row, Stored
from tests.support.dynamo import create_tables
from tests.support.engines import losing_the_answer_to
from tests.support.standin import Answer, standin


def test_an_unreachable_postgresql_is_retryable_and_says_what_to_do() -> None:
    store = SqlState("postgresql://leanops:s3cr3t-word@127.0.0.1:1/state")

    with pytest.raises(StateUnavailableError) as unreachable:
        store.get(LOCKS, ("orders",))

    assert isinstance(unreachable.value, RetryableError)
    assert one_line(unreachable.value)
    assert "127.0.0.1:1" in str(unreachable.value)
    assert "check that it runs" in str(unreachable.value)
    assert "s3cr3t-word" not in str(unreachable.value)


def test_a_wrong_postgresql_password_is_not_repeated_in_the_message(postgresql_url: str) -> None:
    password = postgresql_url.split(":")[2].split("@")[0]
    store = SqlState(postgresql_url.replace(password, "wrong-word"))

    with pytest.raises(StateUnavailableError) as refused:
        store.get(LOCKS, ("orders",))

    assert one_line(refused.value)
    assert "wrong-word" not in str(refused.value)
    assert "password" in str(refused.value)


def test_an_unreachable_sqlite_file_is_retryable_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    store = SqlState(f"sqlite:///{tmp_path}/state.db")

    with pytest.raises(StateUnavailableError) as unreachable:
        store.get(LOCKS, ("orders",))

    assert one_line(unreachable.value)
    assert "check that its folder can be written" in str(unreachable.value)


def test_a_file_that_is_no_database_is_not_retried(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("this is a letter, not a database, and long enough to be looked at " * 20)
    store = SqlState(f"sqlite:///{tmp_path}/state.db")

    with pytest.raises(PermanentError) as refused:
        store.get(LOCKS, ("orders",))

    assert one_line(refused.value)


def test_a_sqlite_file_locked_for_long_is_retryable_and_can_still_be_read(tmp_path: Path) -> None:
    store = SqlState(f"sqlite:///{tmp_path}/state.db", wait_seconds=0.05)
    store.put(LOCKS, {"resource": "orders"}, expected=None)

    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateUnavailableError, match="locked") as locked:
            store.put(LOCKS, {"resource": "payments"}, expected=None)
        assert store.get(LOCKS, ("orders",)) is not None

    assert one_line(locked.value)


@pytest.mark.parametrize("url", ["mysql://u:s3cr3t@h/d", "sqlite://", "sqlite:///:memory:", "s3cr3t", ""])
def test_a_url_that_names_no_store_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(PermanentError) as refused:
        SqlState(url)

    assert "s3cr3t" not in str(refused.value)
    assert "sqlite:///state.db" in str(refused.value)


def test_an_unreachable_dynamodb_is_retryable_and_says_what_to_do() -> None:
    client = boto3.client(
        "dynamodb", endpoint_url="http://127.0.0.1:1", config=Config(retries={"total_max_attempts": 1})
    )

    with pytest.raises(StateUnavailableError) as unreachable:
        DynamoState(client).get(LOCKS, ("orders",))

    assert isinstance(unreachable.value, RetryableError)
    assert one_line(unreachable.value)
    assert "check the network" in str(unreachable.value)


def test_a_missing_dynamodb_table_is_named(dynamodb_endpoint: str) -> None:
    store = DynamoState(connect("dynamodb", endpoint=dynamodb_endpoint), prefix="nowhere-")

    with pytest.raises(PermanentError, match="no table nowhere-locks"):
        list(store.rows(LOCKS))


def test_a_dynamodb_row_over_the_size_limit_is_not_retried(dynamodb_endpoint: str) -> None:
    prefix = secrets.token_hex(6)
    create_tables(prefix, [BATCHES], dynamodb_endpoint)
    store = DynamoState(connect("dynamodb", endpoint=dynamodb_endpoint), prefix=prefix)

    with pytest.raises(PermanentError) as refused:
        store.put(BATCHES, {"pipeline_id": "orders", "intent": "x" * 450_000}, expected=None)

    assert one_line(refused.value)
    assert "size" in str(refused.value)


def test_dynamodb_cleans_up_no_earlier_than_a_key_expires(dynamodb_endpoint: str) -> None:
    client = boto3.client("dynamodb", endpoint_url=dynamodb_endpoint)
    store = DynamoState(client, prefix="ttl-")
    create_tables("ttl-", [IDEMPOTENCY_KEYS], dynamodb_endpoint)

    store.put(IDEMPOTENCY_KEYS, {"idempotency_key": "a", "expires_at": 1_763_200_000_001}, expected=None)

    item = client.get_item(TableName="ttl-idempotency_keys", Key={"idempotency_key": {"S": "a"}})["Item"]
    assert item[TTL] == {"N": "1763200001"}


def test_a_dynamodb_write_whose_answer_was_lost_is_no_conflict(dynamodb_endpoint: str) -> None:
    client = boto3.client("dynamodb", endpoint_url=dynamodb_endpoint)
    store = DynamoState(client, prefix="lost-")
    create_tables("lost-", [ATTEMPTS], dynamodb_endpoint)
    answers: list[int] = []

    def lose_the_first_answer(response: tuple[object, dict[str, object]] | None, **_: object) -> float | None:
        answers.append(1)
        return 0 if len(answers) == 1 and response is not None else None

    seen = store.put(ATTEMPTS, {"pipeline_id": "orders", "tries": 0}, expected=None)
    client.meta.events.register_first("needs-retry.dynamodb.PutItem", lose_the_first_answer)
    revision = store.put(ATTEMPTS, {"pipeline_id": "orders", "tries": 1}, expected=seen)

    assert len(answers) == 2
    assert store.get(ATTEMPTS, ("orders",)) == Stored(attempt(1), revision)


@pytest.mark.parametrize("taken", [1, 7])
def test_what_dynamodb_leaves_over_of_many_rows_is_asked_for_again(taken: int) -> None:
    stored: dict[str, dict[str, Any]] = {}

    def answer(operation: str, request: dict[str, Any]) -> Answer:
        asked = request["RequestItems"]["locks"]
        if operation == "BatchWriteItem":
            assert len(asked) <= 25
            stored.update(
                {one["PutRequest"]["Item"]["resource"]["S"]: one["PutRequest"]["Item"] for one in asked[:taken]}
            )
            return 200, {"UnprocessedItems": {"locks": asked[taken:]} if asked[taken:] else {}}
        keys = asked["Keys"]
        assert (len(keys) <= 100, asked["ConsistentRead"]) == (True, True)
        found = [stored[key["resource"]["S"]] for key in keys[:taken]]
        left = {"locks": {"Keys": keys[taken:]}} if keys[taken:] else {}
        return 200, {"Responses": {"locks": found}, "UnprocessedKeys": left}

    names = [f"lock {number}" for number in range(120)]
    with standin(answer) as endpoint:
        store = DynamoState(connect("dynamodb", endpoint=endpoint))
        store.put_many(LOCKS, [{"resource": name, "generation": 1} for name in names])
        assert set(store.get_many(LOCKS, [(name,) for name in names])) == {(name,) for name in names}


def test_a_dynamodb_that_takes_none_of_many_rows_is_retryable() -> None:
    def answer(operation: str, request: dict[str, Any]) -> Answer:
        left = "UnprocessedItems" if operation == "BatchWriteItem" else "UnprocessedKeys"
        return 200, {"Responses": {}, left: request["RequestItems"]}

    with standin(answer) as endpoint:
        store = DynamoState(connect("dynamodb", endpoint=endpoint))
        with pytest.raises(StateUnavailableError, match="too busy for table locks"):
            store.put_many(LOCKS, [{"resource": "orders"}])
        with pytest.raises(StateUnavailableError, match="too busy for table locks"):
            store.get_many(LOCKS, [("orders",)])


@pytest.mark.parametrize("word", [b"INSERT", b"UPDATE"])
def test_a_postgresql_write_whose_answer_was_lost_is_no_conflict(postgresql_url: str, word: bytes) -> None:
    prefix = f"lost_{secrets.token_hex(6)}_"
    calm = SqlState(postgresql_url, prefix=prefix)
    seen = None if word == b"INSERT" else calm.put(ATTEMPTS, attempt(0), expected=None)

    with losing_the_answer_to(word, urlsplit(postgresql_url).port or 0) as (port, lost):
        store = SqlState(postgresql_url.replace(str(urlsplit(postgresql_url).port), str(port)), prefix=prefix)
        revision = store.put(ATTEMPTS, attempt(1), expected=seen)
        store.close()

    assert lost.is_set()
    assert calm.get(ATTEMPTS, ("orders",)) == Stored(attempt(1), revision)
    calm.close()


def test_a_postgresql_connection_closed_by_the_server_is_replaced(postgresql_url: str) -> None:
    prefix = f"closed_{secrets.token_hex(6)}_"
    store, other = SqlState(postgresql_url, prefix=prefix), SqlState(postgresql_url, prefix=prefix)
    revision = store.put(ATTEMPTS, attempt(0), expected=None)

    with psycopg.connect(postgresql_url, autocommit=True) as administrator:
        administrator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    assert store.get(ATTEMPTS, ("orders",)) == Stored(attempt(0), revision)
    store.close()
    other.close()


def attempt(tries: int) -> Row:
    return {**dict.fromkeys(ATTEMPTS.columns), "pipeline_id": "orders", "tries": tries}


def one_line(error: Exception) -> bool:
    return len(str(error).splitlines()) == 1


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_table_of_an_earlier_version_gets_the_columns_it_lacks(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/state.db" if engine == "sqlite" else request.getfixturevalue("postgresql_url")
    before = replace(LOCKS, columns={name: kind for name, kind in LOCKS.columns.items() if name != "generation"})
    with ExitStack() as opened:
        prefix = f"t{secrets.token_hex(6)}_"
        old, new = SqlState(url, prefix=prefix), SqlState(url, prefix=prefix)
        opened.callback(old.close)
        opened.callback(new.close)
        revision = old.put(before, {"resource": "orders", "owner": "someone"}, expected=None)
        found = new.get(LOCKS, ("orders",))
        assert found is not None
        assert (found.row["owner"], found.row["generation"], found.revision) == ("someone", None, revision)
        new.put(LOCKS, {**found.row, "generation": 7}, expected=revision)
        assert [stored.row["generation"] for stored in new.rows(LOCKS)] == [7]
        assert old.get(before, ("orders",)) is not None
