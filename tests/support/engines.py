"""Real engines for tests: started on a free port of loopback, stopped afterwards."""

import os
import pwd
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from leanops.adapters.iceberg.jars import cache_dir, java_home, retrieve
from leanops.domain.errors import LeanOpsError

Address = TypeVar("Address")

DYNAMODB_LOCAL = "software.amazon.dynamodb:DynamoDBLocal:3.1.0"
ELASTICMQ = "org.elasticmq:elasticmq-server_2.13:1.7.1"
START_S = 60
# Its data lives as long as the tests: nothing has to survive a power cut.
POSTGRESQL_OPTIONS = "-c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off -c max_connections=200"


class MissingEngineError(Exception):
    """An engine this machine does not have; the text says what to install."""


@contextmanager
def require(engine: Callable[[], AbstractContextManager[Address]]) -> Iterator[Address]:
    """The running engine; where it is missing the tests are skipped by name, or fail if CI is set."""
    with ExitStack() as stack:
        try:
            address = stack.enter_context(engine())
        except MissingEngineError as missing:
            if os.environ.get("CI"):
                pytest.fail(str(missing), pytrace=False)
            pytest.skip(str(missing))
        yield address


@contextmanager
def postgresql() -> Iterator[str]:
    """A PostgreSQL server of its own; gives the URL of an empty database."""
    programs = _postgresql_programs()
    password, port = secrets.token_hex(8), free_port()
    with tempfile.TemporaryDirectory(prefix="leanops-postgresql-", ignore_cleanup_errors=True) as folder:
        data, secret, log = Path(folder, "data"), Path(folder, "password"), Path(folder, "log")
        secret.write_text(password)
        user = _server_user(Path(folder), secret)
        login: list[str | Path] = ["--username=leanops", f"--pwfile={secret}", "--auth=scram-sha-256"]
        _call([programs / "initdb", "-D", data, "--encoding=UTF8", "--locale=C", "--no-sync", *login], user)
        control: list[str | Path] = [programs / "pg_ctl", "-D", data, "-w"]
        _call([*control, "-l", log, "-o", f"-p {port} {POSTGRESQL_OPTIONS}", "start"], user)
        try:
            yield f"postgresql://leanops:{password}@127.0.0.1:{port}/postgres"
        finally:
            _call([*control, "-m", "immediate", "stop"], user)


@contextmanager
def dynamodb() -> Iterator[str]:
    """DynamoDB Local in memory; gives its endpoint."""
    with _java("DynamoDB Local", DYNAMODB_LOCAL) as jvm:
        # Its main class would listen on every interface and report home; its handler does neither.
        local = jvm.software.amazon.dynamodb.services.local.server
        in_memory, shared = True, True
        requests = local.LocalDynamoDBRequestHandler(0, in_memory, None, shared, False)
        server = jvm.org.eclipse.jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(local.LocalDynamoDBServerHandler(requests, None))
        server.start()
        yield f"http://127.0.0.1:{server.getConnectors()[0].getLocalPort()}"


@contextmanager
def elasticmq() -> Iterator[str]:
    """ElasticMQ, which speaks SQS, in memory; gives its endpoint."""
    with _java("ElasticMQ", ELASTICMQ) as jvm:
        port = free_port()
        address = jvm.org.elasticmq.NodeAddress("http", "127.0.0.1", port, "")
        builder = jvm.org.elasticmq.rest.sqs.SQSRestServerBuilder
        server = builder.withInterface("127.0.0.1").withPort(port).withServerAddress(address).start()
        server.waitUntilStarted()
        yield f"http://127.0.0.1:{port}"


@contextmanager
def moto() -> Iterator[str]:
    """moto's server, which plays most of AWS, in a process of its own; gives its endpoint."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_until_it_listens(server, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def _wait_until_it_listens(server: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise MissingEngineError("moto's server does not start: install it with pip install 'leanops[dev]'")


@contextmanager
def losing_the_answer_to(word: bytes, port: int) -> Iterator[tuple[int, threading.Event]]:
    """A loopback port in front of a server that hangs up, once, when the first request with this word is answered."""
    lost = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client = listener.accept()[0]
                    threading.Thread(target=_relay, args=(client, port, word, lost), daemon=True).start()

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        yield listener.getsockname()[1], lost
        listener.shutdown(socket.SHUT_RDWR)
        server.join()


def _relay(client: socket.socket, port: int, word: bytes, lost: threading.Event) -> None:
    asked = False
    with client, socket.create_connection(("127.0.0.1", port)) as server, suppress(OSError):
        while True:
            for ready in select.select([client, server], [], [])[0]:
                data = ready.recv(1 << 20)
                asked = asked or (ready is client and word in data)
                if asked and ready is server and not lost.is_set():
                    lost.set()
                    return
                if not data:
                    return
                (server if ready is client else client).sendall(data)


@contextmanager
def _java(name: str, coordinate: str) -> Iterator[Any]:
    """A Java process with these jars and libraries; it ends with this block, or with this process."""
    try:
        java = java_home() / "bin" / "java"
        files = _with_dependencies(coordinate)
    except LeanOpsError as error:
        raise MissingEngineError(f"{name} is missing: {error}") from error
    classpath = os.pathsep.join(str(file) for file in files if file.suffix == ".jar")
    port, token, process = launch_gateway(
        classpath=classpath,
        javaopts=[f"-Djava.library.path={files[0].parent}", "-Xmx512m", "-XX:+UseSerialGC"],
        java_path=str(java),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=30)


def _with_dependencies(coordinate: str) -> list[Path]:
    """The jars and libraries of an engine, downloaded once."""
    home = cache_dir() / "engines"
    kept = home / coordinate.replace(":", "-")
    home.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=home, prefix=".fetching-") as scratch:
            found = retrieve(coordinate, Path(scratch))[0].parent
            # Of two workers at once either may win.
            with suppress(OSError):
                found.rename(kept)
    return sorted(kept.iterdir())


def _postgresql_programs() -> Path:
    """The folder of initdb and pg_ctl, which Debian keeps off the PATH."""
    on_path = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda found: int(found.parts[-3]))
    found = debian[-1] if debian else on_path and Path(on_path).resolve()
    if not found:
        raise MissingEngineError("PostgreSQL's server is missing: install it with apt-get install postgresql")
    return found.parent


def _server_user(*owned: Path) -> tuple[int, int] | None:
    """User and group to run as: PostgreSQL refuses root, so root lends it another one and gives that one the files."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: (entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
    user, group = known.get("postgres") or known["nobody"]
    for path in owned:
        os.chown(path, user, group)
    return user, group


def _call(command: Sequence[str | Path], user: tuple[int, int] | None) -> None:
    # Output goes to nowhere but an error: a pipe would stay open in the server and never end.
    with tempfile.TemporaryFile() as output:
        uid, gid = user or (None, None)
        code = subprocess.call(command, stdout=output, stderr=output, cwd="/", user=uid, group=gid)
        output.seek(0)
        assert code == 0, f"{command[0]} failed: {output.read().decode(errors='replace')}"


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
