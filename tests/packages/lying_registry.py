"""A registry with scripted responses, for what no honest registry sends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

ENDLESS = 1 << 40
"""Announced length of an endless response."""


class Answer(NamedTuple):
    """The response for a path."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    endless: bool = False
    missing: int = 0
    """Bytes that are announced and never sent."""


class Seen(NamedTuple):
    """A received request."""

    method: str
    path: str
    authorization: str | None


@contextmanager
def serve(answers: dict[str, Answer]) -> Iterator[tuple[str, list[Seen]]]:
    """`127.0.0.1:port`, and the requests so far; unknown paths get 404."""
    seen: list[Seen] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(Seen(self.command, self.path, self.headers.get("authorization")))
            found = answers.get(self.path, Answer(b"{}", 404))
            self.send_response(found.status)
            for name, value in found.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(ENDLESS if found.endless else len(found.body) + found.missing))
            self.end_headers()
            try:
                while found.endless:
                    self.wfile.write(found.body)
                if self.command != "HEAD":
                    self.wfile.write(found.body)
                self.close_connection = found.missing > 0
            except OSError:  # the client closed the connection
                self.close_connection = True

        do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Silent: tests look at `seen`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()
