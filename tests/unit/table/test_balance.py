"""Accounting: what balances passes, and one row too many or too few does not."""

from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.errors import UnbalancedBatchError
from leanops.domain.table import balance
from leanops.domain.table.balance import CuratedCounts, StandardizedCounts, Totals, added_rows
from leanops.domain.table.warnings import of_standardized

NUMBER = st.integers(0, 1_000_000)
STANDARDIZED = ["inserted", "updated", "duplicates", "superseded", "parse_errors"]
CURATED = ["inserted", "updated", "unchanged", "errors"]
OLDER = {"judged_older", "kept_older", "replaced_older"}
BESIDE = {*balance.BESIDE, "behind", "cross_period", "late_corrections", "cde_missing", *OLDER}


@st.composite
def standardized(draw: st.DrawFn) -> StandardizedCounts:
    parts = {name: draw(NUMBER) for name in STANDARDIZED}
    return StandardizedCounts(read=sum(parts.values()), **parts, version_fallback=draw(NUMBER))


@st.composite
def curated(draw: st.DrawFn) -> CuratedCounts:
    parts = {name: draw(NUMBER) for name in CURATED}
    return CuratedCounts(read=sum(parts.values()), **parts, behind=draw(NUMBER), cross_period=draw(NUMBER))


def balances(counts: StandardizedCounts | CuratedCounts) -> bool:
    try:
        counts.check()
    except UnbalancedBatchError:
        return False
    return True


@given(standardized() | curated())
def test_counts_that_add_up_pass(counts: StandardizedCounts | CuratedCounts) -> None:
    assert balances(counts)
    assert not balances(replace(counts, read=counts.read + 1))


@given(standardized() | curated(), st.sampled_from([-1, 1]), st.data())
def test_one_row_too_many_or_too_few_anywhere_is_refused(
    counts: StandardizedCounts | CuratedCounts, by: int, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([field.name for field in fields(counts) if field.name not in BESIDE]))
    wrong = replace(counts, **{name: getattr(counts, name) + by})
    with pytest.raises(UnbalancedBatchError) as refused:
        wrong.check()
    assert str(wrong.read) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("counts", [(1, 2, 0), (2, 1, 2)], ids=["kept", "replaced"])
def test_no_more_older_versions_are_kept_than_judged(counts: tuple[int, int, int]) -> None:
    judged, kept, replaced = counts
    with pytest.raises(UnbalancedBatchError, match="more older versions"):
        CuratedCounts(1, 1, 0, 0, 0, judged_older=judged, kept_older=kept, replaced_older=replaced).check()


def test_older_versions_count_among_the_rows_of_the_files() -> None:
    counts = CuratedCounts(9, 4, 3, 0, 2, judged_older=5, kept_older=2, replaced_older=1)
    counts.check()
    assert (counts.added, counts.replaced) == (9, 4)
    assert added_rows(asdict(counts)) == 9
    # A watermark of an earlier version has no such counts.
    assert added_rows({"inserted": 4, "updated": 3}) == 7


@pytest.mark.parametrize("name", sorted(BESIDE - OLDER))
def test_the_counts_beside_the_sum_do_not_matter_to_it(name: str) -> None:
    kinds = (StandardizedCounts(1, 1, 0, 0, 0, 0), CuratedCounts(1, 1, 0, 0, 0))
    beside = [replace(counts, **{name: 7}) for counts in kinds if hasattr(counts, name)]
    assert beside
    for counts in beside:
        counts.check()


@given(st.lists(standardized(), max_size=10), NUMBER)
def test_running_totals_balance_after_any_batches_from_any_base(
    batches: list[StandardizedCounts], base_rows: int
) -> None:
    totals = Totals(rows=base_rows, base_rows=base_rows)
    for counts in batches:
        totals = totals.after(counts)
        totals.check()
    assert totals.read == sum(counts.read for counts in batches)
    assert totals.rows - totals.base_rows == sum(counts.inserted for counts in batches)
    others = STANDARDIZED[1:]
    assert {name: getattr(totals, name) for name in others} == {
        name: sum(getattr(counts, name) for counts in batches) for name in others
    }


@given(standardized(), st.sampled_from([-1, 1]), st.data())
def test_totals_off_by_one_are_refused(counts: StandardizedCounts, by: int, data: st.DataObject) -> None:
    totals = Totals(rows=5, base_rows=5).after(counts)
    name = data.draw(st.sampled_from([name for name in asdict(totals) if name != "base_raw_rows"]))
    with pytest.raises(UnbalancedBatchError):
        replace(totals, **{name: getattr(totals, name) + by}).check()


def test_totals_refuse_a_batch_that_does_not_balance() -> None:
    with pytest.raises(UnbalancedBatchError):
        Totals().after(StandardizedCounts(read=3, inserted=1, updated=1, duplicates=0, superseded=0, parse_errors=0))


def test_totals_keep_their_base() -> None:
    base = Totals(rows=7, base_rows=7, base_raw_rows=40)
    after = base.after(StandardizedCounts(2, 1, 0, 1, 0, 0))
    assert (after.base_rows, after.base_raw_rows, after.rows) == (7, 40, 8)


@given(st.integers(1, 10_000), st.data())
def test_odd_rows_are_told_from_more_than_their_share_on(read: int, data: st.DataObject) -> None:
    odd = data.draw(st.integers(0, read))
    told = of_standardized({"read": read, "period_fallback": odd}, 0.01)
    assert len(told) == (odd > read * 0.01)
    assert all(f"{odd:,} of {read:,} rows have a period" in one for one in told)


def test_one_copy_with_another_payload_and_one_path_too_many_are_told() -> None:
    odd = {"duplicates": 3, "conflicting_copies": 1, "unplaced_paths": 1, "missing_keys": 900}
    told = of_standardized({"read": 1_000, **odd}, 0.01)
    assert [one[:30] for one in told] == ["1 of 3 duplicates with another", "1 or more paths are beyond the"]
    assert of_standardized({}, 0.01) == []
