"""The ledger of a topic with the batches its events were read in: what must have become of each."""

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import duckdb

from leanops.emulation import ledger
from leanops.emulation.boundaries import Boundaries
from leanops.runtimes.embedded import Embedded

_STATEMENTS = files("leanops.emulation").joinpath("fates.sql").read_text(encoding="utf-8")
_RAW = "message_id VARCHAR, publish_us BIGINT, ingestion_ms BIGINT, content VARCHAR, batch INT"
_COMMENT = re.compile(r"--[^\n]*")


class Fates:
    """A database in memory with the expected rows of every table of one topic; fates.sql says which tables it has."""

    def __init__(self, runtime: Embedded, topic: str, boundaries: Boundaries) -> None:
        self.connection = duckdb.connect(config={"temp_directory": str(runtime.home / "scratch" / "duckdb")})
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("CREATE MACRO months(period) AS period[1:4]::INT * 12 + period[6:7]::INT")
        parts = ledger.parts(runtime.home, topic)
        self.connection.execute(f"CREATE VIEW ledger AS FROM read_parquet({listed(parts)})")
        self.connection.execute("CREATE VIEW sent AS FROM ledger WHERE kind NOT IN ('duplicate', 'redelivery')")
        self._read_raw(boundaries)
        runs = [(run.number, run.source_from, run.source_to) for run in boundaries.curated]
        self.connection.execute("CREATE TABLE curated_run (number INT, source_from BIGINT, source_to BIGINT)")
        if runs:
            self.connection.executemany("INSERT INTO curated_run VALUES (?, ?, ?)", runs)
        for statement in _COMMENT.sub("", _STATEMENTS).split(";"):
            if statement.strip():
                self.connection.execute(statement)

    def _read_raw(self, boundaries: Boundaries) -> None:
        """RAW as DuckDB reads it from its files, each row with the batch of its file."""
        connection = self.connection
        connection.execute(f"CREATE TABLE raw ({_RAW})")
        if boundaries.files:
            connection.execute("CREATE TABLE raw_file (filename VARCHAR, batch INT)")
            connection.executemany("INSERT INTO raw_file VALUES (?, ?)", list(boundaries.files.items()))
            connection.execute(
                "INSERT INTO raw SELECT message_id, epoch_us(publish_time), ingestion_ts, sha256(json_payload), batch "
                f"FROM read_parquet({listed(boundaries.files)}, filename = true) JOIN raw_file USING (filename)"
            )

    def register(self, name: str, rows: Any) -> None:
        """Rows of a real table, as a table of this database."""
        self.connection.register("given", rows)
        self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM given")
        self.connection.unregister("given")

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, list(parameters)).fetchall()

    def close(self) -> None:
        self.connection.close()


def listed(paths: Iterable[str]) -> str:
    """Paths as a list in SQL."""
    quoted = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return f"[{quoted}]"
