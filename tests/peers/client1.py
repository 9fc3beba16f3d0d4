"""The first generation of the official Python client, asked to do everything a test wants to see.

    python client1.py handshake COMMAND [ARGUMENT…]      over stdio
    python client1.py handshake URL TOKEN                over streamable HTTP

Prints one JSON object: what it saw. Runs in an environment of its own, because both generations have one name.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from typing import Any

import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError
from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification


async def main() -> None:
    target, *rest = sys.argv[2:]
    async with AsyncExitStack() as stack:
        if target.startswith("http"):
            client = httpx.AsyncClient(headers={"Authorization": f"Bearer {rest[0]}"}, timeout=240)
            await stack.enter_async_context(client)
            streams = await stack.enter_async_context(streamable_http_client(target, http_client=client))
        else:
            server = StdioServerParameters(command=target, args=rest, env=dict(os.environ))
            streams = await stack.enter_async_context(stdio_client(server))
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        seen = await look(session)
    print(json.dumps(seen))


async def look(session: ClientSession) -> dict[str, Any]:
    welcome = await session.initialize()
    seen: dict[str, Any] = {"protocol": welcome.protocolVersion, "server": welcome.serverInfo.model_dump()}
    tools = (await session.list_tools()).tools
    seen["tools"] = [tool.model_dump(exclude_none=True) for tool in tools]

    def named(end: str) -> str:
        return str(next(tool.name for tool in tools if tool.name.endswith(end)))

    async def call(end: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
        try:
            result = await session.call_tool(named(end), arguments, **more)
        except McpError as error:
            return {"thrown": error.error.code}
        return dict(result.model_dump(exclude_none=True))

    seen["call"] = await call("shout", {"text": "tea"})
    seen["error"] = await call("fail", {"text": "no milk"})
    try:
        seen["unknown"] = (await session.call_tool("nobody_has_this", {})).model_dump(exclude_none=True)
    except McpError as error:
        seen["unknown"] = {"thrown": error.error.code}
    seen["refused"] = await call("shout", {"text": 7})
    seen["progress"] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen["progress"].append(message)

    seen["counted"] = await call("count", {"to": 3}, progress_callback=progressed)
    seen["cancelled"] = await cancel(session, call)
    while (told := await call("waited", {}))["content"][0]["text"] == "0":
        pass
    seen["waited"] = told["content"][0]["text"]
    seen["large"] = len((await call("large", {"size": 3_000_000}))["content"][0]["text"])
    return seen


async def cancel(session: ClientSession, call: Any) -> str:
    """This generation does not tell the server when its caller goes away; a program that wants that says so itself."""
    begun = asyncio.Event()

    async def progressed(*_: Any) -> None:
        begun.set()

    number = session._request_id
    waiting = asyncio.create_task(call("wait", {}, progress_callback=progressed))
    await begun.wait()
    params = CancelledNotificationParams(requestId=number, reason="enough")
    notification = CancelledNotification(method="notifications/cancelled", params=params)
    await session.send_notification(ClientNotification(notification))
    waiting.cancel()
    try:
        await waiting
    except asyncio.CancelledError:
        return "cancelled"
    return "cancelled"  # the server may answer that it is


asyncio.run(main())
