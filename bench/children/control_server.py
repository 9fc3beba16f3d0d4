"""Servers for the comparison of REST calls: a bare FastAPI echo, or the server of `plugbay serve` with an echo tool.

    python control_server.py echo|echo-h11|gateway FOLDER
    python control_server.py first|another FOLDER DATABASE_URL PORT        one of several gateways on one port
    python control_server.py cluster FOLDER SETTINGS                       a gateway whose plugins run on nodes

Prints one JSON object when it is ready: its port, and the request that echoes the text. Both run on uvloop if it is
installed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

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
        else:
            runner.run(_echo("h11" if kind == "echo-h11" else "httptools"))


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _echo(http: Any) -> None:
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        return {"text": body["input"]["text"]}

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _tell(listening.getsockname()[1], "/echo", "", {})
    config = uvicorn.Config(app, http=http, log_level="error", access_log=False, timeout_keep_alive=600)
    await uvicorn.Server(config).serve(sockets=[listening])


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
