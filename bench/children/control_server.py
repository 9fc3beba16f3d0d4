"""Servers for the comparison of REST calls: a bare FastAPI echo, or the server of `plugbay serve` with an echo tool.

    python control_server.py echo|echo-h11|recorded|gateway FOLDER
    python control_server.py first|another FOLDER DATABASE_URL PORT        one of several gateways on one port
    python control_server.py cluster FOLDER SETTINGS                       a gateway whose plugins run on nodes

Prints one JSON object when it is ready: its port, and the request that echoes the text. Both run on uvloop if it is
installed.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from msgspec.structs import replace

TEXT = "x" * 100


def main() -> None:
    """Serve until the end."""
    kind, folder = sys.argv[1], Path(sys.argv[2])
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        if kind in ("first", "another"):
            runner.run(_gateway(folder, url=sys.argv[3], port=int(sys.argv[4]), first=kind == "first"))
        elif kind == "gateway":
            runner.run(_gateway(folder))
        elif kind == "cluster":
            runner.run(_gateway(folder, cluster=json.loads(sys.argv[3])))
        elif kind == "recorded":
            runner.run(_recorded(folder))
        else:
            runner.run(_echo("h11" if kind == "echo-h11" else "httptools"))


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _echo(http: Any) -> None:
    from fastapi import FastAPI

    app = FastAPI()

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        return {"text": body["input"]["text"]}

    await _serve(app, http)


async def _serve(app: Any, http: Any) -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _tell(listening.getsockname()[1], "/echo", "", {})
    config = uvicorn.Config(app, http=http, log_level="error", access_log=False, timeout_keep_alive=600)
    await uvicorn.Server(config).serve(sockets=[listening])


async def _recorded(folder: Path) -> None:
    """The echo, asked of another process, with a row on disk before and after; nothing is checked."""
    from fastapi import FastAPI

    from bench.bare_loop import BareHost
    from bench.harness import CHILDREN

    command = [sys.executable, str(CHILDREN / "fast_child.py")]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    writer, reader = child.stdin.fileno(), child.stdout.fileno()
    os.write(writer, b'{"jsonrpc":"2.0","method":"hello","params":{}}\n')
    assert b"hello" in os.read(reader, 65_536)
    host, rows, numbers = BareHost(reader, writer), Rows(folder), iter(range(10**9))
    app = FastAPI()

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        number = next(numbers)
        await rows.write("INSERT INTO calls (number, status) VALUES (?, 'begun')", (number,))
        answer = await host.call(body["input"])
        await rows.write("UPDATE calls SET status = 'succeeded' WHERE number = ?", (number,))
        return answer

    try:
        await _serve(app, "httptools")
    finally:
        child.kill()


class Rows:
    """A table of SQLite, written by one thread; what waits is committed together."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[tuple[str, tuple[Any, ...], asyncio.Future[None]]] = SimpleQueue()
        self._database = sqlite3.connect(folder / "rows.db", isolation_level=None, check_same_thread=False)
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE calls (number INTEGER PRIMARY KEY, status TEXT NOT NULL)",
        ):
            self._database.execute(statement)
        threading.Thread(target=self._work, daemon=True).start()

    async def write(self, statement: str, values: tuple[Any, ...]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.put((statement, values, done))
        await done

    def _work(self) -> None:
        while True:
            group = [self._waiting.get()]
            while not self._waiting.empty():
                group.append(self._waiting.get())
            self._database.execute("BEGIN")
            for statement, values, _ in group:
                self._database.execute(statement, values)
            self._database.execute("COMMIT")
            self._loop.call_soon_threadsafe(_settle, [done for _, _, done in group])


def _settle(group: list[asyncio.Future[None]]) -> None:
    for done in group:
        done.set_result(None)


async def _gateway(
    folder: Path,
    *,
    url: str | None = None,
    port: int = 0,
    first: bool = True,
    cluster: dict[str, Any] | None = None,
) -> None:
    from plugbay.host.config.sections import ClusterConfig
    from plugbay.host.host import Host
    from plugbay.server import logs
    from plugbay.server.domain.settings import GatewaySettings
    from plugbay.server.server import ServeSettings, Started, serve

    logs.configure(as_json=True)
    settings = GatewaySettings(folder, requests_per_second=1e6, request_burst=1_000_000)
    if cluster is not None:
        settings = replace(settings, cluster=ClusterConfig(**cluster))
    preparing: list[asyncio.Task[None]] = []

    def started(server: Started) -> None:
        if not first:
            return _tell(port, "", "", {})
        preparing.append(asyncio.get_running_loop().create_task(_prepared(server, folder)))

    whole = ServeSettings(settings, port=port)
    if url is not None:
        whole = replace(whole, database_url=url, lease_seconds=30.0, worker=True)
    await serve(whole, lambda calls: Host([], call_log=calls), started)


async def _prepared(server: Any, folder: Path) -> None:
    """A tool that is bound, and a word about it."""
    from plugbay.server.domain.credentials import operator_token
    from tests.support.gateways import make_org
    from tests.support.packaged import Publisher, bind
    from tests.support.vai import export

    await make_org(server.gateway)
    exports = [export("t", execution_class="worker", max_concurrency=64)]
    package = await Publisher(folder, folder).bring(server.gateway, exports=exports)  # its tool echoes
    binding = await bind(server.gateway, package)
    nodes = server.gateway.nodes
    while nodes is not None and not nodes.cluster.nodes():  # noqa: ASYNC110 - a node has no event for its first beat
        await asyncio.sleep(0.01)
    port = int(server.url.rpartition(":")[2])
    _tell(port, "/v1/plugin-invocations", operator_token(folder)[0], {"binding_id": binding.id})


def _tell(port: int, path: str, token: str, more: dict[str, Any]) -> None:
    body = json.dumps({**more, "input": {"text": TEXT}})
    print(json.dumps({"port": port, "path": path, "token": token, "body": body}), flush=True)


if __name__ == "__main__":
    main()
