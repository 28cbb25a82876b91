"""Histories of tables: what a batch may read, and which watermark counts."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import SourceRewrittenError
from leanops.domain.table.balance import CuratedCounts, StandardizedCounts, Totals
from leanops.domain.table.history import (
    FOLD,
    KIND,
    Snapshot,
    SourceRange,
    TableView,
    Timeline,
    Watermark,
    has_batch,
    has_moved,
    is_ancestor,
    is_compaction,
    is_same_data,
    new_range,
    valid_watermark,
    watermark_from,
)
from tests.support.builders import snapshot, table, watermark

THREE = [snapshot(1, None, added_records=5), snapshot(2, 1, added_records=3), snapshot(3, 2, added_records=2)]
NUMBER = st.integers(0, 2**62)


def retention(snapshot_id: int, parent_id: int, total: int) -> Snapshot:
    return snapshot(snapshot_id, parent_id, "delete", leanops_kind="retention", total_records=total)


# What is new


def test_a_table_without_snapshots_has_nothing_new() -> None:
    assert new_range(table(), None) is None
    assert new_range(table(), watermark(7)) is None


def test_the_first_run_reads_all_there_is() -> None:
    assert new_range(table(*THREE), None) == SourceRange(None, 3, 10)


def test_a_first_run_over_empty_appends_has_nothing_new() -> None:
    assert new_range(table(snapshot(1, None, added_records=0)), None) is None


def test_nothing_is_new_at_the_watermark() -> None:
    assert new_range(table(*THREE), watermark(3)) is None


def test_only_what_was_appended_after_the_watermark_is_new() -> None:
    assert new_range(table(*THREE), watermark(1)) == SourceRange(1, 3, 5)
    assert new_range(table(*THREE), watermark(2)) == SourceRange(2, 3, 2)


def test_a_range_that_only_compacts_has_nothing_new() -> None:
    compacted = snapshot(4, 3, "replace", added_records=10, deleted_records=10)
    assert new_range(table(*THREE, compacted), watermark(3)) is None


def test_a_range_that_only_retires_has_nothing_new() -> None:
    assert new_range(table(*THREE, retention(4, 3, 5)), watermark(3)) is None


def test_compaction_and_retention_within_a_range_are_not_counted() -> None:
    history = [*THREE, snapshot(4, 3, "replace", added_records=10), retention(5, 4, 4), snapshot(6, 5, added_records=1)]
    assert new_range(table(*history), watermark(2)) == SourceRange(2, 6, 3)


@pytest.mark.parametrize("operation", ["overwrite", "delete", "", "something-new"])
def test_a_snapshot_someone_else_wrote_stops_the_topic(operation: str) -> None:
    foreign = snapshot(4, 3, operation, added_records=1)
    rewritten = table(*THREE, foreign, snapshot(5, 4, added_records=1))
    for mark in (watermark(2), watermark(3), None, watermark(99)):
        with pytest.raises(SourceRewrittenError) as stopped:
            new_range(rewritten, mark)
        assert "snapshot 4" in str(stopped.value)
        assert "leanops rebuild TOPIC" in str(stopped.value)
        assert "\n" not in str(stopped.value)


def test_a_foreign_snapshot_before_the_watermark_is_of_no_concern_any_more() -> None:
    history = [THREE[0], snapshot(2, 1, "overwrite"), snapshot(3, 2, added_records=2)]
    assert new_range(table(*history), watermark(2)) == SourceRange(2, 3, 2)


def test_a_retention_mark_on_an_overwrite_is_no_excuse() -> None:
    foreign = snapshot(4, 3, "overwrite", leanops_kind="retention")
    with pytest.raises(SourceRewrittenError):
        new_range(table(*THREE, foreign), watermark(3))


def test_an_expired_start_is_no_gap_while_its_child_is_kept() -> None:
    assert new_range(table(*THREE[1:]), watermark(1)) == SourceRange(1, 3, 5)


def test_a_lost_ancestor_is_a_gap_that_reads_the_whole_table() -> None:
    kept = snapshot(3, 2, added_records=2, total_records=10)
    assert new_range(table(kept), watermark(1)) == SourceRange(None, 3, 10, is_gap=True)


def test_a_start_that_was_rolled_back_is_a_gap() -> None:
    rolled_back = table(*THREE[:2], head=2)
    assert new_range(rolled_back, watermark(3)) == SourceRange(None, 2, 8, is_gap=True)


def test_a_start_on_another_branch_is_a_gap() -> None:
    other = snapshot(4, 1, added_records=4)
    assert new_range(table(*THREE, other, head=4), watermark(3)) == SourceRange(None, 4, 9, is_gap=True)


def test_another_table_of_the_same_name_is_a_gap_even_at_the_same_snapshot() -> None:
    assert new_range(table(*THREE, uuid="other"), watermark(3)) == SourceRange(None, 3, 10, is_gap=True)


def test_after_retention_the_whole_table_is_what_it_says_it_holds() -> None:
    history = [*THREE, retention(4, 3, 5)]
    assert new_range(table(*history), None) == SourceRange(None, 4, 5)
    later = [*history, snapshot(5, 4, added_records=1, total_records=6)]
    assert new_range(table(*later), watermark(99)) == SourceRange(None, 5, 6, is_gap=True)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data())
def test_successive_ranges_read_every_appended_row_exactly_once(sizes: list[int], data: st.DataObject) -> None:
    history = [snapshot(at, at - 1 or None, added_records=size) for at, size in enumerate(sizes, start=1)]
    heads = [*sorted(data.draw(st.sets(st.integers(1, len(sizes))))), len(sizes)]
    mark, read = None, 0
    for head in heads:
        found = new_range(table(*history[:head]), mark)
        if found:
            assert found.rows > 0
            assert found.start == (mark.source_to if mark else None)
            mark, read = watermark(found.end), read + found.rows
    assert read == sum(sizes)


# Watermarks


@st.composite
def watermarks(draw: st.DrawFn) -> Watermark:
    counts = draw(
        st.builds(StandardizedCounts, *[NUMBER] * 6, NUMBER, NUMBER) | st.builds(CuratedCounts, *[NUMBER] * 9)
    )
    return Watermark(
        batch_id=draw(st.text(min_size=1)),
        batch_seq=draw(NUMBER),
        source_uuid=draw(st.uuids().map(str)),
        source_from=draw(st.none() | NUMBER),
        source_to=draw(NUMBER),
        source_snapshot=draw(NUMBER),
        counts=asdict(counts),
        totals=draw(st.builds(Totals, *[NUMBER] * 8)),
    )


@given(watermarks(), NUMBER)
def test_a_watermark_comes_back_from_the_summary_it_was_written_to(mark: Watermark, snapshot_id: int) -> None:
    summary = {"added-records": "1", **mark.summary(), "total-records": "2"}
    assert all(isinstance(value, str) for value in summary.values())
    stored = Snapshot(snapshot_id, None, 1, "overwrite", summary)
    assert watermark_from(stored) == replace(mark, snapshot_id=snapshot_id)


def marked(snapshot_id: int, parent_id: int | None, batch_seq: int) -> Snapshot:
    summary = watermark(batch_seq * 10, batch_seq).summary()
    return Snapshot(snapshot_id, parent_id, snapshot_id, "overwrite", summary)


def test_a_snapshot_without_a_watermark_has_none() -> None:
    assert watermark_from(snapshot(1, None, "replace", added_records=3)) is None
    assert valid_watermark(table(*THREE)) is None
    assert valid_watermark(table()) is None


def test_the_valid_watermark_has_the_greatest_batch_number_not_the_newest_snapshot() -> None:
    late = table(marked(1, None, 1), marked(2, 1, 3), marked(3, 2, 2), snapshot(4, 3, "replace"))
    mark = valid_watermark(late)
    assert mark is not None
    assert (mark.batch_seq, mark.source_to, mark.snapshot_id) == (3, 30, 2)


def fold(snapshot_id: int, of: Snapshot) -> Snapshot:
    return replace(
        of, snapshot_id=snapshot_id, parent_id=of.snapshot_id, operation="replace", summary={**of.summary, KIND: FOLD}
    )


def test_a_fold_carries_on_the_watermark_and_is_no_batch() -> None:
    batches = [marked(1, None, 1), marked(2, 1, 2)]
    folded = fold(3, batches[-1])
    whole = table(*batches, folded)
    assert (folded.batch_id, watermark_from(folded), is_compaction(folded)) == (None, None, True)
    assert has_batch(whole, "b2") == batches[-1]
    assert is_same_data(whole, 2)
    marks = valid_watermark(whole), valid_watermark(table(folded))
    # While the batch is there it counts; when its snapshot has expired, what the fold carried on does.
    assert [(mark.batch_seq, mark.source_to, mark.snapshot_id) for mark in marks if mark] == [(2, 20, 2), (2, 20, 3)]


def test_a_watermark_that_was_rolled_back_does_not_count() -> None:
    mark = valid_watermark(table(marked(1, None, 1), marked(2, 1, 2), head=1))
    assert mark is not None
    assert mark.batch_seq == 1


def test_a_batch_is_found_among_the_ancestors_only() -> None:
    view = table(marked(1, None, 1), marked(2, 1, 2), marked(3, 1, 3), head=3)
    found = {name: has_batch(view, name) for name in ("b1", "b2", "b3", "b4")}
    assert {name: hit and hit.snapshot_id for name, hit in found.items()} == {"b1": 1, "b2": None, "b3": 3, "b4": None}


def test_of_twins_the_batch_is_the_first() -> None:
    view = table(marked(1, None, 1), marked(2, 1, 2), marked(3, 2, 2))
    found = has_batch(view, "b2")
    assert found is not None
    assert found.snapshot_id == 2


def test_ancestors_go_back_as_far_as_they_are_kept() -> None:
    view = table(*THREE[1:])
    assert [found.snapshot_id for found in view.ancestors()] == [3, 2]
    assert [found.snapshot_id for found in view.ancestors(2)] == [2]
    assert [is_ancestor(view, number) for number in (1, 2, 3, 4)] == [False, True, True, False]


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=18))
def test_a_timeline_holds_exactly_the_batches_that_were_not_undone(story: list[int | None]) -> None:
    """Batches (None), and rollbacks by so many of them; sequence numbers never go back."""
    history, ever, is_forked = [(1, Timeline("t1"))], {("t1", 1)}, False
    for number, undone in enumerate(story, 2):
        if undone is not None:
            history = history[: max(1, len(history) - undone)]
            is_forked = is_forked or undone > 0
            continue
        last, timeline = history[-1]
        now = timeline.fork(f"t{number}", last) if is_forked else timeline
        history, ever, is_forked = [*history, (number, now)], ever | {(now.name, number)}, False
        assert Timeline.parse(now.text()) == now
    kept = {(timeline.name, seq) for seq, timeline in history}
    newest = history[-1][1]
    for name, seq in ever:
        if seq <= history[-1][0]:
            assert newest.holds(name, seq) == ((name, seq) in kept)


def test_expired_snapshots_are_no_move_and_a_rollback_is_one() -> None:
    read = watermark(source_to=3, batch_seq=1, source_timeline="t1")
    for source, moved in (
        (standardized(Timeline("t1"), 3), False),
        (standardized(Timeline("t1"), 9), False),
        # Rolled back, before and after the next batch.
        (standardized(Timeline("t1"), 2), True),
        (standardized(Timeline("t1").fork("t2", 2), 9), True),
        (standardized(Timeline("t1").fork("t2", 3), 9), False),
        (standardized(Timeline("t2"), 9), True),
    ):
        assert has_moved(source, replace(read, source_uuid=source.uuid)) is moved, source
    assert has_moved(standardized(Timeline("t1"), 3), replace(read, source_uuid="another table"))


def standardized(timeline: Timeline, batch_seq: int) -> TableView:
    """A table of which a single snapshot is left, which carries a watermark."""
    mark = watermark(source_to=1, batch_seq=batch_seq, timeline=timeline)
    only = Snapshot(7, 6, batch_seq, "overwrite", mark.summary())
    return TableView("standardized", "uuid", 7, batch_seq, {7: only}, {}, {})


def test_of_two_batches_with_one_number_the_first_counts() -> None:
    first, late = watermark(source_to=2, batch_seq=2, batch_id="y"), watermark(source_to=1, batch_seq=2, batch_id="x")
    history = {
        1: Snapshot(1, None, 1, "overwrite", first.summary()),
        2: Snapshot(2, 1, 2, "overwrite", late.summary()),
    }
    found = valid_watermark(TableView("standardized", "uuid", 2, 2, history, {}, {}))
    assert found is not None
    assert found.batch_id == "y"
