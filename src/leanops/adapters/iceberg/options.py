"""Settings of tasks and of the Spark session, in a module of their own: they are read without Spark, too."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from pydantic import Field

CATALOG = "leanops"
"""The name of the catalog, in Spark too."""


@dataclass(frozen=True)
class TaskRules:
    """How batches are cut into tasks."""

    task_rows: Annotated[int, Ge(1), "Rows one task reads; a larger batch is shuffled by key."] = 25_000
    task_bytes: Annotated[int, Ge(1), "Bytes of files one task reads, as they are stored."] = 8 << 20
    task_memory: Annotated[int, Ge(1), "Bytes of rows a task holds in memory; more wait in a file."] = 128 << 20
    fold_files: Annotated[int, Ge(2), "Files of similar size, or delete files of one file, that a cycle folds."] = 8


@dataclass(frozen=True)
class SparkRules(TaskRules):
    """What Spark may use of the machine."""

    master: Annotated[str, Field(pattern=r"^local\["), "Cores: `local[2]` is two, `local[*]` all."] = "local[*]"
    driver_memory: Annotated[str, "Heap of the Spark driver."] = "4g"
    java_options: Annotated[str, "Java options; `-XX:TieredStopAtLevel=1` speeds up small runs."] = "-XX:+UseParallelGC"
