"""The balance: every row that was read is in exactly one place."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from leanops.domain.errors import UnbalancedBatchError

BESIDE = (
    "version_fallback",
    "missing_keys",
    "version_missing",
    "period_fallback",
    "publish_time_ahead",
    "conflicting_copies",
    "unplaced_paths",
)
"""Counts of a Standardized batch that are not part of its balance."""


@dataclass(frozen=True)
class StandardizedCounts:
    """One batch RAW → Standardized; every number is measured on its own."""

    read: int
    inserted: int
    updated: int
    duplicates: int
    superseded: int
    parse_errors: int
    version_fallback: int = 0
    missing_keys: int = 0
    version_missing: int = 0
    period_fallback: int = 0
    publish_time_ahead: int = 0
    conflicting_copies: int = 0
    unplaced_paths: int = 0

    def check(self) -> None:
        """Raise unless every row that was read is accounted for."""
        placed = self.inserted + self.updated + self.duplicates + self.superseded + self.parse_errors
        if placed != self.read:
            raise UnbalancedBatchError(f"RAW has {self.read} new rows, {placed} were placed: {asdict(self)}")

    @property
    def added(self) -> int:
        """Rows that come into the table."""
        return self.inserted + self.updated

    @property
    def replaced(self) -> int:
        """Rows of the table that others take the place of."""
        return self.updated


@dataclass(frozen=True)
class CuratedCounts:
    """One batch Standardized → Curated."""

    read: int
    inserted: int
    updated: int
    unchanged: int
    errors: int
    behind: int = 0
    cross_period: int = 0
    late_corrections: int = 0
    cde_missing: int = 0
    judged_older: int = 0
    """Older versions that were judged because a newer one of their key failed."""
    kept_older: int = 0
    """Those of them that came into the table."""
    replaced_older: int = 0
    """Those of them that took the place of another row."""

    def check(self) -> None:
        """Raise unless every row that was read is accounted for."""
        placed = self.inserted + self.updated + self.unchanged + self.errors
        if placed != self.read:
            raise UnbalancedBatchError(f"Standardized has {self.read} new rows, {placed} were placed: {asdict(self)}")
        if not self.replaced_older <= self.kept_older <= self.judged_older:
            raise UnbalancedBatchError(f"more older versions were kept than judged: {asdict(self)}")

    @property
    def added(self) -> int:
        """Rows that come into the table."""
        return self.inserted + self.updated + self.kept_older

    @property
    def replaced(self) -> int:
        """Rows of the table that others take the place of."""
        return self.updated + self.replaced_older


Counts = StandardizedCounts | CuratedCounts


def added_rows(counts: Mapping[str, int]) -> int:
    """Rows that came into a table, by the counts in its watermark; an earlier version kept no older versions."""
    return counts["inserted"] + counts["updated"] + counts.get("kept_older", 0)


def replaced_rows(counts: Mapping[str, int]) -> int:
    """Rows of a table that others took the place of, by the counts in its watermark."""
    return counts["updated"] + counts.get("replaced_older", 0)


def new_keys(counts: Mapping[str, int]) -> int:
    """Keys that came into a table, by the counts in its watermark."""
    return added_rows(counts) - replaced_rows(counts)


@dataclass(frozen=True)
class Totals:
    """Running totals of a Standardized table since its base; they travel in the watermark."""

    read: int = 0
    updated: int = 0
    duplicates: int = 0
    superseded: int = 0
    parse_errors: int = 0
    rows: int = 0
    base_rows: int = 0
    base_raw_rows: int = 0

    def after(self, counts: StandardizedCounts) -> "Totals":
        """The totals once a batch is in; raises unless they balance."""
        totals = replace(
            self,
            read=self.read + counts.read,
            updated=self.updated + counts.updated,
            duplicates=self.duplicates + counts.duplicates,
            superseded=self.superseded + counts.superseded,
            parse_errors=self.parse_errors + counts.parse_errors,
            rows=self.rows + counts.inserted,
        )
        totals.check()
        return totals

    def check(self) -> None:
        """Raise unless all that was read since the base is accounted for."""
        placed = self.rows - self.base_rows + self.updated + self.duplicates + self.superseded + self.parse_errors
        if placed != self.read:
            raise UnbalancedBatchError(f"totals do not balance: {self.read} read, {placed} placed: {asdict(self)}")
