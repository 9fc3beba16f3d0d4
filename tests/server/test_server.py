"""A server in a process of its own: started, asked, stopped, killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import httpx2
import pytest
from fastapi import FastAPI

from plugbay.mcp_server.http_server import BoundedHttp
from plugbay.server.server import _uvicorn_config, bind_socket
from plugbay.store.database import CONNECTIONS
from tests.cli.conftest import is_alive
from tests.support.commands import Command, plugbay
from tests.support.databases import KINDS, postgresql, sqlite_database
from tests.support.patience import PATIENCE, until_blocking
from tests.support.plugins import write_plugin, write_python_plugin
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive


class Served:
    """A server, its first line, and what it logged since."""

    def __init__(self, process: Command, facts: dict[str, Any], log: TextIO) -> None:
        self.process = process
        self.facts = facts
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(log,), daemon=True)
        self._reader.start()

    def _read(self, log: TextIO) -> None:
        with log:
            self.log.extend(log)

    def client(self) -> httpx2.Client:
        token = Path(self.facts["token_file"]).read_text().strip()
        return httpx2.Client(base_url=self.facts["url"], headers={"authorization": f"Bearer {token}"}, timeout=PATIENCE)

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.send(number)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.log]


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Served]:
    """`plugbay serve` on a free port, with everything it keeps below `folder`."""
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "DATA", "CONFIG", "CACHE")}
    words = ["serve", "--listen", "127.0.0.1:0", "--json", *arguments]
    (out, say), (err, log) = os.pipe(), os.pipe()
    logged = open(err)  # noqa: SIM115 - whoever reads it to the end closes it
    with open(os.devnull) as nothing, open(out) as said:
        process = Command(words, [nothing.fileno(), say, log], folder, {**os.environ, **homes})
        for stream in (say, log):
            os.close(stream)
        try:
            line = said.readline()
            assert line, logged.read()
            yield Served(process, json.loads(line), logged)
        finally:
            process.kill()
            process.wait(PATIENCE)


PATIENT = """\
[plugins.p.timeouts]
launch = 20
handshake = 20
call = 20
teardown = 20
"""
"""On a busy machine, a plugin may take longer to leave than the 500 ms after which its answer does not count."""


def test_a_server_starts_on_a_bare_machine_and_stops_in_good_order(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    (tmp_path / "plugbay.toml").write_text(PATIENT)
    with served(tmp_path, "plugins") as server, server.client() as client:
        assert server.facts["token"] == Path(server.facts["token_file"]).read_text().strip()
        assert client.get("/readyz").json()["ready"] is True
        called = client.post("/api/v1/calls", json={"export": "p/t", "input": {"a": 1}}).json()
        assert called["output"] == {"a": 1}
        assert server.end() == 0
        assert server.events()[-1] == "stopping"
        assert server.facts["token"] not in "".join(server.log)
    with served(tmp_path, "plugins") as again, again.client() as client:
        assert again.facts["token"] is None, "it is told once"
        (kept,) = client.get("/api/v1/calls").json()["items"]
        assert kept["call_id"] == called["call_id"], "records survive a restart"
        assert again.end(signal.SIGINT) == 0


CLIENTS = 50


def descriptors(pid: int) -> Counter[str]:
    """The open descriptors of a process by kind: files by name, others as `socket`, `pipe`, `anon_inode`."""
    kinds: Counter[str] = Counter()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            kinds[Path(os.readlink(f"/proc/{pid}/fd/{number}").partition(":")[0]).name] += 1
    return kinds


def others(pid: int) -> Counter[str]:
    """All but those of the database."""
    return Counter({kind: count for kind, count in descriptors(pid).items() if not kind.startswith("plugbay.db")})


@exhaustive
@requirement("host:descriptors-idle")
def test_after_each_burst_of_clients_the_server_keeps_no_descriptor_but_a_bounded_pool_of_its_database(
    tmp_path: Path,
) -> None:
    write_plugin(tmp_path / "plugins", "p")
    (tmp_path / "plugbay.toml").write_text(PATIENT)

    def work(client: httpx2.Client, number: int) -> int:
        if number % 10 == 0:
            return client.post("/api/v1/calls", json={"export": "p/t", "input": {}}).status_code
        return client.get("/v1/orgs").status_code

    with served(tmp_path, "plugins") as server, ThreadPoolExecutor(CLIENTS) as threads:
        alone = others(server.process.pid)["socket"]
        with server.client() as client:
            assert client.post("/api/v1/calls", json={"export": "p/t", "input": {}}).status_code == 200
        until_blocking(lambda: others(server.process.pid)["socket"] == alone)
        idle = others(server.process.pid)
        for _ in range(2):
            with ExitStack() as stack:
                clients = [stack.enter_context(server.client()) for _ in range(CLIENTS)]
                statuses = set(threads.map(work, clients, range(CLIENTS)))
                assert 200 in statuses and statuses <= {200, 429}
                assert others(server.process.pid)["socket"] >= idle["socket"] + CLIENTS, "each client has a connection"
            until_blocking(lambda: others(server.process.pid) <= idle)
            kept = descriptors(server.process.pid)
            # SQLite keeps the descriptor of a closed connection for the next one while others hold a lock.
            assert kept["plugbay.db"] + kept["plugbay.db-wal"] <= 2 * 2 * CONNECTIONS + 2
            assert kept["plugbay.db-shm"] == 1
        assert server.end() == 0


def test_a_second_server_on_the_same_data_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with served(tmp_path) as first, first.client() as client:
        homes = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_STATE_HOME": str(tmp_path / "state")}
        second = plugbay("serve", "--listen", "127.0.0.1:0", env={**os.environ, **homes}, cwd=tmp_path)
        assert second.returncode == 1 and f"process {first.process.pid}" in second.stderr.decode()
        assert client.get("/livez").status_code == 200
        assert first.end() == 0


def test_an_endless_answer_ends_when_the_server_stops(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.client() as client, client.stream("GET", "/api/v1/events") as events:
        assert events.status_code == 200
        server.send(signal.SIGTERM)
        events.read()
        assert server.process.wait(PATIENCE) == 0


SLOW = """\
import sys, time
sys.stdin.readline()
print('{"type":"handshake","manifest":{"plugin_id":"slow","plugin_version":"1",'
      '"protocol_version":"rterm.plugin.v1","exposed_tools":["t"],"capabilities":[]}}', flush=True)
sys.stdin.readline()
print("begun", file=sys.stderr, flush=True)
time.sleep(600)
"""


def test_a_second_signal_exits_at_once(tmp_path: Path) -> None:
    write_python_plugin(tmp_path / "plugins", "slow", SLOW, ["t"])
    with served(tmp_path, "plugins") as server, server.client() as client:
        asked = threading.Thread(target=_give_up_on, args=(client,), daemon=True)
        asked.start()
        with (
            server.client() as other,
            other.stream("GET", "/api/v1/plugins/slow/logs", params={"follow": "true"}) as lines,
        ):
            told = lines.iter_lines()
            assert any("begun" in line for line in told)
            server.send(signal.SIGTERM)
            assert not any("begun" in line for line in told), "the first signal has ended what goes on"
        assert is_alive(server.process.pid), "it waits for the call"
        assert server.end(signal.SIGTERM) == 128 + signal.SIGTERM
        asked.join(PATIENCE)


def _give_up_on(client: httpx2.Client) -> None:
    with pytest.raises(httpx2.HTTPError):
        client.post("/api/v1/calls", json={"export": "slow/t", "timeout_ms": 600_000})


def test_a_hang_up_has_the_settings_read_again(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins") as server, server.client() as client:
        (tmp_path / "plugbay.toml").write_text("[plugins.p]\nenabled = false\n")
        server.send(signal.SIGHUP)
        while client.get("/api/v1/plugins/p").json()["refused"] is None:
            assert is_alive(server.process.pid)
        assert server.end() == 0
        assert "plugbay.toml was read again" in server.events()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        port = server.facts["url"].rpartition(":")[2]
        other = plugbay("serve", "--listen", f"127.0.0.1:{port}", "--data", "other", cwd=tmp_path)
        assert other.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in other.stderr.decode()


def test_no_answer_waits_for_an_acknowledgement() -> None:
    with bind_socket("127.0.0.1", 0) as listening:
        listening.listen()
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("kind", KINDS)
@requirement("vai:control-one-gateway")
def test_a_server_with_other_data_and_the_same_database_is_refused(tmp_path: Path, kind: str) -> None:
    url = sqlite_database(tmp_path) if kind == "sqlite" else postgresql().url(postgresql().create())
    (tmp_path / "other").mkdir()
    with served(tmp_path, "--database", url) as first, first.client() as client:
        homes = {f"XDG_{name}_HOME": str(tmp_path / "other" / name.lower()) for name in ("DATA", "STATE", "CONFIG")}
        words = ("serve", "--listen", "127.0.0.1:0", "--database", url)
        second = plugbay(*words, env={**os.environ, **homes}, cwd=tmp_path / "other")
        assert second.returncode == 1 and b"in use by another plugbay server" in second.stderr
        assert str(first.process.pid) in second.stderr.decode()
        assert client.get("/readyz").status_code == 200
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
    with served(tmp_path, "--database", url) as again:
        assert again.end() == 0, "whoever is killed keeps nothing"


def test_requests_are_read_by_the_parser_that_bounds_their_head() -> None:
    assert _uvicorn_config(FastAPI()).http is BoundedHttp


def test_a_client_behind_a_proxy_closes_an_idle_connection_first() -> None:
    assert _uvicorn_config(FastAPI()).timeout_keep_alive > 60
