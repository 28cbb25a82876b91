"""The Spark session: one application, the Iceberg catalog, and settings that make results the same everywhere."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from leanops.adapters.iceberg.jars import PINS, coordinates, fetch_jars, java_home
from leanops.adapters.iceberg.options import CATALOG, SparkRules

_ENDING_S = 5.0
_JAVA = "_leanops_java"
"""Where a session keeps its Java process: PySpark knows only the newest."""
_LOGGING = Path(__file__).with_name("log4j2.properties")


def start_session(rules: SparkRules, catalog: Mapping[str, str], scratch: Path, engine: str = "sqlite") -> Any:
    """A SparkSession; Java and jars come by themselves at the first start and from the cache after it."""
    os.environ["JAVA_HOME"] = str(java_home())
    # Workers must run this very Python, or they miss the packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    jars = fetch_jars(coordinates(engine), PINS)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(rules.master).appName("leanops")
    for key, value in _settings(rules, catalog, scratch).items():
        builder = builder.config(key, value)
    # On the class path from the start: Spark touches files before it adds its own jars.
    session = builder.config("spark.driver.extraClassPath", os.pathsep.join(map(str, jars))).getOrCreate()
    session.sparkContext.setLogLevel(_log_level())
    _quieten(session)
    setattr(session, _JAVA, getattr(session.sparkContext._gateway, "proc", None))
    return session


def end_of_java(session: Any, failure: Exception | None = None) -> str | None:
    """How the Java of a session has ended and why that may be; None while it runs.

    A failure that looks like its end may be seen a moment before the process has ended.
    """
    process = getattr(session, _JAVA, None)
    if process is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING_S if failure and _is_silence(failure) else 0)
    code = process.poll()
    if code is None:
        return None
    if code == -signal.SIGKILL:
        return "was killed, by somebody or because the machine ran out of memory: then lower [spark] driver_memory"
    return f"ended with code {code}, perhaps for want of memory: then raise [spark] driver_memory"


def _is_silence(failure: Exception) -> bool:
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

    # Its subclasses are answers; the class itself is what is left where none came.
    return isinstance(failure, (ConnectionError, EOFError, Py4JNetworkError)) or type(failure) is Py4JError


def stop_session(session: Any) -> None:
    """End the application; its Java stays for the next one, unless it has ended."""
    if end_of_java(session):
        forget_session(session)
    else:
        session.stop()


def forget_session(session: Any) -> None:
    """Make PySpark forget a Java that has ended, so that the next session starts another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if getattr(SparkContext._gateway, "proc", None) is not getattr(session, _JAVA, None):
        return  # another home of this process has started a new one
    context: Any = session.sparkContext
    # The first call fails at Java, and the second one stops what is left on our side.
    for _ in range(2):
        with suppress(Exception):
            context.stop()
    with suppress(Exception):
        context._gateway.shutdown()
    for holder, names in (
        (SparkContext, ("_gateway", "_jvm", "_active_spark_context")),
        (SparkSession, ("_instantiatedSession", "_activeSession")),
    ):
        for name in names:
            setattr(holder, name, None)


def _quieten(session: Any) -> None:
    """PySpark and py4j print traces of their own where Java has ended; we report a failure once."""
    if _is_debugged():
        return
    logging.getLogger().addFilter(_is_not_py4j)
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_request: None


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _log_level() -> str:
    """Spark logs its errors only with --debug: we report a failure once."""
    return "ERROR" if _is_debugged() else "OFF"


def _is_debugged() -> bool:
    return logging.getLogger("leanops").isEnabledFor(logging.DEBUG)


def _java_options(rules: SparkRules) -> str:
    logging_options = f'"-Dlog4j2.configurationFile={_LOGGING}" -Dleanops.spark.log={_log_level()}'
    return f"{logging_options} {rules.java_options}".strip()


def _settings(rules: SparkRules, properties: Mapping[str, str], scratch: Path) -> dict[str, str]:
    catalog = f"spark.sql.catalog.{CATALOG}"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        # Every session must see every commit.
        f"{catalog}.cache-enabled": "false",
        **{f"{catalog}.{key}": value for key, value in properties.items()},
        # Hadoop's own starts a `chmod` process for every file it writes.
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        # Hadoop does not ask the process: files are for their owner alone.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.driver.memory": rules.driver_memory,
        "spark.driver.extraJavaOptions": _java_options(rules),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "leanops.adapters.iceberg.batches.workers",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
    }
