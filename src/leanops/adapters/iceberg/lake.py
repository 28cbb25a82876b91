"""Tables through Spark SQL: what plans, inference and rebuilds read, and error rows that change."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.adapters.iceberg.options import CATALOG
from leanops.domain.errors import CommitRefusedError, CommitUnknownError
from leanops.domain.failures import HIDDEN
from leanops.domain.table.sql import literal, quoted

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

    def _completed(self, rows: DataFrame, table: str) -> DataFrame:
        """The rows, with NULL for every column of the table that they lack: a schema may have dropped one."""
        missing = [
            field for field in self._session.table(f"{CATALOG}.{table}").schema if field.name not in rows.columns
        ]
        return rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in missing))

    def append(self, rows: DataFrame, name: str, summary: Mapping[str, str]) -> None:
        self._activate()
        writer = self._completed(rows, name).writeTo(_full(name))
        for key, value in summary.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        with _translated():
            writer.append()

    def put_errors(self, rows: DataFrame, name: str, topic: str) -> None:
        self._activate()
        view = f"errors_{secrets.token_hex(8)}"
        # Two processes may have built at once; a row twice would stop the MERGE.
        rows.dropDuplicates(["error_id"]).createOrReplaceTempView(view)
        renewed = ("failures", "schema_version", "batch_id", "record_key")
        try:
            with _translated():
                self._session.sql(
                    f"MERGE INTO {_full(name)} t USING {view} s "
                    f"ON t.topic_name = {literal(topic)} AND t.error_id = s.error_id "
                    "WHEN MATCHED AND t.batch_id <> s.batch_id THEN UPDATE SET t.attempts = t.attempts + 1, "
                    f"{', '.join(f't.{column} = s.{column}' for column in renewed)} "
                    "WHEN NOT MATCHED THEN INSERT *"
                )
        finally:
            self._session.catalog.dropTempView(view)

    def hide_values(self, name: str, topic: str, columns: Sequence[str], paths: Sequence[str]) -> None:
        is_hidden = f"({_is_in('f.column', columns)} OR {_is_in('f.path', paths)})"
        shows = f"coalesce(f.value <> {literal(HIDDEN)} AND {is_hidden}, false)"
        members = ", ".join(f"'{member}', f.{member}" for member in ("rule", "column", "path", "message"))
        hidden = f"named_struct({members}, 'value', {literal(HIDDEN)})"
        self._update(
            name,
            topic,
            f"failures = transform(failures, f -> if({shows}, {hidden}, f))",
            f"exists(failures, f -> {shows})",
        )

    def forget_keys(self, name: str, topic: str, before: int) -> None:
        self._update(name, topic, "record_key = NULL", f"record_key LIKE 'key:%' AND schema_version < {before:d}")

    def _update(self, name: str, topic: str, change: str, where: str) -> None:
        self._activate()
        with _translated():
            self._session.sql(f"UPDATE {_full(name)} SET {change} WHERE topic_name = {literal(topic)} AND {where}")


@contextmanager
def _translated() -> Iterator[None]:
    """Turns Iceberg's refusals of a commit into our errors."""
    try:
        yield
    except Exception as failure:
        names = _java_names(failure)
        if any(_UNKNOWN in name for name in names):
            raise CommitUnknownError(
                "the catalog did not confirm whether the commit succeeded; the next try looks for it"
            ) from None
        if any(refusal in name for name in names for refusal in _REFUSED):
            raise CommitRefusedError("the table refused the commit: another writer was there first") from failure
        raise


def _java_names(failure: Exception) -> list[str]:
    """The class names of a Java exception and its causes."""
    cause = getattr(failure, "java_exception", None)
    if cause is None and isinstance(failure, PySparkException):
        cause = getattr(failure, "_origin", None)
    names: list[str] = []
    while cause is not None and len(names) < 10:
        names.append(cause.getClass().getName())
        cause = cause.getCause()
    return names


def _full(table: str) -> str:
    return ".".join([CATALOG, *(quoted(part) for part in table.split("."))])


def _is_in(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(literal(value) for value in values)})" if values else "false"
