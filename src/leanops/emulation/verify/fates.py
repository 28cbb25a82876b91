"""What must have become of each message of a topic, from the ledger and the batches that read it."""

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb

from leanops.emulation import ledger
from leanops.emulation.verify.boundaries import Boundaries
from leanops.runtimes.embedded import Embedded

_STATEMENTS = files("leanops.emulation.verify").joinpath("fates.sql").read_text(encoding="utf-8")
RAW = "message_id VARCHAR, publish_us BIGINT, ingestion_ms BIGINT, content VARCHAR, batch INT"
"""Columns of `raw`; `batch` is the number of the Standardized batch that read the row, NULL if none has yet."""
MEMORY = "1GB"
"""For each database; two topics are verified at once."""
_COMMENT = re.compile(r"--[^\n]*")


class Database:
    """A DuckDB in memory, which spills to the disk of the home."""

    def __init__(self, home: Path) -> None:
        # By default DuckDB takes most of the memory, of which a JVM already has a good part.
        folder = str(home / "scratch" / "duckdb")
        self.connection = duckdb.connect(config={"temp_directory": folder, "memory_limit": MEMORY})

    def register(self, name: str, rows: Any) -> None:
        """Copy rows into a table of this database."""
        self.connection.register("given", rows)
        self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM given")
        self.connection.unregister("given")

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, list(parameters)).fetchall()

    def close(self) -> None:
        self.connection.close()


class Fates(Database):
    """The expected rows of every table of one topic; fates.sql says which tables it has."""

    def __init__(self, runtime: Embedded, topic: str, boundaries: Boundaries) -> None:
        super().__init__(runtime.home)
        self._read_raw(boundaries)
        runs = [(run.number, run.source_from, run.source_to) for run in boundaries.curated]
        work_out(self.connection, ledger.parts(runtime.home, topic), runs)

    def _read_raw(self, boundaries: Boundaries) -> None:
        """Load RAW as DuckDB reads it from its files, each row with the batch of its file."""
        connection = self.connection
        connection.execute(f"CREATE TABLE raw ({RAW})")
        if boundaries.files:
            connection.execute("CREATE TABLE raw_file (filename VARCHAR, batch INT)")
            connection.executemany("INSERT INTO raw_file VALUES (?, ?)", list(boundaries.files.items()))
            connection.execute(
                "INSERT INTO raw SELECT message_id, epoch_us(publish_time), ingestion_ts, sha256(json_payload), batch "
                f"FROM read_parquet({listed(boundaries.files)}, filename = true) JOIN raw_file USING (filename)"
            )


def work_out(
    connection: duckdb.DuckDBPyConnection, parts: Sequence[str], curated_runs: Sequence[Sequence[Any]]
) -> None:
    """Create the tables of fates.sql from the files of a ledger, in a database that has `raw`."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE MACRO months(period) AS period[1:4]::INT * 12 + period[6:7]::INT")
    connection.execute(f"CREATE VIEW ledger AS FROM read_parquet({listed(parts)})")
    connection.execute("CREATE VIEW sent AS FROM ledger WHERE kind NOT IN ('duplicate', 'redelivery')")
    connection.execute("CREATE TABLE curated_run (number INT, source_from BIGINT, source_to BIGINT)")
    if curated_runs:
        connection.executemany("INSERT INTO curated_run VALUES (?, ?, ?)", curated_runs)
    for statement in _COMMENT.sub("", _STATEMENTS).split(";"):
        if statement.strip():
            connection.execute(statement)


def listed(paths: Iterable[str]) -> str:
    """Paths as a list in SQL."""
    quoted = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return f"[{quoted}]"
