"""`free_port`."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.ports import COUNT, FIRST, free_port


def test_nobody_gets_a_port_twice_nor_one_of_an_outgoing_connection() -> None:
    with ThreadPoolExecutor(8) as threads:
        ports = list(threads.map(lambda _: free_port(), range(200)))
    assert len(set(ports)) == 200
    outgoing = range(*map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()))
    assert not set(ports) & set(outgoing)


def test_a_port_with_a_server_is_not_free() -> None:
    after = FIRST + (free_port() - FIRST + 1) % COUNT
    with socket.socket() as server:
        server.bind(("127.0.0.1", after))
        assert free_port() != after
