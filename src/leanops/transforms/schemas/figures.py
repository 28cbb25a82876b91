"""What the cells of a path hold: how many values each candidate type takes, by the casts of Curated themselves."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leanops.domain.payload.flatten import NULL, Kind
from leanops.domain.schema.infer import Seen, candidates
from leanops.domain.schema.types import ColumnType
from leanops.transforms.cast import cast
from leanops.transforms.judge import NOT_BLANK
from leanops.transforms.schemas.shapes import SHAPES, shapes

_MOST_HASHES = 4_096
_Hashes = np.ndarray[Any, np.dtype[np.uint64]]
_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_NO_HASHES: _Hashes = np.empty(0, np.uint64)


@dataclass(frozen=True)
class Figures:
    """What is known of the texts of one path; parts of them add up."""

    events: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many are blank, or are taken by each candidate, or have each shape."""
    longest: int = 0
    least: int | None = None
    greatest: int | None = None
    """Of whole numbers."""
    largest: float = 0.0
    """The greatest number without its sign."""
    hashes: _Hashes = field(default_factory=lambda: _NO_HASHES)
    """The smallest of their hashes, from which the number of distinct texts is estimated."""

    def plus(self, other: "Figures") -> "Figures":
        names = dict.fromkeys((*self.counts, *other.counts))
        return Figures(
            events=self.events + other.events,
            counts={name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names},
            longest=max(self.longest, other.longest),
            least=min((value for value in (self.least, other.least) if value is not None), default=None),
            greatest=max((value for value in (self.greatest, other.greatest) if value is not None), default=None),
            largest=max(self.largest, other.largest),
            hashes=np.union1d(self.hashes, other.hashes)[:_MOST_HASHES],
        )

    @property
    def distinct(self) -> int:
        """How many different texts there are, exactly where they are few, else within some percent."""
        if len(self.hashes) < _MOST_HASHES:
            return len(self.hashes)
        return round((_MOST_HASHES - 1) / (float(self.hashes[-1]) / 2**64))

    def seen(self, path: str, kinds: set[Kind]) -> Seen:
        """What a proposal is made from."""
        shown = (*candidates(), *(name for name in SHAPES if name != "leading_zeros"))
        return Seen(
            path=path,
            kinds=frozenset(kinds - {NULL}),
            events=self.events,
            blank=self.counts.get("blank", 0),
            distinct=self.distinct,
            longest=self.longest,
            leading_zeros=self.counts.get("leading_zeros", 0),
            holds={name: self.counts.get(name, 0) for name in shown},
            digits=_digits(self.largest),
            least=self.least,
            greatest=self.greatest,
        )


def figures(numbers: pa.Array, texts: pa.Array) -> dict[int, Figures]:
    """What is known of texts, none of them NULL, under the number of the path that each is from."""
    if not len(texts):
        return {}
    # The same text often comes again, and each is tried once, whatever path it is from.
    encoded = texts.dictionary_encode()
    distinct, cells = encoded.dictionary, numbers.to_numpy().astype(np.int64) * len(encoded.dictionary)
    pairs, times = np.unique(cells + encoded.indices.to_numpy(), return_counts=True)
    paths, at = np.divmod(pairs, len(distinct))
    found, starts = np.unique(paths, return_index=True)
    flags = {
        **{name: cast(distinct, *tried).is_valid() for name, tried in candidates().items()},
        **shapes(distinct),
        "blank": pc.invert(pc.match_substring_regex(distinct, NOT_BLANK)),
    }
    counts = {name: np.add.reduceat(times * _numpy(flag)[at], starts).tolist() for name, flag in flags.items()}
    events = np.add.reduceat(times, starts).tolist()
    sizes, hashes = _sizes(distinct, at, starts), np.split(_hashes(distinct)[at], starts[1:])
    return {
        path: Figures(
            events=events[row],
            counts={name: totals[row] for name, totals in counts.items()},
            **{name: values[row] for name, values in sizes.items()},
            hashes=np.unique(hashes[row])[:_MOST_HASHES],
        )
        for row, path in enumerate(found.tolist())
    }


def _sizes(texts: pa.Array, at: _Numbers, starts: _Numbers) -> dict[str, list[Any]]:
    """How long and how large the texts of each path are; those of a path are beside each other."""
    whole, largest = cast(texts, ColumnType("BIGINT")), pc.abs(cast(texts, ColumnType("DOUBLE")))
    is_whole = np.logical_or.reduceat(_numpy(whole.is_valid())[at], starts).tolist()
    bounds = np.iinfo(np.int64)
    least = np.minimum.reduceat(_numpy(whole.fill_null(bounds.max))[at], starts).tolist()
    greatest = np.maximum.reduceat(_numpy(whole.fill_null(bounds.min))[at], starts).tolist()
    return {
        "longest": np.maximum.reduceat(_numpy(pc.utf8_length(texts))[at], starts).tolist(),
        "least": [value if known else None for value, known in zip(least, is_whole, strict=True)],
        "greatest": [value if known else None for value, known in zip(greatest, is_whole, strict=True)],
        "largest": np.fmax.reduceat(_numpy(largest.fill_null(0.0))[at], starts).tolist(),
    }


def _digits(largest: float) -> int:
    """Digits before the point."""
    return math.floor(math.log10(largest)) + 1 if largest and math.isfinite(largest) else 0


def _hashes(distinct: pa.Array) -> _Hashes:
    numbers = np.fromiter((crc32(text.encode()) for text in distinct.to_pylist()), np.uint64, len(distinct))
    # Sums of texts that are alike are alike; a hash may lie anywhere.
    with np.errstate(over="ignore"):
        numbers += np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    hashes: _Hashes = numbers ^ (numbers >> np.uint64(31))
    return hashes


def _numpy(values: pa.Array) -> Any:
    return values.to_numpy(zero_copy_only=False)
