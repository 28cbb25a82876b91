"""Settings of the Spark session, in a module of their own: they are read without Spark, too."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True)
class SparkRules:
    """What Spark may use of the machine."""

    master: Annotated[str, Field(pattern=r"^local\["), "Cores: `local[2]` is two, `local[*]` all."] = "local[*]"
    driver_memory: Annotated[str, "Heap of the Spark driver."] = "4g"
    java_options: Annotated[str, "Java options; `-XX:TieredStopAtLevel=1` speeds up small runs."] = "-XX:+UseParallelGC"
