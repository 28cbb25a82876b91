"""Figures of texts: those of many paths at once are those of each path alone, and parts of them add up."""

from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.domain.schema.infer import candidates
from leanops.domain.schema.types import ColumnType
from leanops.transforms.cast import exact_value
from leanops.transforms.schemas import figures as module
from leanops.transforms.schemas.figures import Figures, figures

TEXT = st.sampled_from(
    ["", " ", "0", "007", "-1.50", "12345678901", "9223372036854775807", "1e400", "1e3", "true", "2026-01-01", "ä"]
) | st.text(max_size=12)
CELLS = st.lists(st.tuples(st.integers(0, 3), TEXT), max_size=40)
Cells = list[tuple[int, str]]


def figures_of(cells: Cells) -> dict[int, Figures]:
    numbers = pa.array([path for path, _ in cells], pa.int64())
    return figures(numbers, pa.array([text for _, text in cells], pa.string()))


def known(found: Figures) -> dict[str, Any]:
    return {**vars(found), "counts": dict(found.counts), "hashes": found.hashes.tolist()}


@given(CELLS)
def test_figures_of_many_paths_are_those_of_each_alone(cells: Cells) -> None:
    found = figures_of(cells)
    assert found.keys() == {path for path, _ in cells}
    for path, one in found.items():
        alone = figures_of([(path, text) for at, text in cells if at == path])
        assert known(one) == known(alone[path])


@given(CELLS)
def test_figures_say_what_each_text_says(cells: Cells) -> None:
    for path, one in figures_of(cells).items():
        texts = [text for at, text in cells if at == path]
        whole = [int(v) for text in texts if (v := exact_value(text, ColumnType("BIGINT"))) is not None]
        large = [abs(v) for text in texts if (v := exact_value(text, ColumnType("DOUBLE"))) is not None]
        assert (one.events, one.longest) == (len(texts), max(map(len, texts)))
        assert (one.least, one.greatest) == (min(whole, default=None), max(whole, default=None))
        assert one.largest == max(large, default=0.0)
        assert one.distinct == len(set(texts))
        for name, tried in candidates().items():
            assert one.counts[name] == sum(exact_value(text, *tried) is not None for text in texts), name


@given(CELLS, CELLS)
def test_parts_add_up(some: Cells, others: Cells) -> None:
    parts = [figures_of(some), figures_of(others)]
    for path, one in figures_of([*some, *others]).items():
        assert known(reduce(Figures.plus, (part[path] for part in parts if path in part))) == known(one)


def test_each_type_is_tried_once_however_many_paths_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, cast = list[int](), module.cast

    def noted(texts: pa.Array, *tried: Any) -> pa.Array:
        calls.append(len(texts))
        return cast(texts, *tried)

    monkeypatch.setattr(module, "cast", noted)
    found = figures_of([(path, str(number)) for path in range(50) for number in range(20)])
    assert {one.events for one in found.values()} == {20}
    assert calls == [20] * (len(candidates()) + 2)


def test_many_different_texts_are_told_within_some_percent() -> None:
    many = pa.array([f"t{number}" for number in range(20_000)])
    found = figures(pa.array(np.arange(20_000) % 2), many)
    assert [one.distinct == pytest.approx(10_000, rel=0.05) for one in found.values()] == [True, True]
    assert {len(one.hashes) for one in found.values()} == {4_096}
