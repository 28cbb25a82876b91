"""A home with topics of the standard data, as the groups measure it."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.data import TOPIC_SCHEMA
from leanops.adapters.iceberg.batches.engine import TaskEngine
from leanops.adapters.iceberg.batches.runner import InProcess
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.cycle.job import TopicResult
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.operations.start import rebuild_topic
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic


class Hub:
    """One home and one Spark application with the default settings."""

    def __init__(self, home: Path) -> None:
        self.runtime = Embedded(create_home(home))
        self.platform = self.runtime.platform

    def add(self, topic: str, *columns: str) -> None:
        """A topic with the schema of the standard data, or with texts of these names."""
        schema = {**TOPIC_SCHEMA, "table_name": table_of(topic)}
        if columns:
            texts = [{"name": name, "path": f"$.{name}", "type": "STRING"} for name in columns]
            schema = {"table_name": schema["table_name"], "envelope_columns": [], "payload_columns": texts}
        add_topic(self.platform, topic)
        deploy_schema(self.platform, topic, json.dumps(schema), "bench")

    def land(self, topic: str, events: Any) -> None:
        """Put events into RAW."""
        self.raw(topic).append(events)

    def cycle(self, *topics: str) -> tuple[list[TopicResult], float]:
        """A cycle over these topics, all of which must have work, and its seconds."""
        return _cycle(self.platform, topics)

    def age(self, topic: str, batches: list[Any]) -> None:
        """Small batches without maintenance; the tasks of Spark, in this process, because that is quicker."""
        engine = TaskEngine(self.runtime.catalog, InProcess(), self.runtime.settings.spark)
        aged = replace(self.platform, engine=lambda: engine)
        for events in batches:
            self.land(topic, events)
            _cycle(aged, [topic])

    def rebuild(self, topic: str) -> float:
        """Seconds of a rebuild of both tables from RAW."""
        started = time.perf_counter()
        rebuild_topic(self.platform, topic)
        return time.perf_counter() - started

    def raw(self, topic: str) -> Any:
        """RAW of a topic."""
        return self.runtime.catalog.load_table(self.platform.rules.databases.raw_table(topic))

    def raw_files(self, topic: str) -> list[str]:
        """The paths of its files."""
        return [task.file.file_path.removeprefix("file://") for task in self.raw(topic).scan().plan_files()]


def table_of(topic: str) -> str:
    """The Curated table of a topic."""
    return topic.replace("-", "_")


def _cycle(platform: Platform, topics: Any) -> tuple[list[TopicResult], float]:
    started = time.perf_counter()
    results = run_cycle(platform, topics)
    seconds = time.perf_counter() - started
    for result in results:
        if result.outcome != "done":
            sys.exit(f"bench: {result.topic} ended {result.outcome}: {result.reason}")
    return results, seconds
