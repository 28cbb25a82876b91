"""Every state store writes and reads many rows at once, as it would one by one."""

import pytest

from leanops.domain.errors import PermanentError, StateConflictError
from leanops.ports.state import CHECKPOINTS, IDEMPOTENCY_KEYS, LOCKS, Row, StateStore
from tests.contract.state.test_state import TEXTS, lock


def test_many_rows_are_written_and_read_at_once(store: StateStore) -> None:
    keys = [f"key {number}" for number in range(1_030)]
    store.put(IDEMPOTENCY_KEYS, {"idempotency_key": "key 7", "expires_at": -1}, expected=None)

    store.put_many(IDEMPOTENCY_KEYS, [{"idempotency_key": key, "expires_at": at} for at, key in enumerate(keys)])
    found = store.get_many(IDEMPOTENCY_KEYS, [(key,) for key in [*keys, "absent", "key 7"]])

    assert {key: stored.row["expires_at"] for key, stored in found.items()} == {
        (key,): at for at, key in enumerate(keys)
    }
    one = store.get(IDEMPOTENCY_KEYS, ("key 7",))
    assert one == found["key 7",]
    assert len({stored.revision for stored in found.values()}) == len(keys)
    assert (store.get_many(IDEMPOTENCY_KEYS, []), store.put_many(IDEMPOTENCY_KEYS, [])) == ({}, None)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_many_rows_have_keys_of_two_parts_and_any_text(store: StateStore, text: str) -> None:
    keys = [("orders", f"a {text}"), (f"a {text}", "orders"), ("orders", "orders")]
    rows: list[Row] = [{"pipeline_id": one, "checkpoint_type": two, "batch_seq": 7} for one, two in keys]

    store.put_many(CHECKPOINTS, rows)

    assert set(store.get_many(CHECKPOINTS, [*keys, ("a", "b")])) == set(keys)


def test_of_many_rows_none_is_written_where_one_is_wrong(store: StateStore) -> None:
    right: Row = {"resource": "orders"}
    for wrong in ({"resource": ""}, {"resource": "other", "generation": "text"}, right):
        with pytest.raises(PermanentError):
            store.put_many(LOCKS, [right, wrong])
    with pytest.raises(PermanentError):
        store.get_many(LOCKS, [("orders",), ("",)])

    assert list(store.rows(LOCKS)) == []


def test_a_row_that_many_wrote_over_refuses_the_revision_of_before(store: StateStore) -> None:
    seen = store.put(LOCKS, lock(owner="first"), expected=None)
    store.put_many(LOCKS, [lock(generation=2)])

    with pytest.raises(StateConflictError):
        store.put(LOCKS, lock(owner="late"), expected=seen)
    found = store.get(LOCKS, ("orders",))
    assert found is not None
    assert (found.row["owner"], found.row["generation"]) == (None, 2)
