"""Every state store keeps the same promises: SQLite, PostgreSQL and DynamoDB Local, all of them real."""

import multiprocessing
import secrets
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from leanops.domain.errors import PermanentError, StateConflictError
from leanops.ports.state import (
    ATTEMPTS,
    BATCHES,
    CHECKPOINTS,
    ERROR_TRACKER,
    IDEMPOTENCY_KEYS,
    LOCKS,
    SCHEMA_REGISTRY,
    TABLES,
    Row,
    StateStore,
    StateTable,
    new_revision,
)
from tests.contract.conftest import OpenState

TEXTS = {
    "empty": "",
    "quotes": 'it\'s "quoted" \\ and; -- more %s :name',
    "blank": " \t\r\n",
    "control": "\x00\x01\x1a\x1a0\x1a1\x7f\x00",
    "scripts": "Ünïcödé ñ 漢字 العربية \u202e 👩‍👩‍👧 \ufeff\uffff\U0010ffff",
    "forms": "e\u0301 is not \u00e9",
}


def lock(resource: str = "orders", **values: str | int | bool | None) -> Row:
    return {"resource": resource, **values}


def test_an_absent_row_is_none(store: StateStore) -> None:
    assert store.get(LOCKS, ("orders",)) is None
    assert list(store.rows(LOCKS)) == []


def test_a_row_put_where_none_was_can_be_read_with_its_revision(store: StateStore) -> None:
    revision = store.put(LOCKS, lock(owner="worker-1", generation=1, lease_until=300_000), expected=None)

    found = store.get(LOCKS, ("orders",))

    assert found is not None
    assert found.row == {"resource": "orders", "owner": "worker-1", "generation": 1, "lease_until": 300_000}
    assert found.revision == revision


def test_a_row_that_must_be_absent_but_is_present_is_a_conflict(store: StateStore) -> None:
    revision = store.put(LOCKS, lock(owner="first"), expected=None)

    with pytest.raises(StateConflictError) as conflict:
        store.put(LOCKS, lock(owner="second"), expected=None)

    assert (conflict.value.table, conflict.value.key) == ("locks", ("orders",))
    found = store.get(LOCKS, ("orders",))
    assert found is not None
    assert (found.row["owner"], found.revision) == ("first", revision)


def test_the_revision_seen_allows_exactly_one_change(store: StateStore) -> None:
    seen = store.put(LOCKS, lock(generation=1), expected=None)
    store.put(LOCKS, lock(generation=2), expected=seen)

    with pytest.raises(StateConflictError):
        store.put(LOCKS, lock(generation=3), expected=seen)

    found = store.get(LOCKS, ("orders",))
    assert found is not None
    assert found.row["generation"] == 2


def test_a_change_to_an_absent_row_is_a_conflict(store: StateStore) -> None:
    with pytest.raises(StateConflictError):
        store.put(LOCKS, lock(generation=1), expected=1)

    assert store.get(LOCKS, ("orders",)) is None


def test_a_put_replaces_the_whole_row(store: StateStore) -> None:
    seen = store.put(LOCKS, lock(owner="worker-1", generation=1), expected=None)

    store.put(LOCKS, lock(lease_until=5), expected=seen)

    found = store.get(LOCKS, ("orders",))
    assert found is not None
    assert found.row == {"resource": "orders", "owner": None, "generation": None, "lease_until": 5}


def test_a_stale_revision_does_not_delete(store: StateStore) -> None:
    seen = store.put(LOCKS, lock(generation=1), expected=None)
    newer = store.put(LOCKS, lock(generation=2), expected=seen)

    with pytest.raises(StateConflictError):
        store.delete(LOCKS, ("orders",), expected=seen)

    assert store.get(LOCKS, ("orders",)) is not None
    store.delete(LOCKS, ("orders",), expected=newer)
    assert store.get(LOCKS, ("orders",)) is None


def test_deleting_an_absent_row_is_a_conflict(store: StateStore) -> None:
    with pytest.raises(StateConflictError):
        store.delete(LOCKS, ("orders",), expected=1)


def test_a_row_made_anew_refuses_the_revision_of_the_one_deleted(store: StateStore) -> None:
    old = store.put(LOCKS, lock(owner="first"), expected=None)
    store.delete(LOCKS, ("orders",), expected=old)
    store.put(LOCKS, lock(owner="second"), expected=None)

    with pytest.raises(StateConflictError):
        store.put(LOCKS, lock(owner="zombie"), expected=old)


def test_both_parts_of_a_key_tell_rows_apart(store: StateStore) -> None:
    keys = [("orders", "standardize"), ("orders", "curate"), ("payments", "standardize")]
    for number, (pipeline, kind) in enumerate(keys):
        row: Row = {"pipeline_id": pipeline, "checkpoint_type": kind, "batch_seq": number}
        store.put(CHECKPOINTS, row, expected=None)

    found = [store.get(CHECKPOINTS, key) for key in keys]

    assert [stored and stored.row["batch_seq"] for stored in found] == [0, 1, 2]
    assert store.get(CHECKPOINTS, ("payments", "curate")) is None


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 9_000_000_000_000_000_000])
def test_whole_numbers_of_64_bits_come_back_exactly(store: StateStore, number: int) -> None:
    row: Row = {"pipeline_id": "orders", "checkpoint_type": "standardize", "snapshot_id": number}
    store.put(CHECKPOINTS, row, expected=None)

    found = store.get(CHECKPOINTS, ("orders", "standardize"))

    assert found is not None
    assert found.row["snapshot_id"] == number
    assert type(found.row["snapshot_id"]) is int


@pytest.mark.parametrize("flag", [True, False, None])
def test_flags_come_back_as_flags(store: StateStore, flag: bool | None) -> None:
    store.put(SCHEMA_REGISTRY, {"topic_name": "orders", "processing_enabled": flag}, expected=None)

    found = store.get(SCHEMA_REGISTRY, ("orders",))

    assert found is not None
    assert found.row["processing_enabled"] is flag


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_text_comes_back_exactly(store: StateStore, text: str) -> None:
    key = f"key {text}"
    store.put(ERROR_TRACKER, {"error_id": key, "source": text}, expected=None)

    found = store.get(ERROR_TRACKER, (key,))

    assert found is not None
    assert (found.row["error_id"], found.row["source"]) == (key, text)
    assert [stored.row for stored in store.rows(ERROR_TRACKER)] == [found.row]


def test_keys_that_only_look_alike_are_different_rows(store: StateStore) -> None:
    keys = ["key", "Key", "key ", "ke\u0301y", "k\u00e9y", "key\x00", "key\x1a0"]
    for number, key in enumerate(keys):
        store.put(IDEMPOTENCY_KEYS, {"idempotency_key": key, "expires_at": number}, expected=None)

    found = [store.get(IDEMPOTENCY_KEYS, (key,)) for key in keys]

    assert [stored and stored.row["expires_at"] for stored in found] == list(range(len(keys)))


def test_every_table_keeps_every_column(store: StateStore) -> None:
    samples: dict[type, str | int | bool] = {str: "text", int: 1_763_200_000_000, bool: True}
    for table in TABLES:
        row: Row = {**dict.fromkeys(table.key, "key"), **{name: samples[kind] for name, kind in table.columns.items()}}
        store.put(table, row, expected=None)

        assert [stored.row for stored in store.rows(table)] == [row]


def test_every_column_but_the_key_may_be_empty(store: StateStore) -> None:
    for table in TABLES:
        store.put(table, dict.fromkeys(table.key, "key"), expected=None)

        [stored] = store.rows(table)

        assert stored.row == {**dict.fromkeys(table.columns, None), **dict.fromkeys(table.key, "key")}


def test_an_intent_of_300_kb_comes_back_exactly(store: StateStore) -> None:
    intent = secrets.token_hex(150_000)
    store.put(BATCHES, {"pipeline_id": "orders", "batch_id": "b1", "intent": intent}, expected=None)

    found = store.get(BATCHES, ("orders",))

    assert found is not None
    assert found.row["intent"] == intent


def test_rows_are_complete_beyond_one_page(store: StateStore) -> None:
    intent = secrets.token_hex(75_000)
    names = {f"topic-{number:02}" for number in range(21)}
    revisions = {
        name: store.put(BATCHES, {"pipeline_id": name, "intent": intent}, expected=None) for name in sorted(names)
    }

    stored = list(store.rows(BATCHES))

    assert len(stored) == len(names)
    assert {found.row["pipeline_id"]: found.revision for found in stored} == revisions
    assert all(found.row["intent"] == intent for found in stored)


def test_rows_with_two_key_columns_are_complete_beyond_one_page(store: StateStore) -> None:
    keys = {(f"pipeline-{number % 5}", f"type-{number}") for number in range(30)}
    for pipeline, kind in keys:
        store.put(CHECKPOINTS, {"pipeline_id": pipeline, "checkpoint_type": kind}, expected=None)

    stored = [CHECKPOINTS.key_of(found.row) for found in store.rows(CHECKPOINTS)]

    assert sorted(stored) == sorted(keys)


def test_rows_may_be_changed_while_they_are_walked(store: StateStore) -> None:
    for number in range(20):
        store.put(ATTEMPTS, {"pipeline_id": f"p{number}", "tries": 0}, expected=None)

    for found in store.rows(ATTEMPTS):
        store.put(ATTEMPTS, {**found.row, "tries": 1}, expected=found.revision)

    assert [found.row["tries"] for found in store.rows(ATTEMPTS)] == [1] * 20


def test_purge_deletes_what_is_below_the_limit_and_nothing_else(store: StateStore) -> None:
    for name, expires_at in {"old": 99, "older": -5, "limit": 100, "new": 101, "never": None}.items():
        store.put(IDEMPOTENCY_KEYS, {"idempotency_key": name, "expires_at": expires_at}, expected=None)

    assert store.purge(IDEMPOTENCY_KEYS, "expires_at", 100) == 2
    assert store.purge(IDEMPOTENCY_KEYS, "expires_at", 100) == 0

    assert {found.row["idempotency_key"] for found in store.rows(IDEMPOTENCY_KEYS)} == {"limit", "new", "never"}


def test_eight_threads_lose_no_update(store: StateStore) -> None:
    threads, each = 8, 10
    store.put(ATTEMPTS, {"pipeline_id": "orders", "tries": 0}, expected=None)
    start = Barrier(threads)

    def work() -> None:
        start.wait()
        for _ in range(each):
            increment(store)

    with ThreadPoolExecutor(threads) as pool:
        for running in [pool.submit(work) for _ in range(threads)]:
            running.result()

    assert tries(store) == threads * each


def test_of_many_who_want_an_absent_row_one_gets_it(open_store: OpenState) -> None:
    workers = 8
    start = Barrier(workers)

    def claim(store: StateStore, owner: str) -> str | None:
        start.wait()
        try:
            store.put(LOCKS, lock(owner=owner), expected=None)
        except StateConflictError:
            return None
        return owner

    # Each store is fresh, so all of them also find their table missing at the same moment.
    with ThreadPoolExecutor(workers) as pool:
        claims = [pool.submit(claim, open_store(), f"worker-{number}") for number in range(workers)]
        winners = [claimed.result() for claimed in claims if claimed.result()]

    found = open_store().get(LOCKS, ("orders",))
    assert found is not None
    assert winners == [found.row["owner"]]


def test_two_stores_on_one_database_see_each_other(open_store: OpenState) -> None:
    one, other = open_store(), open_store()
    seen = one.put(LOCKS, lock(owner="one"), expected=None)

    newer = other.put(LOCKS, lock(owner="other"), expected=seen)

    with pytest.raises(StateConflictError):
        one.put(LOCKS, lock(owner="one"), expected=seen)
    one.delete(LOCKS, ("orders",), expected=newer)
    assert other.get(LOCKS, ("orders",)) is None


@pytest.mark.parametrize("open_store", ["sqlite", "postgresql"], indirect=True)
def test_a_forked_child_uses_connections_of_its_own(store: StateStore) -> None:
    store.put(ATTEMPTS, {"pipeline_id": "orders", "tries": 0}, expected=None)
    child = multiprocessing.get_context("fork").Process(target=increment_often, args=(store,))

    child.start()
    increment_often(store)
    child.join(60)

    assert child.exitcode == 0
    assert tries(store) == 40


BAD_ROWS: dict[str, tuple[StateTable, Row]] = {
    "an unknown column": (LOCKS, {"resource": "orders", "colour": "red"}),
    "no key": (LOCKS, {"owner": "worker-1"}),
    "an empty key": (LOCKS, {"resource": ""}),
    "half a key": (CHECKPOINTS, {"pipeline_id": "orders"}),
    "a number as text": (LOCKS, {"resource": "orders", "generation": "1"}),
    "a flag as number": (LOCKS, {"resource": "orders", "generation": True}),
    "a number as flag": (SCHEMA_REGISTRY, {"topic_name": "orders", "processing_enabled": 1}),
    "more than 64 bits": (LOCKS, {"resource": "orders", "generation": 2**63}),
    "half a character": (LOCKS, {"resource": "orders", "owner": "\ud800"}),
}


@pytest.mark.parametrize(("table", "row"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_what_one_engine_would_refuse_all_refuse(store: StateStore, table: StateTable, row: Row) -> None:
    with pytest.raises(PermanentError) as refused:
        store.put(table, row, expected=None)

    assert len(str(refused.value).splitlines()) == 1
    assert list(store.rows(table)) == []


def test_only_numbers_can_be_purged(store: StateStore) -> None:
    with pytest.raises(PermanentError):
        store.purge(LOCKS, "owner", 1)


def test_revisions_do_not_repeat() -> None:
    revisions = {new_revision() for _ in range(1000)}
    assert len([revision for revision in revisions if 0 < revision < 2**63]) == 1000


def increment(store: StateStore) -> None:
    while True:
        found = store.get(ATTEMPTS, ("orders",))
        assert found is not None
        try:
            store.put(ATTEMPTS, {**found.row, "tries": int(found.row["tries"] or 0) + 1}, expected=found.revision)
        except StateConflictError:
            continue
        return


def increment_often(store: StateStore) -> None:
    for _ in range(20):
        increment(store)


def tries(store: StateStore) -> int:
    found = store.get(ATTEMPTS, ("orders",))
    assert found is not None
    return int(found.row["tries"] or 0)
