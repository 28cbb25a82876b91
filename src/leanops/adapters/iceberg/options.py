"""What Spark is started with; apart from the session, so that settings are read where there is no Spark."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True)
class SparkRules:
    """What Spark may use of the machine."""

    master: Annotated[str, Field(pattern=r"^local\["), "Cores: `local[2]` is two, `local[*]` all."] = "local[*]"
    driver_memory: Annotated[str, "Heap of the Spark driver."] = "4g"
    java_options: Annotated[str, "Java options; `-XX:TieredStopAtLevel=1` speeds up small runs."] = "-XX:+UseParallelGC"
