"""Google's Pub/Sub emulator for tests: the one that comes with the Google Cloud CLI, on a free port of loopback."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
from google.pubsub_v1.types.pubsub import ListTopicsRequest

from leanops.adapters.iceberg.jars import java_home
from tests.support.engines import MissingEngineError, free_port

PROJECT = "leanops-test"
START_S = 60


@contextmanager
def pubsub() -> Iterator[str]:
    """The emulator; gives its address, which is what PUBSUB_EMULATOR_HOST must say."""
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        raise MissingEngineError("the Pub/Sub emulator is missing: install the Google Cloud CLI with its emulator")
    address = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="leanops-pubsub-", ignore_cleanup_errors=True) as folder:
        command = [gcloud, "beta", "emulators", "pubsub", "start", f"--project={PROJECT}", f"--host-port={address}"]
        with Path(folder, "log").open("wb") as log:
            # The CLI is a Python that starts a Java: both are in one group, and end with it.
            server = subprocess.Popen(
                [*command, f"--data-dir={folder}", "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PATH": f"{java_home()}/bin{os.pathsep}{os.environ['PATH']}"},
                start_new_session=True,
            )
        try:
            _wait_until_it_answers(server, address, Path(folder, "log"))
            yield address
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_until_it_answers(server: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    """Ask until it answers; a channel's own state is watched by a thread that may outlive the channel."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        with grpc.insecure_channel(address) as channel, suppress(grpc.RpcError):
            call = channel.unary_unary("/google.pubsub.v1.Publisher/ListTopics", ListTopicsRequest.serialize, bytes)
            call(ListTopicsRequest(project=f"projects/{PROJECT}"), timeout=5)
            return
        time.sleep(0.1)
    raise MissingEngineError(f"the Pub/Sub emulator does not start: {log.read_text(errors='replace')[-500:]}")
