"""The bridge against Google's own subscriber, on the emulator: `python -m bench.groups.bridge`."""

import argparse
import asyncio
import json
import os
import re
import resource
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from google.pubsub_v1.types import pubsub

from leanops.adapters.files.folder import Folder
from leanops.adapters.gcp.subscriber import PubSub
from leanops.adapters.sql.queue import SqlQueue
from leanops.adapters.sql.state import SqlState
from leanops.ports.clock import millis
from leanops.ports.state import SCHEMA_REGISTRY
from leanops.usecases.bridge.bridge import Bridge
from leanops.usecases.bridge.inflight import BridgeRules
from leanops.usecases.bridge.target import Target
from tests.support.engines import free_port
from tests.support.pubsub.emulator import PROJECT
from tests.support.pubsub.emulator import pubsub as emulator

SUBSCRIPTIONS, MESSAGES, BYTES = 50, 1_000, 600
# Long enough for two heartbeats of every stream.
IDLE_SUBSCRIPTIONS, IDLE_S = 700, 60
IDLE_MB, IDLE_PERCENT = 300, 2
Row = dict[str, Any]


def measure(rounds: int = 3) -> list[Row]:
    """Rows with a ratio and a bar each: rate, CPU and threads against the stock client, then what idling costs."""
    ours: list[Row] = []
    stock: list[Row] = []
    with emulator() as address:
        for _ in range(rounds):
            ours.append(_child("ours", address))
            stock.append(_child("stock", address))
        idle = _idle(address)
    bridge, client = _medians(ours), _medians(stock)
    return [
        _row("stock client's messages/s / the bridge's", client["rate"], bridge["rate"], 1.0),
        _row("CPU s of the bridge / stock client's", bridge["cpu_s"], client["cpu_s"], 0.5),
        _row("threads of the bridge / stock client's", bridge["threads"], client["threads"], 0.5),
        _row(f"MB with {IDLE_SUBSCRIPTIONS} idle subscriptions / {IDLE_MB}", idle["mb"], IDLE_MB, 1.0),
        _row(f"% of a core with {IDLE_SUBSCRIPTIONS} idle / {IDLE_PERCENT}", idle["percent"], IDLE_PERCENT, 1.0),
    ]


def _medians(rounds: list[Row]) -> Row:
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def _row(work: str, ours: float, theirs: float, bar: float) -> Row:
    """A row of `make bench`; figures that are not seconds have the same field names."""
    ratio = ours / theirs
    figures = {"ours_s": round(ours, 2), "theirs_s": round(theirs, 2), "ratio": round(ratio, 3)}
    return {"work": work, **figures, "bar": bar, "passed": ratio <= bar}


def _child(side: str, address: str) -> Row:
    """One side's figures for a fresh load, measured in a process of its own."""
    names = _load(address, SUBSCRIPTIONS, MESSAGES)
    command = [sys.executable, "-m", "bench.groups.bridge", "--side", side]
    done = subprocess.run(
        command, input=json.dumps(names).encode(), stdout=subprocess.PIPE, env=_environment(address), check=True
    )
    figures: Row = json.loads(done.stdout)
    print(f"bench: {side} {figures}", flush=True)
    return figures


def _environment(address: str) -> dict[str, str]:
    return os.environ | {"PUBSUB_EMULATOR_HOST": address}


def _load(address: str, count: int, messages: int) -> list[str]:
    """New subscriptions, each with N messages waiting."""
    run, body = secrets.token_hex(3), b"x" * BYTES
    names = []
    with grpc.insecure_channel(address) as channel:
        for number in range(count):
            topic, name = (
                f"projects/{PROJECT}/topics/t{run}-{number}",
                f"projects/{PROJECT}/subscriptions/s{run}-{number}",
            )
            _call(channel, "Publisher/CreateTopic", pubsub.Topic(name=topic), pubsub.Topic)
            wanted = pubsub.Subscription(name=name, topic=topic, ack_deadline_seconds=60)
            _call(channel, "Subscriber/CreateSubscription", wanted, pubsub.Subscription)
            if messages:
                sent = pubsub.PublishRequest(topic=topic, messages=[pubsub.PubsubMessage(data=body)] * messages)
                _call(channel, "Publisher/Publish", sent, pubsub.PublishResponse)
            names.append(name)
    return names


def _call(channel: Any, method: str, request: Any, answer: Any) -> None:
    call = channel.unary_unary(
        f"/google.pubsub.v1.{method}",
        request_serializer=type(request).serialize,
        response_deserializer=answer.deserialize,
    )
    call(request, timeout=30)


def _ours(names: list[str]) -> Row:
    total = len(names) * MESSAGES
    with tempfile.TemporaryDirectory(prefix="leanops-bench-") as folder:
        queue = SqlQueue(f"sqlite:///{folder}/queue.db", lambda: millis(datetime.now(UTC)))
        state = SqlState(f"sqlite:///{folder}/state.db")
        target = Target(
            queue, Folder(Path(folder, "files")), state, lambda: datetime.now(UTC), BridgeRules().events_per_message
        )
        topics = {name: name.rpartition("/")[2] for name in names}

        async def run() -> Row:
            source = PubSub(os.environ.get("PUBSUB_EMULATOR_HOST"))
            with _measured(total) as figures:
                bridge = Bridge(source, target, topics, BridgeRules(), lambda *_, **__: None)
                stopping = asyncio.Event()
                running = asyncio.create_task(bridge.run(stopping))
                while bridge.counts.acked < total:
                    await asyncio.sleep(0.01)
            stopping.set()
            await running
            await source.close()
            return figures

        figures = asyncio.run(run())
        queue.close()
        state.close()
        return figures


def _stock(names: list[str]) -> Row:
    # Here, so that the other side's process does not pay for it; the home below likewise.
    from google.cloud import pubsub_v1

    total, done, lock = len(names) * MESSAGES, threading.Event(), threading.Lock()
    got = 0

    def take(message: Any) -> None:
        nonlocal got
        message.ack()
        with lock:
            got += 1
            if got >= total:
                done.set()

    client = pubsub_v1.SubscriberClient()
    with _measured(total) as figures:
        pulls = [client.subscribe(name, callback=take) for name in names]
        if not done.wait(120):
            sys.exit(f"bench: the stock client had {got} of {total} messages after 120 s; nothing to compare with")
        figures["threads"] = _threads()
        for pull in pulls:
            pull.cancel()
    return figures


@contextmanager
def _measured(total: int) -> Iterator[Row]:
    """Rate, CPU seconds and threads of this process within the block."""
    figures: Row = {}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    yield figures
    after = resource.getrusage(resource.RUSAGE_SELF)
    figures["rate"] = round(total / (time.monotonic() - began))
    figures["cpu_s"] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
    figures["process_cpu_s"] = round(after.ru_utime + after.ru_stime, 2)
    figures.setdefault("threads", _threads())


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _idle(address: str) -> Row:
    """What the command itself costs when it holds many subscriptions on which nothing happens."""
    from leanops.runtimes.embedded import Embedded, create_home

    names = [name.rpartition("/")[2] for name in _load(address, IDLE_SUBSCRIPTIONS, 0)]
    with tempfile.TemporaryDirectory(prefix="leanops-bench-") as folder:
        home = create_home(Path(folder, "home"))
        runtime = Embedded(home)
        for name in names:
            row = {"topic_name": name, "status": "READY", "processing_enabled": False, "updated_at": 0}
            runtime.state.put(SCHEMA_REGISTRY, row, expected=None)
        runtime.close()
        port = free_port()
        options = ["--side", "command", "--project", PROJECT, "--port", str(port)]
        command = [sys.executable, "-m", "bench.groups.bridge", *options]
        bridge = subprocess.Popen(
            command, env=_environment(address) | {"LEANOPS_HOME": str(home)}, stderr=subprocess.DEVNULL
        )
        try:
            _wait_until_open(port, len(names))
            # The streams were opened a moment ago; what is measured is the rest.
            time.sleep(5)
            figures = _usage(bridge.pid)
        finally:
            bridge.send_signal(signal.SIGTERM)
            code = bridge.wait(60)
    print(f"bench: idle {figures}, exit code {code}", flush=True)
    return figures


def _wait_until_open(port: int, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                opened = re.findall(r"^leanops_bridge_open\{.*\} 1\.0$", answer.read().decode(), flags=re.MULTILINE)
        except OSError:
            opened = []
        if len(opened) == count:
            return
        time.sleep(0.5)
    sys.exit("bench: the bridge did not open its subscriptions")


def _usage(pid: int) -> Row:
    before = _cpu_s(pid)
    time.sleep(IDLE_S)
    percent = (_cpu_s(pid) - before) / IDLE_S * 100
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes, threads = (
        int(re.findall(rf"^{name}:\s+(\d+)", status, flags=re.MULTILINE)[0]) for name in ("VmRSS", "Threads")
    )
    return {"mb": round(kilobytes / 1024, 1), "percent": round(percent, 2), "threads": threads}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure, print, and exit 1 if a row misses its bar; `--side` is how it starts its own children."""
    options = argparse.ArgumentParser(prog="python -m bench.groups.bridge", description=main.__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--side", choices=["ours", "stock", "command"])
    chosen, rest = options.parse_known_args()
    if chosen.side == "command":
        from leanops.entrypoints.cli.app import run

        return run(["bridge", *rest])
    if chosen.side:
        names = json.load(sys.stdin)
        print(json.dumps(_ours(names) if chosen.side == "ours" else _stock(names)))
        return 0
    rows = measure(chosen.rounds)
    for row in rows:
        figures = f"{row['ours_s']:10.2f} {row['theirs_s']:10.2f} {row['ratio']:7.3f} {row['bar']:6.3f}"
        print(f"{row['work']:48} {figures}  {'pass' if row['passed'] else 'FAIL'}")
    return 0 if all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
