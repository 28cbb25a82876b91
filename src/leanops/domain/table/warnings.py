"""What the counts of a batch warn of: the batch balances, but somebody should look at what came in."""

from collections.abc import Mapping

from leanops.domain.table.batch import CURATED
from leanops.domain.words import counted

FEW = 10
"""Fewer quarantined rows are not judged by their share: one row of a batch of four would be a quarter."""
_ODD = {
    "version_missing": "have no version, so their publish time orders them",
    "version_fallback": "have a version that keys.version_format does not take, so their publish time orders them",
    "period_fallback": "have a period that is not yyyy-MM, so they are in the month they were published",
    "publish_time_ahead": "say they were published more than a day after they landed, so the time of landing counts",
}


def batch_warnings(topic: str, layer: str, counts: Mapping[str, int], *, alert: float, share: float) -> list[str]:
    """A sentence for each thing that is out of the ordinary.

    `alert` is the share of quarantined rows above which the schema asks for a warning, `share` that of odd rows.
    """
    return _of_curated(topic, counts, alert) if layer == CURATED else of_standardized(counts, share)


def of_standardized(counts: Mapping[str, int], share: float) -> list[str]:
    """More than a share of the rows is odd, a message id was used twice, or paths found no column."""
    read = counts.get("read", 0)
    warnings = [
        f"{counts[name]:,} of {read:,} rows {what}" for name, what in _ODD.items() if counts.get(name, 0) > read * share
    ]
    if counts.get("conflicting_copies"):
        copies = f"{counts['conflicting_copies']:,} of {counted(counts.get('duplicates', 0), 'duplicate')}"
        reason = "a message id was used twice, and the first payload is kept"
        warnings.append(f"{copies} with another payload than the message repeated: {reason}")
    if counts.get("unplaced_paths"):
        paths = f"{counts['unplaced_paths']:,} or more paths"
        warnings.append(f"{paths} are beyond the column limits; their values are in _rescued")
    return warnings


def _of_curated(topic: str, counts: Mapping[str, int], alert: float) -> list[str]:
    read, errors = counts.get("read", 0), counts.get("errors", 0)
    if errors < FEW or errors <= alert * read:
        return []
    return [
        f"{errors:,} of {read:,} rows of its newest Curated batch were quarantined, more than {alert:.0%}; "
        f"see why with: leanops errors list --topic {topic}"
    ]
