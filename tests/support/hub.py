"""Ingestion in a folder, without Spark: queue, processor and delivery stream on their embedded adapters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from leanops.adapters.files.folder import Folder
from leanops.adapters.sql.buffer import SqlBuffer
from leanops.adapters.sql.queue import SqlQueue
from leanops.domain.event.names import queue_name
from leanops.ports.clock import millis
from leanops.usecases.ingest.deliver import Flushed, Stream, deliver, resume
from leanops.usecases.ingest.process import Ingested, Processor, work
from leanops.usecases.ingest.room import IngestRules
from leanops.usecases.platform import Platform
from leanops.usecases.retry import Patience
from tests.support.builders import Clock, platform_in

RAW_COLUMNS = [
    "message_id",
    "publish_time",
    "topic_name",
    "json_payload",
    "ingestion_ts",
    "idempotency_key",
    "attributes",
]


@dataclass(frozen=True)
class Hub:
    """One home's ingestion; every part is new, as after a restart."""

    platform: Platform
    queue: SqlQueue
    buffer: SqlBuffer
    files: Folder
    processor: Processor
    stream: Stream

    def process(self, topic: str = "orders", at_most: int = 1_000) -> Ingested | None:
        """One receive of the topic's queue."""
        return work(self.processor, self.queue, queue_name(topic), at_most)

    def flush(self) -> Flushed | None:
        """A flush that waits for nothing: one that was left, else a new one."""
        return resume(self.stream) or deliver(self.stream, now=True)

    def settle(self, *topics: str) -> None:
        """Process and flush until nothing is left."""
        for topic in topics or ("orders",):
            while self.process(topic):
                pass
        while self.flush():
            pass

    def raw(self, topic: str = "orders") -> list[dict[str, Any]]:
        """The rows of the topic's RAW table."""
        return self.platform.catalog.select(self.platform.rules.databases.raw_table(topic), RAW_COLUMNS)

    def ids(self, topic: str = "orders") -> list[str]:
        """The message ids in RAW, copies included, in order."""
        return sorted(row["message_id"] for row in self.raw(topic))


@contextmanager
def hub_in(
    folder: Path,
    *,
    clock: Callable[[], datetime] | None = None,
    step: Callable[[str], None] | None = None,
    patience: Patience | None = None,
    sync: Callable[[Path], None] = lambda _folder: None,
    idempotency_hours: int = 0,
    **processor: Any,
) -> Iterator[Hub]:
    """Ingestion in a folder that several hubs may share, as several processes would."""
    now = clock or Clock()
    with platform_in(folder, clock=now, sync=sync) as found:
        platform = replace(found, step=step) if step else found
        queue = SqlQueue(f"sqlite:///{folder}/queue.db", lambda: millis(now()))
        buffer = SqlBuffer(f"sqlite:///{folder}/delivery.db", lambda: millis(now()))
        files = Folder(folder / "files")
        ports = {
            "delivery": buffer,
            "files": files,
            "state": platform.state,
            "clock": now,
            "topic_of": lambda name: name,
            "rules": IngestRules(idempotency_hours=idempotency_hours),
        }
        worker = Processor(**{**ports, "patience": patience or Patience(), "step": platform.step, **processor})
        try:
            yield Hub(platform, queue, buffer, files, worker, Stream(platform, buffer, files))
        finally:
            queue.close()
            buffer.close()
