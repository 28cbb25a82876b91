"""Tables through Spark: the rows of a batch, and the one way Standardized and Curated are written."""

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.adapters.iceberg.session import CATALOG
from leanops.domain.errors import CommitRefusedError, CommitUnknownError
from leanops.domain.failures import HIDDEN
from leanops.domain.table.sql import literal, quoted
from leanops.ports.tables import Merge

SMALL_BATCH = 20_000
ROWS_PER_PARTITION = 50_000
MOST_ROWS_PER_PARTITION = 1_000_000
_UNKNOWN = "CommitStateUnknownException"
_REFUSED = ("ValidationException", "CommitFailedException")
_callback_server = threading.Lock()


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

    def appended(self, name: str, start: int | None, end: int) -> DataFrame:
        self._activate()
        if start is None:
            return self.at(name, end)
        reader = self._session.read.format("iceberg").option("start-snapshot-id", str(start))
        return reader.option("end-snapshot-id", str(end)).load(f"{CATALOG}.{name}")

    def at(self, name: str, snapshot_id: int | None) -> DataFrame:
        self._activate()
        reader = self._session.read.format("iceberg")
        if snapshot_id is None:
            return reader.load(f"{CATALOG}.{name}").limit(0)
        return reader.option("versionAsOf", str(snapshot_id)).load(f"{CATALOG}.{name}")

    def merge(self, rows: DataFrame, into: Merge) -> None:
        self._activate()
        view = f"merge_{secrets.token_hex(8)}"
        self._completed(rows, into.table).createOrReplaceTempView(view)
        try:
            self._with_summary(into.summary, lambda: self._session.sql(_merge_statement(view, into)))
        finally:
            self._session.catalog.dropTempView(view)

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

    def add_errors(self, rows: DataFrame, name: str, topics: Sequence[str]) -> None:
        self._activate()
        view = f"errors_{secrets.token_hex(8)}"
        # The rows of a bin come from the sessions of its topics; a plain view would be seen in one of them alone.
        rows.createOrReplaceGlobalTempView(view)
        try:
            with _translated():
                # No row has negative attempts. Without a clause for rows that match, Spark would append without
                # checking whether another writer added the same rows since it read the table.
                self._session.sql(
                    f"MERGE INTO {_full(name)} t USING global_temp.{view} s "
                    f"ON {_is_in('t.topic_name', topics)} AND t.error_id = s.error_id "
                    "WHEN MATCHED AND t.attempts < 0 THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
        finally:
            self._session.catalog.dropGlobalTempView(view)

    def _with_summary(self, summary: Mapping[str, str], statement: Callable[[], Any]) -> None:
        """Run a statement so that its commit carries our keys; plain session settings do not reach MERGE on 3.5."""
        with _callback_server:
            ensure_callback_server_started(self._session.sparkContext._gateway)  # type: ignore[no-untyped-call]
        jvm: Any = self._session._jvm
        properties = jvm.java.util.HashMap()
        for key, value in summary.items():
            properties.put(key, value)
        run = _Run(statement)
        failure = jvm.java.lang.Class.forName("java.lang.RuntimeException")
        with _translated():
            jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(properties, run, failure)
            if run.failure:
                raise run.failure


class _Run:
    """A Python function as java.util.concurrent.Callable; keeps its exception, whose type Java would lose."""

    def __init__(self, statement: Callable[[], Any]) -> None:
        self.statement = statement
        self.failure: BaseException | None = None

    def call(self) -> None:
        try:
            self.statement()
        except BaseException as failure:  # noqa: BLE001 - raised again on the other side
            self.failure = failure

    class Java:
        implements = ("java.util.concurrent.Callable",)


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


def _merge_statement(view: str, into: Merge) -> str:
    """The MERGE that cannot commit twice, whenever it stalls.

    ON covers every row written by this batch or a later one. A writer that stalls after planning is refused by
    Iceberg's own conflict check, because such rows arrived meanwhile; one that stalls before planning finds them
    and leaves them alone.
    """
    key = quoted(into.key)
    if into.found_periods is not None:
        found = _is_in("t.`period_reference`", into.found_periods)
    else:
        found = _is_in(f"t.{key}", into.found_keys)
    return (
        f"MERGE INTO {_full(into.table)} t USING {view} s "
        f"ON t.{key} = s.{key} AND ({found} OR t.`_batch_seq` >= {into.batch_seq:d}) "
        f"WHEN MATCHED AND t.`_batch_seq` < {into.batch_seq:d} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _full(table: str) -> str:
    return ".".join([CATALOG, *(quoted(part) for part in table.split("."))])


def _is_in(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(literal(value) for value in values)})" if values else "false"
