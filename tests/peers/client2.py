"""The second generation of the official Python client, asked to do everything a test wants to see.

    python client2.py handshake|modern COMMAND [ARGUMENT…]      over stdio
    python client2.py handshake|modern URL TOKEN                over streamable HTTP

Prints one JSON object: what it saw.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
import httpx2
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

MODES = {"handshake": "legacy", "modern": "2026-07-28"}


async def main() -> None:
    era, target, *rest = sys.argv[1:]
    if target.startswith("http"):
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {rest[0]}"}, timeout=240)
        transport: Any = streamable_http_client(target, http_client=http)
    else:
        transport = stdio_client(StdioServerParameters(command=target, args=rest, env=dict(os.environ)))
    async with Client(transport, mode=MODES[era]) as client:
        seen = await look(client)
    print(json.dumps(seen))


async def look(client: Client) -> dict[str, Any]:
    seen: dict[str, Any] = {"protocol": client.protocol_version}
    tools = (await client.list_tools()).tools
    seen["tools"] = [json.loads(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools]

    def named(end: str) -> str:
        return str(next(tool.name for tool in tools if tool.name.endswith(end)))

    async def call(name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
        try:
            result = await client.call_tool(name, arguments, **more)
        except MCPError as error:
            return {"thrown": error.error.code}
        return dict(json.loads(result.model_dump_json(by_alias=True, exclude_none=True)))

    seen["call"] = await call(named("shout"), {"text": "tea"})
    seen["error"] = await call(named("fail"), {"text": "no milk"})
    seen["unknown"] = await call("nobody_has_this", {})
    seen["refused"] = await call(named("shout"), {"text": 7})
    seen["progress"] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen["progress"].append(message)

    seen["counted"] = await call(named("count"), {"to": 3}, progress_callback=progressed)
    with anyio.CancelScope() as scope:

        async def begun(*_: Any) -> None:
            scope.cancel()

        await call(named("wait"), {}, progress_callback=begun)
    seen["cancelled"] = "cancelled" if scope.cancelled_caught else "answered"
    while (told := await call(named("waited"), {}))["content"][0]["text"] == "0":
        pass
    seen["waited"] = told["content"][0]["text"]
    seen["large"] = len((await call(named("large"), {"size": 3_000_000}))["content"][0]["text"])
    return seen


anyio.run(main)
