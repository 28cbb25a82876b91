"""A loopback server that stands in for an AWS service which no emulator plays well enough."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Answer: TypeAlias = tuple[int, dict[str, Any]]


def refusal(code: str, status: int = 400) -> Answer:
    """An error as AWS's JSON protocols write it."""
    return status, {"__type": code, "message": "said the stand-in"}


@contextmanager
def standin(answer: Callable[[str, dict[str, Any]], Answer]) -> Iterator[str]:
    """Serve `answer(operation, request)` as status and JSON; gives the endpoint."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            status, said = answer(self.headers["X-Amz-Target"].rpartition(".")[2], request)
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
