"""A bridge as a process: it answers health checks, reports to the state store, and drains on a signal."""

import asyncio
import os
import signal
import sys
import threading

import structlog

from leanops.domain.errors import reason_of
from leanops.entrypoints.bridge.health import Health
from leanops.runtimes.bridge import FarSide, bridge_of, pubsub
from leanops.usecases.bridge.bridge import Bridge, Look
from leanops.usecases.bridge.inflight import Tell
from leanops.usecases.workers import BRIDGE, Part, Worker

SAME_SIGNAL_S = 1.0


def serve(side: FarSide, subscriptions: dict[str, str], host: str, port: int, look: Look | None = None) -> None:
    """Run a bridge until SIGTERM or SIGINT."""
    asyncio.run(_serve(side, subscriptions, host, port, look))


def teller() -> Tell:
    """Lines on standard error: a time, what happened, facts by name."""
    logger = structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "event"], drop_missing=True),
        ],
    )
    return lambda event, **facts: logger.info(event, **{name: fact for name, fact in facts.items() if fact is not None})


async def _serve(side: FarSide, subscriptions: dict[str, str], host: str, port: int, look: Look | None) -> None:
    tell, source = teller(), pubsub()
    bridge = bridge_of(side, source, subscriptions, tell, look)
    server = await Health(bridge).listen(host, port)
    stopping = asyncio.Event()
    _stop_on_signals(stopping, tell)
    worker = Worker(Part(BRIDGE, lambda: 0, pause_s=0.0), side.state, side.clock, side.owner, threading.Event())
    beating = asyncio.create_task(_beat(worker, bridge, tell))
    listening = server.sockets[0].getsockname()
    tell("bridge runs", subscriptions=len(subscriptions), listen=f"{listening[0]}:{listening[1]}")
    try:
        await bridge.run(stopping)
    finally:
        beating.cancel()
        server.close()
        await source.close()
        await asyncio.to_thread(worker.forget)


async def _beat(worker: Worker, bridge: Bridge, tell: Tell) -> None:
    """Show up in `leanops status`; an outage of the state store is logged once, and events continue to flow."""
    is_reported = False
    while True:
        worker.done, worker.failed, worker.error = bridge.counts.forwarded, bridge.counts.returned, bridge.problem
        try:
            await asyncio.to_thread(worker.beat)
            is_reported = False
        except Exception as failure:
            if not is_reported:
                tell("the bridge cannot show that it runs", reason=reason_of(failure))
            is_reported = True
        await asyncio.sleep(worker.beat_s)


def _stop_on_signals(stopping: asyncio.Event, tell: Tell) -> None:
    """The first signal drains; a later one ends the process at once, which loses nothing."""
    loop = asyncio.get_running_loop()
    first = float("inf")

    def stop(number: signal.Signals) -> None:
        nonlocal first
        # A terminal and whoever started us may both pass on the same Ctrl-C.
        if loop.time() > first + SAME_SIGNAL_S:
            os._exit(128 + number)
        first = min(first, loop.time())
        tell("stopping", signal=number.name)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
