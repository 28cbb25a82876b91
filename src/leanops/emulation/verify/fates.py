"""What must have become of each message of a topic, from the ledger and the batches that read it."""

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import duckdb

from leanops.emulation import ledger
from leanops.emulation.scenario import Scenario
from leanops.emulation.verify.boundaries import boundaries_of
from leanops.emulation.verify.tables import Tables, listed
from leanops.runtimes.embedded import Embedded

_STATEMENTS = resources.files("leanops.emulation.verify").joinpath("fates.sql").read_text(encoding="utf-8")
RAW = "message_id VARCHAR, publish_us BIGINT, ingestion_ms BIGINT, content VARCHAR, batch INT"
"""Columns of `raw`; `batch` is the number of the Standardized batch that read the row, NULL if none has yet."""
_COMMENT = re.compile(r"--[^\n]*")


class Fates(Tables):
    """A topic under verification, with the expected rows of its tables; fates.sql says which tables it has."""

    def __init__(self, runtime: Embedded, scenario: Scenario, topic: str) -> None:
        super().__init__(runtime)
        self.scenario, self.topic, self.profile = scenario, topic, scenario.names()[topic]
        self.boundaries = boundaries_of(runtime, topic)
        self._read_raw(self.boundaries.files)
        runs = [(run.number, run.source_from, run.source_to) for run in self.boundaries.curated]
        work_out(self.connection, ledger.parts(runtime.home, topic), runs)

    def _read_raw(self, files: Mapping[str, int | None]) -> None:
        """Load RAW as DuckDB reads it from its files, each row with the batch of its file."""
        self.connection.execute(f"CREATE TABLE raw ({RAW})")
        if files:
            self.connection.execute("CREATE TABLE raw_file (filename VARCHAR, batch INT)")
            self.connection.executemany("INSERT INTO raw_file VALUES (?, ?)", list(files.items()))
            self.connection.execute(
                "INSERT INTO raw SELECT message_id, epoch_us(publish_time), ingestion_ts, sha256(json_payload), batch "
                f"FROM read_parquet({listed(files)}, filename = true) JOIN raw_file USING (filename)"
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
