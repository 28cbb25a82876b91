"""Folds tables of many small files after their batches, which are in: where it fails, the next ones are only slower."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from leanops.domain.errors import CommitRefusedError, LeanOpsError
from leanops.ports.engine import Fold
from leanops.usecases.leases import HeldTopic
from leanops.usecases.platform import Platform


def fold_tables(platform: Platform, topics: Sequence[tuple[HeldTopic, Sequence[Fold]]]) -> Mapping[str, list[str]]:
    """Fold the tables of topics in one job; what a person should know about each topic of which one failed."""
    folds = [(held.topic, fold) for held, its in topics if _is_ours(held) for fold in its]
    if not folds:
        return {}
    with platform.durable("fold"):
        try:
            failures = platform.engine().fold([fold for _, fold in folds])
        except Exception as failure:  # noqa: BLE001 - the tables stay as they are
            failures = [failure] * len(folds)
    warnings = defaultdict(list)
    for (topic, fold), why in zip(folds, failures, strict=True):
        # A table that somebody else changes meanwhile is folded another time.
        if why and not isinstance(why, CommitRefusedError):
            reason = platform.explain(why)
            warnings[topic].append(f"the small files of {fold.target.table} were not folded: {reason}")
    return warnings


def _is_ours(held: HeldTopic) -> bool:
    """Whoever has lost the lease of a topic leaves its tables alone."""
    try:
        held.check()
    except LeanOpsError:
        return False
    return True
