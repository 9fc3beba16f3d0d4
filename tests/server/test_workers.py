"""`plugbay serve --gateways N`: several processes behind one port."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from plugbay.model.errors import PlugbayError
from plugbay.server.workers import reserved_port
from tests.cli.conftest import Run as RunCommand
from tests.cli.conftest import cwd, is_alive, run
from tests.server.test_server import served
from tests.support.clusters import Cluster, made
from tests.support.databases import database
from tests.support.patience import until_blocking
from tests.support.tiers import exhaustive

__all__ = ["cwd", "run"]


def test_a_reserved_port_is_for_processes_that_share_it() -> None:
    with reserved_port("127.0.0.1", 0) as port:
        with socket.socket() as other, pytest.raises(OSError):
            other.bind(("127.0.0.1", port))
        with reserved_port("127.0.0.1", port) as again:
            assert again == port
    with (
        socket.create_server(("127.0.0.1", port), reuse_port=True),
        pytest.raises(PlugbayError),
        reserved_port("127.0.0.1", port),
    ):
        raise AssertionError("not reached")


def test_sqlite_and_folders_are_refused_with_the_reason(run: RunCommand, tmp_path: Path) -> None:
    done = run("serve", "--gateways", "2")
    assert done.code == 2 and "needs PostgreSQL: a SQLite database belongs to one process" in done.err
    (tmp_path / "plugins").mkdir()
    words = ("--gateways", "2", "--database", "postgresql://x@/y")
    done = run("serve", tmp_path / "plugins", *words)
    assert done.code == 2 and "would run once in each gateway" in done.err


@exhaustive
def test_two_gateways_on_one_port_share_everything_and_one_that_dies_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database("postgresql", tmp_path) as url:
        group = Cluster(tmp_path, url)
        for name, value in group.environ.items():
            monkeypatch.setenv(name, value)
        words = ("--gateways", "2", "--no-sandbox", "--database", url, "--data", str(tmp_path / "data"))
        with served(tmp_path, *words) as server, server.client() as client:
            first, second = server.facts["gateways"]
            (binding,) = group.bring(client, "def tool(body, m): succeed(m, output({'n': 1}))")
            assert [invoke(server, binding) for _ in range(20)] == [{"n": 1}] * 20
            os.kill(first, signal.SIGKILL)
            until_blocking(lambda: not is_alive(first))
            until_blocking(lambda: any("started again" in line for line in server.log))
            assert invoke(server, binding) == {"n": 1}
            assert server.end(signal.SIGKILL) == -signal.SIGKILL
            until_blocking(lambda: not is_alive(second))


def invoke(server: Any, binding: str) -> Any:
    """Over a connection of its own, which may reach any gateway."""
    with server.client() as client:
        body = {"binding_id": binding, "input": {}}
        return made(client.post("/v1/plugin-invocations", json=body), 200)["result"]["structured_output"]
