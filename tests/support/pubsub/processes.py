"""A bridge in a process of its own, on the emulator."""

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.engines import free_port
from tests.support.pubsub.cloud import Cloud
from tests.support.pubsub.emulator import PROJECT

LEANOPS = "import sys; from leanops.entrypoints.cli.app import main; main(sys.argv[1:])"


@dataclass(frozen=True)
class Running:
    """A bridge in a process of its own."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def get(self, path: str) -> str:
        """What an endpoint answers; nothing while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            refused.close()
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
        return ""

    def count(self, name: str) -> int:
        """A counter of the metrics page."""
        found = re.search(rf"^leanops_bridge_{name}_total (\S+)$", self.get("/metrics"), flags=re.MULTILINE)
        return int(float(found[1])) if found else 0

    def end(self, number: int) -> int:
        """Send a signal and wait; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def bridge(cloud: Cloud, folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> Iterator[Running]:
    """A bridge of a home, unless its environment says otherwise; it writes its log there."""
    port, log = free_port(), folder / f"bridge-{time.monotonic_ns()}.log"
    told = {"PUBSUB_EMULATOR_HOST": cloud.address, "LEANOPS_BRIDGE_LEASE_S": "10"}
    told |= {"LEANOPS_HOME": str(folder)} if environment is None else environment
    command = [sys.executable, "-c", LEANOPS, "bridge", "--project", PROJECT, "--port", str(port), *words]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | told, cwd=folder)
    try:
        yield Running(process, port, log)
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
