"""Operations whose tasks run on Spark: the tables of the model, and readers who see only whole ones."""

import threading

import pytest

from leanops.adapters.iceberg.options import TaskRules
from leanops.domain.table.operation import Scope
from leanops.usecases.schemas.deploy import Consent, deploy_schema
from tests.support.builders import column
from tests.support.world import World
from tests.unit.operations.test_rebuild import events, plain, rebuilt_like_the_model


@pytest.mark.parametrize("scope", [Scope.BOTH, Scope.CURATED])
def test_a_rebuild_gives_the_tables_of_the_model(spark_world: World, scope: Scope) -> None:
    spark_world.tasks = TaskRules(task_rows=40)
    rebuilt_like_the_model(spark_world, scope)


class Reader:
    """Polls Curated as any reader would, and notes each state it sees."""

    def __init__(self, world: World) -> None:
        self.world, self.states, self.polls = world, [], 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._poll, name="reader")

    def _poll(self) -> None:
        while not self.stopping.is_set():
            table = self.world.embedded.catalog.load_table(self.world.databases.curated_table("orders"))
            rows = table.scan(selected_fields=("idempotency_key", "value")).to_arrow()
            keys = len(set(rows["idempotency_key"].to_pylist()))
            state = (
                rows.num_rows,
                keys,
                str(rows.schema.field("value").type),
                sum(map(int, rows["value"].to_pylist())),
            )
            self.polls += 1
            if not self.states or self.states[-1] != state:
                self.states.append(state)

    def __enter__(self) -> "Reader":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join()


@pytest.mark.slow
def test_readers_see_only_whole_tables_while_200_000_rows_are_rebuilt(spark_world: World) -> None:
    world, rows, size = spark_world, events(0, 200_000), 200_000
    world.with_rules(operations={"rebuild_rows": 80_000})
    world.add("orders", plain(column("value", path="$.a", type="BIGINT")))
    world.publish("orders", rows)
    world.cycle()
    other = plain(column("value", path="$.b", type="DECIMAL(20,0)"), keys={"version": "$.b"})
    with Reader(world) as reader:
        deploy_schema(world.platform(), "orders", other, "f", Consent(rebuild=True))
    total = size * (size - 1) // 2
    before = (size, size, "int64", total)
    assert reader.states == [before, (size, size, "decimal128(20, 0)", 2 * total)]
    assert reader.polls > 10
