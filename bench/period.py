"""How many bytes a period total needs, from Curated as it is and from a copy of it without partitions."""

from typing import Any

import pyarrow.parquet as pq

from leanops.runtimes.embedded import Embedded

FOOTER_END = 8
"""The length of a Parquet footer and the magic word after it."""


def bytes_ratio(runtime: Embedded, table: str, period: str) -> tuple[float, float, float]:
    """(ratio, MB read from the table, MB read from an unpartitioned copy) for one period's total amount."""
    spark = runtime.spark()
    # In the order of arrival, which mixes the periods: a copy in the order of the table would have them in a row.
    arrived = f"SELECT /*+ REPARTITION(1) */ * FROM leanops.{table} SORT BY message_id"
    spark.sql(f"CREATE TABLE leanops.{table}_flat USING iceberg AS {arrived}")
    where = f"period_reference = '{period}'"
    totals = [
        spark.sql(f"SELECT sum(amount) FROM leanops.{name} WHERE {where}").first()[0]
        for name in (table, f"{table}_flat")
    ]
    if totals[0] is None or totals[0] != totals[1]:
        raise AssertionError("the two tables do not give the same total")
    # A partition value is known from the metadata; without partitions its column has to be read.
    ours = _bytes(runtime.catalog.load_table(table), where, {"amount"})
    theirs = _bytes(runtime.catalog.load_table(f"{table}_flat"), where, {"amount", "period_reference"})
    return ours / theirs, ours / 1e6, theirs / 1e6


def _bytes(table: Any, where: str, columns: set[str]) -> int:
    """Footers and column chunks of the files Iceberg plans for the statement."""
    needed = 0
    for task in table.scan(row_filter=where).plan_files():
        footer = pq.read_metadata(task.file.file_path.removeprefix("file:").replace("//", "/", 1))
        needed += footer.serialized_size + FOOTER_END
        for group in range(footer.num_row_groups):
            chunks = [footer.row_group(group).column(at) for at in range(footer.num_columns)]
            needed += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)
    return needed
