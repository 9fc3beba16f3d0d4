"""Servers for the comparison of REST calls: a bare FastAPI echo, or a whole gateway with an echo tool.

    python control_server.py echo|gateway FOLDER

Prints one JSON object once it serves: its port, and the request that has the text echoed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

TEXT = "x" * 100


def main() -> None:
    """Serve until the end."""
    kind, folder = sys.argv[1], Path(sys.argv[2])
    asyncio.run(_gateway(folder) if kind == "gateway" else _echo())


async def _echo() -> None:
    from fastapi import FastAPI

    app = FastAPI()

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        return {"text": body["input"]["text"]}

    await _serve(app, "/echo", "", {})


async def _gateway(folder: Path) -> None:
    from plugbay.control.app import create_app
    from plugbay.gateway.gateway import Gateway
    from plugbay.gateway.keys import operator_token
    from plugbay.gateway.settings import GatewaySettings
    from plugbay.host.host import Host
    from plugbay.store.database import Database
    from tests.support.gateways import make_org
    from tests.support.packaged import Publisher, bind
    from tests.support.vai import export

    database = await Database.open(f"sqlite+aiosqlite:///{folder}/bench.db")
    settings = GatewaySettings(folder, requests_per_second=1e6, request_burst=1_000_000)
    async with Host([]) as host:
        gateway = Gateway(database, host, settings)
        await gateway.start()
        await make_org(gateway)
        exports = [export("t", execution_class="worker", max_concurrency=64)]
        package = await Publisher(folder, folder).bring(gateway, exports=exports)  # its tool echoes
        binding = await bind(gateway, package)
        token = operator_token(folder)[0]
        await _serve(create_app(gateway), "/v1/plugin-invocations", token, {"binding_id": binding.id})
        await gateway.stop()
    await database.close()


async def _serve(app: Any, path: str, token: str, more: dict[str, Any]) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = json.dumps({**more, "input": {"text": TEXT}})
    print(json.dumps({"port": listening.getsockname()[1], "path": path, "token": token, "body": body}), flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, timeout_keep_alive=600)).serve(
        sockets=[listening]
    )


if __name__ == "__main__":
    main()
