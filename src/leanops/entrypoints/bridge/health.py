"""Health and metrics of a bridge over HTTP: /healthz, /readyz, /metrics. Nothing else is served."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leanops.domain.errors import UsageError
from leanops.usecases.bridge.bridge import Bridge

REQUEST_S = 5.0
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
OLD_NAMES = {"dead_letters": "buried", "in_flight": "in_hand", "in_flight_bytes": "in_hand_bytes"}
"""Exported for one version beside the new names."""


class BridgeMetrics(Collector):
    """The counts of a bridge as Prometheus metrics, read at each scrape."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def collect(self) -> Iterator[Metric]:
        counts, in_flight = self._bridge.counts, self._bridge.in_flight
        totals: dict[str, tuple[str, float]] = {
            "received": ("Messages pulled.", counts.received),
            "received_bytes": ("Bytes of data pulled.", counts.received_bytes),
            "forwarded": ("Messages the queue has taken.", counts.forwarded),
            "resent": ("Messages sent again because the queue had not taken them.", counts.resent),
            "returned": ("Messages given back to Pub/Sub.", counts.returned),
            "dead_letters": ("Messages that the queue will never take, archived as dead letters.", counts.archived),
            "acked": ("Messages acknowledged.", counts.acked),
            "receipts_lost": ("Acks and nacks that did not reach Pub/Sub.", counts.receipts_lost),
            "extended": ("Leases extended.", counts.extended),
            "reconnects": ("Streams opened again.", counts.reconnects),
            "sends": ("Sends to the queue.", counts.sends),
        }
        levels: dict[str, tuple[str, float]] = {
            "in_flight": ("Messages in flight.", len(in_flight.held)),
            "in_flight_bytes": ("Bytes in flight.", in_flight.bytes),
            "waiting": ("Messages that no send is working on.", self._bridge.waiting),
            "oldest_seconds": ("Age of the oldest message in flight.", in_flight.oldest_s),
            "ready": ("1 if the bridge is working.", self._bridge.problem is None),
        }
        yield from _metrics(CounterMetricFamily, totals)
        yield from _metrics(GaugeMetricFamily, levels)
        yield from self._by_stream()

    def _by_stream(self) -> Iterator[Metric]:
        labels = ["topic", "subscription"]
        opened = GaugeMetricFamily("leanops_bridge_open", "1 if messages of a subscription pass.", labels=labels)
        events = CounterMetricFamily("leanops_bridge_events", "Messages the queue has taken.", labels=labels)
        for stream in self._bridge.streams:
            names = [stream.topic, stream.subscription.rpartition("/")[2]]
            opened.add_metric(names, stream.flows)
            events.add_metric(names, stream.forwarded)
        yield from (opened, events)


def _metrics(family: Callable[[str, str, float], Metric], values: dict[str, tuple[str, float]]) -> Iterator[Metric]:
    for name, (text, value) in values.items():
        yield family(f"leanops_bridge_{name}", text, value)
        if old := OLD_NAMES.get(name):
            note = f"Old name of leanops_bridge_{name}; the next version no longer exports it."
            yield family(f"leanops_bridge_{old}", note, value)


class Health:
    """Answers for one bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._registry = CollectorRegistry()
        self._registry.register(BridgeMetrics(bridge))
        ProcessCollector(registry=self._registry)

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """The server, answering."""
        try:
            return await asyncio.start_server(self._serve, host, port, limit=8_192)
        except OSError as taken:
            reason = (taken.strerror or "not possible").lower()
            raise UsageError(f"cannot listen on {host}:{port} ({reason}); choose another with --host, --port") from None

    def answer(self, method: str, path: str) -> tuple[str, str, bytes]:
        """Status, content type and body of an answer."""
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", TEXT, b"only GET\n"
        if path == "/healthz":
            return "200 OK", TEXT, b"ok\n"
        if path == "/readyz":
            problem = self._bridge.problem
            return ("503 Service Unavailable", TEXT, f"{problem}\n".encode()) if problem else ("200 OK", TEXT, b"ok\n")
        if path == "/metrics":
            return "200 OK", METRICS, generate_latest(self._registry)
        return "404 Not Found", TEXT, b"there are /healthz, /readyz and /metrics\n"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that is slow, silent or gone costs nothing but its own connection.
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_S):
                request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, target, _ = request.split("\r\n")[0].split(" ")
                status, kind, body = self.answer(method, target.partition("?")[0])
                head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close"
                writer.write(f"{head}\r\n\r\n".encode() + (b"" if method == "HEAD" else body))
                await writer.drain()
        writer.close()
