"""A web server on this machine that receives events."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CERTIFICATE = Path(__file__).parent / "localhost.pem"
"""A key and a certificate for localhost, signed by itself. For tests only."""
HANG = -1
"""An answer that does not come in time."""


class Received:
    """What a server has received, and what it answers: the last answer again and again."""

    def __init__(self, answers: Sequence[int]) -> None:
        self._answers = list(answers)
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.url = ""
        self.over = threading.Event()

    def answer(self) -> int:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def answer_from_now_on(self, status: int) -> None:
        self._answers = [status]

    @property
    def messages(self) -> list[Any]:
        return [json.loads(body) for _, body in self.requests]

    @property
    def ids(self) -> list[str]:
        return [headers["Tidelog-Delivery"] for headers, _ in self.requests]


@contextmanager
def receiver(*answers: int, tls: bool = False) -> Iterator[Received]:
    """Serve requests for a block."""
    received = Received(answers or (200,))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests.append((dict(self.headers), body))
            status = received.answer()
            if status == HANG:
                received.over.wait(20)
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            pass  # a client that refuses the certificate

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "https" if tls else "http"
    received.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/hook?token=sesame"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield received
    finally:
        received.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def wait_until(done: Any, seconds: float = 20.0) -> None:
    """Wait until a function returns true."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.005)
