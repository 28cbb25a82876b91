"""Error rows of an operation that is undone: what it wrote goes, and what it renewed is again as it was."""

from bisect import bisect_left
from typing import Any

from leanops.domain.table.history import Snapshot, TableView
from leanops.domain.table.operation import Operation
from leanops.usecases.platform import Platform


def take_back_errors(platform: Platform, operation: Operation) -> None:
    """Put both error tables back, as far as this operation changed them; twice is once."""
    databases = platform.rules.databases
    for name, batch_id in (
        (databases.parse_errors, operation.standardized_batch),
        (databases.errors, operation.curated_batch),
    ):
        view = platform.catalog.load(name)
        written = f"topic_name = '{operation.topic}' and batch_id = '{batch_id}'"
        ours = platform.catalog.select(name, ["error_id", "attempts"], written)
        if view is None or not ours:
            continue
        renewed = {row["error_id"] for row in ours if row["attempts"] > 1}
        before = _rows_before(platform, view, operation.topic, written) if renewed else []
        # What they were is gone with its snapshot: a row with newer failures is better than none.
        goes = f"{written} and attempts = 1" if renewed and not before else written
        platform.step("before errors taken back")
        platform.catalog.replace(name, goes, [row for row in before if row["error_id"] in renewed])
        platform.step("after errors taken back")


def _rows_before(platform: Platform, view: TableView, topic: str, written: str) -> list[dict[str, Any]]:
    """The topic's rows just before these were written; nobody else writes rows of a topic during its operation."""

    def holds(snapshot: Snapshot) -> bool:
        return bool(platform.catalog.select(view.name, ["error_id"], written, at=snapshot.snapshot_id))

    history = view.ancestors()[::-1]
    first = bisect_left(history, True, key=holds)
    if not first:
        return []
    at = history[first - 1].snapshot_id
    return platform.catalog.select(view.name, list(view.columns), f"topic_name = '{topic}'", at=at)
