"""Where Spark's Python workers have their packages from."""

from pathlib import Path

from leanops.adapters.iceberg.batches.workers import without_archives


def package(folder: Path, name: str) -> Path:
    """A package in a folder."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").touch()
    return folder / name


def test_archives_in_the_folder_of_pyspark_are_left_out_where_nothing_needs_them(tmp_path: Path) -> None:
    spark = package(tmp_path, "pyspark")
    package(tmp_path, "py4j")
    inside = [
        f"{spark}/python/lib/pyspark.zip",
        f"{spark}/python/lib/py4j-0.10-src.zip",
        f"{spark}/jars/spark-core.jar",
    ]
    others = [str(tmp_path), "elsewhere", f"{tmp_path}/extras.zip"]
    assert without_archives([*inside, *others]) == others


def test_archives_stay_where_a_package_is_in_them_only(tmp_path: Path) -> None:
    spark = package(tmp_path, "pyspark")
    path = [f"{spark}/python/lib/py4j-0.10-src.zip", str(tmp_path)]
    assert without_archives(path) == path
    # A folder without a module is no package, though Python takes it for one.
    (tmp_path / "py4j").mkdir()
    assert without_archives(path) == path


def test_archives_of_a_spark_that_is_somewhere_else_stay(tmp_path: Path) -> None:
    package(tmp_path, "pyspark")
    package(tmp_path, "py4j")
    path = ["/opt/spark/python/lib/pyspark.zip", str(tmp_path)]
    assert without_archives(path) == path
