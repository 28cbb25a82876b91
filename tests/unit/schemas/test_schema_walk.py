"""A topic from unknown to curated, and through every kind of change: after each step the tables are the model's."""

import json
import random
from typing import Any

from leanops.domain.schema.diff import Kind
from leanops.domain.schema.model import schema_from_json
from leanops.domain.table.operation import Accept, Scope
from leanops.usecases.operations.shadow import Progress, quiet
from leanops.usecases.schemas.deploy import NOTHING_MORE, Consent, Deployed, deploy_schema
from leanops.usecases.schemas.infer import infer_schema
from leanops.usecases.schemas.plan import plan_schema
from leanops.views.balance import whole_topic
from tests.crash.batches import orders
from tests.oracle.model import Model
from tests.oracle.rows import RawRow
from tests.support.verify import assert_tables, sources_of
from tests.support.world import PII_KEY, World

TOPIC = "orders"


class Walk:
    """The topic, its model, and what was published."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events = iter(orders(random.Random(11), 500, keys=40))
        self.rows: list[RawRow] = []
        self.schema: dict[str, Any] = {}
        world.add(TOPIC)
        self.model = Model(TOPIC, None, pii_key=PII_KEY)

    def publish(self, size: int) -> None:
        batch = [next(self.events) for _ in range(size)]
        self.world.publish(TOPIC, batch)
        self.rows += batch

    def cycle(self) -> None:
        """A cycle, here and in the model."""
        assert self.world.cycle()[TOPIC].outcome == "done"
        self.model.standardize(self.rows[self.model.totals["read"] :])
        self.model.curate()
        self.check()

    def deploy(self, schema: dict[str, Any], consent: Consent = NOTHING_MORE, progress: Progress = quiet) -> Deployed:
        """Plan and deploy; the model follows in what was made anew."""
        platform, text, read = self.world.platform(), json.dumps(schema), len(self.rows)
        plan = plan_schema(platform, TOPIC, schema_from_json(text, "walk"))
        self.plan = plan
        done = deploy_schema(platform, TOPIC, text, "walk", consent, plan, progress)
        self.schema = {**schema, "version": done.schema.version}
        self.model.set_schema(self.schema)
        if done.scope == Scope.BOTH:
            self.model.rebuild(self.rows[:read])
        elif done.scope == Scope.CURATED:
            self.model.recurate()
        return done

    def check(self) -> None:
        """Every table is the model's, and the books balance."""
        assert_tables(self.world, TOPIC, self.model)
        self.model.assert_laws()
        balance = whole_topic(sources_of(self.world), TOPIC)
        assert balance.balanced, balance.complaints()

    def with_columns(self, **changes: dict[str, Any] | None) -> dict[str, Any]:
        """The schema with some columns changed, added or left out."""
        columns = {column["name"]: column for column in self.schema["payload_columns"]}
        for name, change in changes.items():
            if change is None:
                del columns[name]
            else:
                columns[name] = {**columns.get(name, {"name": name}), **change}
        return {**self.schema, "payload_columns": list(columns.values())}


def test_from_unknown_to_curated_and_through_every_kind_of_change(world: World) -> None:
    walk = Walk(world)
    walk.publish(60)
    assert world.cycle()[TOPIC].outcome == "no_schema"

    platform = world.platform()
    inferred = json.loads(infer_schema(platform, TOPIC).text)
    names = [column["name"] for column in inferred["payload_columns"]]
    assert {"order_id", "order_amount", "email", "new0"} <= set(names)
    walk.schema = inferred
    first = walk.with_columns(new0=None)
    assert walk.deploy(first).scope == Scope.NONE
    walk.cycle()

    # Additive: a column that old rows have values for. They follow at once.
    new_column = next(column for column in inferred["payload_columns"] if column["name"] == "new0")
    done = walk.deploy(walk.with_columns(new0=new_column))
    assert (walk.plan.difference.kind, done.scope) == (Kind.ADDITIVE, Scope.CURATED)
    walk.check()
    walk.publish(10)
    walk.cycle()

    # Restrictive: from now on; and, when asked, for all.
    stricter = walk.with_columns(order_amount={"rules": {"min_length": 2}})
    assert walk.deploy(stricter).scope == Scope.NONE
    assert walk.plan.difference.kind == Kind.RESTRICTIVE
    walk.publish(10)
    walk.cycle()
    strictest = walk.with_columns(order_amount={"rules": {"min_length": 3}})
    done = walk.deploy(strictest, Consent(recurate=True, missing=Accept.ALL))
    assert done.scope == Scope.CURATED
    failing = {key: failed for key, row in walk.model.standardized.items() if (failed := walk.model.validate(row)[1])}
    assert quarantined(world, done) == {
        (walk.model.standardized[key].message_id, *sorted(rule for rule, _ in failed))
        for key, failed in failing.items()
    }
    assert len(failing) == walk.plan.failing > 0
    walk.check()

    # Breaking: other keys, while events keep arriving.
    by_order = {**walk.schema, "keys": {**walk.schema.get("keys", {}), "idempotency_key": "$.order.id"}}
    arrived = []

    def arrive(_what: str, _done: int, _rows: int) -> None:
        if not arrived:
            walk.publish(10)
            arrived.append(True)

    done = walk.deploy(by_order, Consent(rebuild=True, missing=Accept.ALL), arrive)
    assert (walk.plan.difference.kind, done.scope) == (Kind.BREAKING, Scope.BOTH)
    assert arrived
    walk.cycle()

    # Back to the first version, which is a new one.
    text = world.platform().schemas.text(TOPIC, 1)
    assert text
    done = walk.deploy(json.loads(text), Consent(rebuild=True, missing=Accept.ALL))
    assert done.schema.version == 6
    walk.publish(10)
    walk.cycle()
    history = world.rows(world.databases.ops_table("schema_versions"))
    kinds = [row["classification"] for row in sorted(history, key=lambda row: row["version"])]
    assert kinds == ["first", "additive", "restrictive", "restrictive", "breaking", "breaking"]


def quarantined(world: World, done: Deployed) -> set[tuple[str, ...]]:
    """The newest versions the operation put into errors, and the rules they break."""
    current = {row["message_id"] for row in world.standardized(TOPIC)}
    errors = [row for row in world.errors(world.databases.errors, TOPIC) if row["message_id"] in current]
    rows = [row for row in errors if row["schema_version"] == done.schema.version]
    return {(row["message_id"], *sorted(one["rule"] for one in row["failures"])) for row in rows}
