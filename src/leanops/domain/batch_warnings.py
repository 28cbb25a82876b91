"""What the counts of a batch warn of: the batch balances, but somebody should look at what came in."""

from collections.abc import Mapping

from leanops.domain.batches import CURATED

FEW = 10
"""Fewer quarantined rows say nothing by their share: one of a batch of four would be a quarter."""


def batch_warnings(topic: str, layer: str, counts: Mapping[str, int], alert: float) -> list[str]:
    """A sentence for each; `alert` is the share of quarantined rows above which its schema wants to hear of it."""
    warnings = []
    read, errors = counts.get("read", 0), counts.get("errors", 0)
    if layer == CURATED and errors >= FEW and errors > alert * read:
        warnings.append(
            f"{errors:,} of {read:,} rows of its newest Curated batch were quarantined, more than {alert:.0%}; "
            f"see why with: leanops errors list --topic {topic}"
        )
    return warnings
