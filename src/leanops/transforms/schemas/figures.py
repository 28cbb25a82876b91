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


def figures(texts: pa.Array) -> Figures:
    """What is known of these texts; NULLs are left out."""
    texts = texts.drop_null()
    if not len(texts):
        return Figures()
    flags = {
        **{name: cast(texts, *tried).is_valid() for name, tried in candidates().items()},
        **shapes(texts),
        "blank": pc.invert(pc.match_substring_regex(texts, NOT_BLANK)),
    }
    whole = pc.min_max(cast(texts, ColumnType("BIGINT"))).as_py()
    largest = pc.max(pc.abs(cast(texts, ColumnType("DOUBLE")))).as_py()
    return Figures(
        events=len(texts),
        counts={name: int(pc.sum(flag).as_py() or 0) for name, flag in flags.items()},
        longest=pc.max(pc.utf8_length(texts)).as_py(),
        least=whole["min"],
        greatest=whole["max"],
        largest=largest or 0.0,
        hashes=_hashes(texts),
    )


def _digits(largest: float) -> int:
    """Digits before the point."""
    return math.floor(math.log10(largest)) + 1 if largest and math.isfinite(largest) else 0


def _hashes(texts: pa.Array) -> _Hashes:
    distinct = pc.unique(texts).to_pylist()
    numbers = np.fromiter((crc32(text.encode()) for text in distinct), np.uint64, len(distinct))
    # Sums of texts that are alike are alike; a hash may lie anywhere.
    with np.errstate(over="ignore"):
        numbers += np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return np.unique(numbers ^ (numbers >> np.uint64(31)))[:_MOST_HASHES]
