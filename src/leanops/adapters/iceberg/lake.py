"""Tables through Spark SQL: what plans, inference and rebuilds read, and error rows that change."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from leanops.adapters.iceberg.options import CATALOG

SMALL_BATCH = 20_000
ROWS_PER_PARTITION = 50_000
MOST_ROWS_PER_PARTITION = 1_000_000
_UNKNOWN = "CommitStateUnknownException"
_REFUSED = ("ValidationException", "CommitFailedException")


class SparkLake:
    """The Lake port; one per thread, each with a session of its own."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        # Lakes are created one at a time: threads that opened their first catalogs at the same moment sometimes did not
        # find a table that existed.
        self._activate()
        java: Any = session._jsparkSession
        java.sessionState().catalogManager().catalog(CATALOG)

    def _activate(self) -> None:
        """Make this the session of the calling thread: Spark looks up catalogs and settings in the active one."""
        java_class = getattr(SparkSession, "_get_j_spark_session_class", lambda jvm: jvm.SparkSession)
        java_class(self._session._jvm).setActiveSession(self._session._jsparkSession)

    def fit(self, rows: int) -> None:
        """A small batch is quickest in one partition, with a plan that does not change and little to compile."""
        is_small = rows <= SMALL_BATCH
        cores = self._session.sparkContext.defaultParallelism
        # A worker holds the keys and versions of a partition in memory, at some 700 bytes a row.
        most = max(cores * 16, rows // MOST_ROWS_PER_PARTITION)
        partitions = 1 if is_small else min(max(cores, rows // ROWS_PER_PARTITION), most)
        self._session.conf.set("spark.sql.adaptive.enabled", str(not is_small).lower())
        self._session.conf.set("spark.sql.codegen.wholeStage", str(not is_small).lower())
        self._session.conf.set("spark.sql.shuffle.partitions", str(partitions))

    def at(self, name: str, snapshot_id: int | None) -> DataFrame:
        self._activate()
        reader = self._session.read.format("iceberg")
        if snapshot_id is None:
            return reader.load(f"{CATALOG}.{name}").limit(0)
        return reader.option("versionAsOf", str(snapshot_id)).load(f"{CATALOG}.{name}")
