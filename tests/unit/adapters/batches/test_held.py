"""What a task holds: the same rows in the same order, in memory or aside, in pieces of a bounded size."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.adapters.iceberg.tasks.held import Spool, cut, joined, together

TEXTS = st.lists(st.text(max_size=40) | st.none(), max_size=30)


def table(texts: list[str | None]) -> pa.Table:
    return pa.table({"text": pa.array(texts, pa.string()), "number": pa.array(range(len(texts)), pa.int64())})


def assert_bounded(pieces: list[pa.Table], most: int) -> None:
    """No piece is larger than asked, unless it is a single row."""
    for piece in pieces:
        texts = sum(len((text or "").encode()) for text in piece.column("text").to_pylist())
        assert len(piece) <= 1 or texts + 8 * len(piece) <= most


@given(st.lists(TEXTS), st.integers(0, 2_000))
def test_a_spool_gives_back_its_tables_as_often_as_asked(tables: list[list[str | None]], most: int) -> None:
    with Spool(most) as spool:
        for texts in tables:
            spool.add(table(texts))
        assert len(spool) == len(tables)
        for _ in range(2):
            assert [held.to_pydict() for held in spool] == [table(texts).to_pydict() for texts in tables]


def test_a_spool_puts_aside_what_is_too_much_in_a_file_that_no_name_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))

    def files() -> list[str]:
        opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return [path for path in opened if path.startswith(str(tmp_path))]

    with Spool(1_000) as spool:
        spool.add(table(["small"]))
        assert files() == []
        spool.add(table(["x" * 1_000]))
        assert len(files()) == 1
        assert list(tmp_path.iterdir()) == []
        assert [held.column("text").to_pylist() for held in spool] == [["small"], ["x" * 1_000]]
    assert files() == []


@given(TEXTS, st.integers(1, 400))
def test_rows_are_cut_in_order_and_only_a_single_row_is_larger_than_asked(texts: list[str | None], most: int) -> None:
    rows = table(texts)
    pieces = list(cut(rows, most))
    assert joined(pieces).to_pydict() == rows.to_pydict()
    assert_bounded(pieces, most)


@given(st.lists(TEXTS), st.integers(1, 2_000))
def test_pieces_are_put_together_up_to_a_size(tables: list[list[str | None]], most: int) -> None:
    pieces = [table(texts) for texts in tables]
    found = list(together(pieces, most))
    assert bool(found) == bool(pieces)
    if pieces:
        assert joined(found).to_pydict() == joined(pieces).to_pydict()
    assert_bounded(found, most)
