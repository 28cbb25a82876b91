"""How many bytes a period total reads, from Curated as it is and from a copy of it without partitions."""

from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from leanops.runtimes.embedded import Embedded


class _CountingFile:
    """A local file that adds up what is read of it."""

    def __init__(self, path: str, counted: list[int]) -> None:
        self._file, self._counted = open(path, "rb"), counted  # noqa: SIM115

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._counted[0] += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _CountingHandler(fs.FSSpecHandler):  # type: ignore[misc]
    """Opens local files for Arrow and counts the bytes it fetches."""

    def __init__(self, counted: list[int]) -> None:
        import fsspec

        super().__init__(fsspec.filesystem("file"))
        self.counted = counted

    def open_input_file(self, path: str) -> Any:
        import pyarrow as pa

        return pa.PythonFile(_CountingFile(path, self.counted), mode="r")


def bytes_ratio(runtime: Embedded, table: str, period: str) -> tuple[float, float, float]:
    """(ratio, MB read from the table, MB read from an unpartitioned copy) for one period's total amount."""
    spark = runtime.spark()
    spark.sql(f"CREATE TABLE leanops.{table}_flat USING iceberg AS SELECT * FROM leanops.{table}")
    totals = [_total(runtime.catalog.load_table(name), period) for name in (table, f"{table}_flat")]
    if totals[0][0] != totals[1][0]:
        raise AssertionError("the two tables do not give the same total")
    ours, theirs = totals[0][1], totals[1][1]
    return ours / theirs, ours / 1e6, theirs / 1e6


def _total(table: Any, period: str) -> tuple[Any, int]:
    counted = [0]
    files = [
        task.file.file_path.removeprefix("file:").replace("//", "/", 1)
        for task in table.scan(row_filter=f"period_reference = '{period}'").plan_files()
    ]
    data = ds.dataset(files, filesystem=fs.PyFileSystem(_CountingHandler(counted)), format="parquet")
    rows = data.to_table(columns=["amount"], filter=ds.field("period_reference") == period)
    return pc.sum(rows["amount"]).as_py(), counted[0]
