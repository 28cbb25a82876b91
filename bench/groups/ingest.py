"""Ingestion: events a second from queue to RAW, the memory they take, and what a commit costs per table and flush."""

import statistics
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.rows import Row, row, say
from leanops.domain.event.envelope import Envelope
from leanops.domain.event.lines import Event
from leanops.domain.event.record import raw_record
from leanops.runtimes.background import queues_of, stream_of
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.ingest.deliver import Stream, deliver
from leanops.usecases.ingest.parts import DeliveryPart
from leanops.usecases.ingest.publish import publish
from leanops.usecases.retry import Patience
from leanops.usecases.topics.registry import add_topic, add_topics

EVENTS_PER_S = 40_000
COMMIT_S = 0.030
FILLER = "x" * 430
NOW = datetime(2026, 11, 15, tzinfo=UTC)


def payload(number: int) -> str:
    """An event of 500 bytes."""
    return f'{{"order":{{"id":"O-{number:09}","status":"PAID","amount":"19.90"}},"note":"{FILLER}"}}'


def throughput(folder: Path, events: int) -> list[Row]:
    """Events published to one topic, then processor and delivery as two threads of one process, as serve runs them."""
    runtime = Embedded(create_home(folder / "rate"))
    add_topic(runtime.platform, "orders")
    made = (Event(f"m{number}", NOW, payload(number)) for number in range(events))
    publish(runtime.platform, runtime.queue, runtime.files, "orders", made)
    memory: list[float] = []
    started = time.perf_counter()
    _drain(runtime, memory)
    seconds = time.perf_counter() - started
    landed = runtime.platform.catalog.count("iceberg_raw_db.orders_staging")
    runtime.close()
    if landed != events:
        sys.exit(f"bench: {landed:,} rows in RAW, {events:,} events were published")
    early, late = statistics.median(memory[1 : len(memory) // 2]), statistics.median(memory[len(memory) // 2 :])
    say(f"{events:,} events from queue to RAW in {seconds:.1f} s: {events / seconds:,.0f} events/s")
    return [
        row(f"{events:,} events from queue to RAW / at 40 k events/s", seconds, events / EVENTS_PER_S, 1.0),
        row("MB of memory, second half / first half of these", late, early, 1.1),
    ]


def _drain(runtime: Embedded, memory: list[float]) -> None:
    queues, delivery, done = queues_of(runtime, Patience()), DeliveryPart(stream_of(runtime)), threading.Event()

    def work() -> None:
        while queues.process():
            pass
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    while not done.is_set():
        if delivery.turn():
            memory.append(_resident_mb())
        else:
            done.wait(0.02)
    worker.join()
    while delivery.turn(now=True):
        memory.append(_resident_mb())


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def commits(folder: Path, topics: int, flushes: int) -> list[Row]:
    """One flush over many tables, then a table flushed again and again."""
    runtime = Embedded(create_home(folder / "commits"))
    names = [f"topic-{number:04}" for number in range(topics)]
    add_topics(runtime.platform, dict.fromkeys(names))
    stream = Stream(runtime.platform, runtime.buffer, runtime.files)
    _put(runtime, names)
    wide = deliver(stream, now=True)
    assert wide is not None
    many = statistics.mean(wide.tables.values())
    say(f"a flush over {topics} tables: {1000 * many:.1f} ms a table")
    seconds = []
    for _ in range(flushes):
        _put(runtime, names[:1])
        found = deliver(stream, now=True)
        assert found is not None
        seconds.append(found.tables[names[0]])
    runtime.close()
    last = statistics.mean(seconds[-200:])
    say(f"one table, flush 1 to 50: {1000 * statistics.mean(seconds[:50]):.1f} ms, the last 200: {1000 * last:.1f} ms")
    return [
        row(f"s per table in a flush over {topics} tables / 30 ms", many, COMMIT_S, 1.0, digits=3),
        row(f"s per flush of a table after {flushes} flushes / 30 ms", last, COMMIT_S, 1.0, digits=3),
    ]


def _put(runtime: Embedded, topics: list[str]) -> None:
    micros = int(NOW.timestamp() * 1_000_000)
    runtime.buffer.put(
        [
            raw_record(Envelope(name, f"m{at}", micros, payload="{}"), payload(at), 1)
            for name in topics
            for at in range(5)
        ]
    )


def measure(folder: Path, events: int) -> list[Row]:
    """Both measurements with the sizes of the bar."""
    return [*throughput(folder, events), *commits(folder, 700, 1_000)]
