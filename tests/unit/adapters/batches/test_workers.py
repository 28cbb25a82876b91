"""Where Spark's Python workers have their packages from."""

import zipfile
from pathlib import Path

from leanops.adapters.iceberg.batches.workers import without_archives


def package(folder: Path) -> str:
    """A folder with a package called pyspark."""
    (folder / "pyspark").mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").touch()
    return str(folder)


def archive(path: Path) -> str:
    """An archive with one."""
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("pyspark/__init__.py", "")
    return str(path)


def test_archives_are_left_out_where_pyspark_is_in_a_folder(tmp_path: Path) -> None:
    path = [
        archive(tmp_path / "pyspark.zip"),
        str(tmp_path / "spark-core.jar"),
        package(tmp_path / "site"),
        "elsewhere",
    ]
    assert without_archives(path) == path[2:]


def test_archives_stay_where_pyspark_is_nowhere_else(tmp_path: Path) -> None:
    path = [archive(tmp_path / "pyspark.zip"), str(tmp_path)]
    assert without_archives(path) == path
