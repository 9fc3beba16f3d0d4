"""Each toxic does its harm, and a proxy without one does none."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.toxic_proxy import DELAY, SLICE, ToxicProxy

SHORT = 0.3
"""Seconds in which an answer would be there."""


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1000):
            self.request.sendall(data)


@pytest.fixture
def proxy() -> Iterator[ToxicProxy]:
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: Any) -> None:
            """A connection that the proxy has reset."""

    with Server(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with ToxicProxy(("127.0.0.1", server.server_address[1])) as proxy:
            yield proxy
        server.shutdown()


def connect(proxy: ToxicProxy) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    client.sendall(b"hello")
    assert client.recv(100) == b"hello", "the connection is sound"
    return client


def test_without_a_toxic_bytes_pass(proxy: ToxicProxy) -> None:
    with connect(proxy):
        assert proxy.accepted == 1


def test_slow_toxics_delay_and_slice(proxy: ToxicProxy) -> None:
    with connect(proxy) as client:
        proxy.inject("latency")
        began = time.monotonic()
        client.sendall(b"late")
        assert client.recv(100) == b"late" and time.monotonic() - began >= 2 * DELAY
        proxy.inject("slicer")
        client.sendall(b"x" * 200 * SLICE)
        sizes: list[int] = []
        while sum(sizes) < 200 * SLICE:
            sizes.append(len(client.recv(10_000)))
        assert len(sizes) > 1


@pytest.mark.parametrize("toxic", ["drop", "half_open"])
def test_silent_toxics_leave_the_connection_open(proxy: ToxicProxy, toxic: str) -> None:
    with connect(proxy) as client:
        proxy.inject(toxic)
        client.sendall(b"nobody reads this")
        client.settimeout(SHORT)
        with pytest.raises(TimeoutError):
            client.recv(100)
        proxy.heal()
        client.settimeout(5)
        with pytest.raises(ConnectionResetError):
            client.recv(100)
    with connect(proxy):
        """New connections are sound."""


@pytest.mark.parametrize("toxic", ["stall", "mute", "deaf"])
def test_held_bytes_arrive_when_the_connection_is_healed(proxy: ToxicProxy, toxic: str) -> None:
    with connect(proxy) as client:
        proxy.inject(toxic)
        client.sendall(b"later")
        client.settimeout(SHORT)
        with pytest.raises(TimeoutError):
            client.recv(100)
        proxy.heal()
        client.settimeout(5)
        assert client.recv(100) == b"later"


@pytest.mark.parametrize("toxic", ["reset", "cut", "down"])
def test_hard_toxics_reset_the_connection(proxy: ToxicProxy, toxic: str) -> None:
    with connect(proxy) as client:
        proxy.inject(toxic)
        with pytest.raises(ConnectionError):
            for _ in range(50):
                client.sendall(b"x" * 100)
                assert client.recv(1000)
    proxy.heal()
    with connect(proxy):
        """New connections are sound."""
