"""Snapshots that others committed: exactly those without a key of ours, as far back as they still matter."""

from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.table.history import foreign_snapshots
from tests.support.builders import snapshot, table

OURS = {"leanops_batch_id": "b"}


def test_what_others_wrote_is_told_until_a_rebuild_though_batches_follow() -> None:
    before = [snapshot(1, None, **OURS), snapshot(2, 1, "delete"), snapshot(3, 2, "overwrite", **OURS)]
    rebuilt = snapshot(4, None, "overwrite", **OURS)

    assert [one.snapshot_id for one in foreign_snapshots(table(*before))] == [2]
    assert foreign_snapshots(table(*before, rebuilt)) == []


def test_when_it_became_the_head_is_told_where_the_table_knows() -> None:
    found = table(snapshot(1, None, "append"), snapshot(2, 1, "delete"), history=((1_000, 2),))
    assert [one.at_ms for one in foreign_snapshots(found)] == [1_000, None]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["append", "overwrite", "delete", "replace"])), max_size=20))
def test_exactly_the_snapshots_without_a_key_of_ours_are_foreign(history: list[tuple[bool, str]]) -> None:
    made = [
        snapshot(at, at - 1 if at > 1 else None, operation, **(OURS if ours else {}))
        for at, (ours, operation) in enumerate(history, 1)
    ]
    expected = [at for at, (ours, _) in enumerate(history, 1) if not ours]
    assert [one.snapshot_id for one in foreign_snapshots(table(*made))] == expected[::-1]
