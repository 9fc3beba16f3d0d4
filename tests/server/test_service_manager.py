"""Notifications reach a service manager, and readiness is what they say it is."""

from __future__ import annotations

import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from plugbay.server.service_manager import READY, STOPPING, VARIABLE, notify
from tests.server.test_server import served
from tests.support.nodes import cell
from tests.support.patience import PATIENCE
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE)
        yield listening


def test_a_state_is_one_datagram(manager: socket.socket) -> None:
    assert notify(READY, {VARIABLE: manager.getsockname()})
    assert notify(STOPPING, {VARIABLE: manager.getsockname()})
    assert [manager.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


def test_a_name_that_begins_with_an_at_sign_is_an_abstract_socket() -> None:
    name = f"plugbay-test-{secrets.token_hex(8)}"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(PATIENCE)
        assert notify(READY, {VARIABLE: f"@{name}"})
        assert listening.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative/path", "vsock:2:1234", "/no/such/socket"])
def test_without_a_service_manager_nothing_happens(address: str) -> None:
    assert not notify(READY, {VARIABLE: address})
    assert not notify(READY, {})


@exhaustive
@requirement("host:service-manager")
def test_a_server_says_when_it_accepts_requests_and_when_it_stops(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(tmp_path / "plugins", "p")
    monkeypatch.setenv(VARIABLE, manager.getsockname())
    with served(tmp_path, "plugins") as server, server.client() as client:
        assert manager.recv(100) == b"READY=1"
        assert client.get("/readyz").json()["ready"] is True
        assert server.end() == 0
        assert manager.recv(100) == b"STOPPING=1"


@exhaustive
@requirement("host:service-manager")
def test_a_node_is_ready_once_it_has_joined(manager: socket.socket, tmp_path: Path) -> None:
    with cell(tmp_path) as made, made.process("n1", **{VARIABLE: manager.getsockname()}) as node:
        assert manager.recv(100) == b"READY=1"
        node.send(signal.SIGTERM)
        assert manager.recv(100) == b"STOPPING=1"
        assert node.wait() == 0
