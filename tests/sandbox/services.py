"""What there is to attack on the machine: services on every kind of socket, and a proxy that believes everything."""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = Callable[[bytes], bytes]


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, family: int, address: Any, handler: Callable[[socket.socket], None]) -> None:
        self.address_family = family
        self._handle = handler
        super().__init__(address, socketserver.BaseRequestHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            self._handle(request)
        except OSError:
            return


def serve(address: Any, handler: Callable[[socket.socket], None], family: int = socket.AF_INET) -> int:
    """The port of a service that runs as long as the driver does."""
    found = _Server(family, address, handler).socket.getsockname()
    return int(found[1]) if isinstance(found, tuple) else 0


def answer(text: str) -> Callable[[socket.socket], None]:
    """Speaks HTTP, and always says the same; greets who speaks TLS, and sends who asks for /away elsewhere."""

    def handle(connection: socket.socket) -> None:
        asked = connection.recv(65536)
        if asked[:1] == b"\x16":
            connection.sendall(b"heard")
        elif b"/away" in asked:
            connection.sendall(f"HTTP/1.1 302 Found\r\nLocation: {text}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())

    return handle


def answer_datagrams() -> int:
    """The port of a service without connections."""
    ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ours.bind(("127.0.0.1", 0))

    def run() -> None:
        while True:
            _, who = ours.recvfrom(100)
            ours.sendto(b"!", who)

    threading.Thread(target=run, daemon=True).start()
    return int(ours.getsockname()[1])


def listen_at(path: Path) -> socket.socket:
    """A named socket for datagrams, open to all; keep it."""
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.bind(str(path))
    path.chmod(0o777)
    return ours


def credulous_proxy(good: tuple[str, int], inner: int) -> int:
    """The port of a proxy without a single check, for the controls: what it is asked for, it connects to.

    It reads names as C does, takes the last word for the host, follows the Host header and keeps connections. Only the
    granted host is where it is; every other name and address leads to the inner service, as each would somewhere.
    """

    def dial(authority: bytes) -> socket.socket:
        server = socket.socket()
        server.connect(good if authority == f"good.test:{good[1]}".encode() else ("127.0.0.1", inner))
        return server

    def handle(client: socket.socket) -> None:
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                piece = client.recv(65536)
                if not piece:
                    return
                data += piece
            head, _, data = data.partition(b"\r\n\r\n")
            tunnel, authority, path = _believed(head)
            with dial(authority) as server:
                if tunnel:
                    client.sendall(b"HTTP/1.1 200 Fine\r\n\r\n")
                    server.sendall(data or client.recv(65536))
                    client.sendall(server.recv(65536))
                    return
                server.sendall(b"GET " + path + b" HTTP/1.1\r\n\r\n")
                client.sendall(server.recv(65536))
            data = data.removeprefix(b"0\r\n\r\n")

    return serve(("127.0.0.1", 0), handle)


def _believed(head: bytes) -> tuple[bool, bytes, bytes]:
    """Whether a tunnel is wanted, the host and port, and the path."""
    lines = [line for line in re.split(rb"[\r\n]+", head) if line]
    method, target = [line.split(b" ")[:2] for line in lines if line.startswith((b"GET", b"POST", b"CONNECT"))][-1]
    rest = target.removeprefix(b"http://").split(b"\0")[0].split(b"#")[0].split(b"\\")[0]
    authority, _, path = rest.partition(b"/")
    hosts = [line[5:].strip() for line in lines if line.lower().startswith(b"host:")]
    return method == b"CONNECT", hosts[-1] if hosts else authority.split(b"@")[-1], b"/" + path
