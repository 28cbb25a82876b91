"""Health and metrics of a bridge over HTTP: /healthz, /readyz, /metrics. Nothing else is served."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leanops.domain.errors import UsageError
from leanops.usecases.bridge.bridge import Bridge

REQUEST_S = 5.0
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


class BridgeMetrics(Collector):
    """The bridge's counts in the form of Prometheus, read when they are asked for."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def collect(self) -> Iterator[Metric]:
        counts, in_flight, streams = self._bridge.counts, self._bridge.in_flight, self._bridge.streams
        totals = {
            "received": ("Messages pulled.", counts.received),
            "received_bytes": ("Bytes of data pulled.", counts.received_bytes),
            "forwarded": ("Messages the queue has taken.", counts.forwarded),
            "resent": ("Messages sent again because the queue had not taken them.", counts.resent),
            "returned": ("Messages given back to Pub/Sub.", counts.returned),
            "buried": ("Messages that the queue will never take, kept as dead letters.", counts.archived),
            "acked": ("Messages acknowledged.", counts.acked),
            "receipts_lost": ("Acks and nacks that Pub/Sub did not hear.", counts.receipts_lost),
            "extended": ("Leases extended.", counts.extended),
            "reconnects": ("Streams opened again.", counts.reconnects),
            "sends": ("Sends to the queue.", counts.sends),
        }
        for name, (text, value) in totals.items():
            yield CounterMetricFamily(f"leanops_bridge_{name}", text, value)
        yield GaugeMetricFamily("leanops_bridge_in_hand", "Messages in flight.", len(in_flight.held))
        yield GaugeMetricFamily("leanops_bridge_waiting", "Messages no send is at work with.", self._bridge.waiting)
        yield GaugeMetricFamily("leanops_bridge_in_hand_bytes", "Bytes in flight.", in_flight.bytes)
        yield GaugeMetricFamily(
            "leanops_bridge_oldest_seconds", "Age of the oldest message in flight.", in_flight.oldest_s
        )
        yield GaugeMetricFamily("leanops_bridge_ready", "1 where it does its work.", self._bridge.problem is None)
        labels = ["topic", "subscription"]
        opened = GaugeMetricFamily("leanops_bridge_open", "1 where a subscription flows.", labels=labels)
        events = CounterMetricFamily("leanops_bridge_events", "Messages the queue has taken.", labels=labels)
        for stream in streams:
            names = [stream.topic, stream.subscription.rpartition("/")[2]]
            opened.add_metric(names, stream.flows)
            events.add_metric(names, stream.forwarded)
        yield from (opened, events)


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
