"""The balance: every row that was read is in exactly one place."""

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

    def check(self) -> None:
        """Raise unless every row that was read is accounted for."""
        placed = self.inserted + self.updated + self.unchanged + self.errors
        if placed != self.read:
            raise UnbalancedBatchError(f"Standardized has {self.read} new rows, {placed} were placed: {asdict(self)}")


Counts = StandardizedCounts | CuratedCounts


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
