"""Stall points inside a commit: after a table was read, before what was made of it is committed."""

from collections.abc import Callable
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started

from leanops.adapters.iceberg.catalog import IcebergCatalog
from tests.support.world import World

Step = Callable[[str], None]


class Commits:
    """A PyIceberg catalog that tells of every commit before it is made."""

    def __init__(self, catalog: Any, step: Step) -> None:
        self._catalog, self._step = catalog, step

    def load_table(self, name: Any) -> Any:
        table = self._catalog.load_table(name)
        table.catalog = self
        return table

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        self._step(f"inside commit of {table.name()[-1]}")
        return self._catalog.commit_table(table, requirements, updates)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


def telling_catalog(world: World, step: Step) -> IcebergCatalog:
    """The catalog of a world, which tells of every commit before it is made."""
    return IcebergCatalog(Commits(world.embedded.catalog, step))


class Scans:
    """Tells of every Iceberg table that Spark has read the metadata of and is about to read."""

    def __init__(self) -> None:
        self.step: Step = lambda _name: None

    def notify(self, event: Any) -> None:
        self.step(f"inside scan of {event.tableName().rsplit('.', 1)[-1]}")

    class Java:
        implements = ("org.apache.iceberg.events.Listener",)


_scans = Scans()
_registered: set[int] = set()


def telling_scans(world: World, step: Step) -> Scans:
    """The scans of this Spark, told to `step` until it is set to something else."""
    spark = world.embedded.spark()
    gateway = spark.sparkContext._gateway
    if id(gateway) not in _registered:
        ensure_callback_server_started(gateway)
        event = gateway.jvm.java.lang.Class.forName("org.apache.iceberg.events.ScanEvent")
        gateway.jvm.org.apache.iceberg.events.Listeners.register(_scans, event)
        _registered.add(id(gateway))
    _scans.step = step
    return _scans
