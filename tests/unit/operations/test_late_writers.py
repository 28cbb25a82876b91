"""A worker that lost its topic in the middle of a rebuild, and writes all the same: what is live stays right."""

import pytest

from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.domain.errors import RetryableError
from leanops.usecases.operation_log import unfinished_operation
from leanops.usecases.operations.shadow import shadow_tables
from leanops.usecases.operations.start import rebuild_topic
from leanops.views.balance import whole_topic
from tests.support.verify import sources_of
from tests.support.world import World
from tests.unit.operations.test_rebuild import events, plain


@pytest.mark.parametrize("is_left", [False, True], ids=["gone", "still there"])
def test_a_rebuild_that_stalled_before_its_commit_changes_nothing_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    """Nor where the tables that it built are still there, so that only the head of the live one can refuse it."""
    if is_left:
        monkeypatch.setattr(IcebergCatalog, "forget", lambda *_: None)
    world.add("orders", plain())
    world.publish("orders", events(0, 4))
    world.cycle()
    others = []

    def step(name: str) -> None:
        """While the first one stalls, its lease ends; another finishes the rebuild, and a cycle goes on."""
        if name == "before replace curated" and not others:
            others.append(True)
            world.wait_for_leases()
            world.publish("orders", events(4, 6))
            world.cycle()

    with pytest.raises(RetryableError):
        rebuild_topic(world.platform(step=step), "orders")
    assert others
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(6))
    assert unfinished_operation(world.platform(), "orders") is None
    world.publish("orders", events(6, 7))
    assert world.cycle()["orders"].outcome == "done"
    assert sorted(row["a"] for row in world.curated("orders")) == list(range(7))
    balance = whole_topic(sources_of(world), "orders")
    assert balance.balanced, balance.complaints()


def test_what_is_written_to_a_shadow_after_the_comparison_does_not_go_live(world: World) -> None:
    world.add("orders", plain())
    world.publish("orders", events(0, 4))
    world.cycle()
    emptied: list[str] = []

    def step(name: str) -> None:
        """Once the tables are compared, a worker that lost the lease long ago empties them."""
        if name == "after going":
            begun = unfinished_operation(world.platform(), "orders")
            assert begun is not None
            shadows = shadow_tables(world.platform(), begun.operation, begun.operation.attempts[-1])
            emptied.extend(shadows[layer] for layer in ("standardized", "curated"))
            for table in emptied:
                world.embedded.platform.catalog.delete(table, {"topic_name": "orders"})

    rebuild_topic(world.platform(step=step), "orders")
    assert len(emptied) == 2
    assert sorted(row["a"] for row in world.curated("orders")) == [0, 1, 2, 3]
    balance = whole_topic(sources_of(world), "orders")
    assert balance.balanced, balance.complaints()
