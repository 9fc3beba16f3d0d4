"""`/mcp` of a server: the plugins of the operator's folders as one MCP server, beside the rest of the application.

Owns who may come in: whoever has the operator's token, since those plugins are the operator's. Whether a client asks
here or over REST, the plugin that answers is the same process, with the same grants, logs and records. What is served,
and how MCP is spoken, is `bridge`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from plugbay.host.host import Host
from plugbay.mcp_server.http_app import McpApp
from plugbay.mcp_server.http_checks import Guard
from plugbay.mcp_server.questions import QuestionRouter
from plugbay.mcp_server.server import McpServer

PATH = "/mcp"


@asynccontextmanager
async def mcp_beside(app: FastAPI, host: Host, token: str, names: Iterable[str]) -> AsyncIterator[ASGIApp]:
    """The application with `/mcp` beside its own paths, until `app.state.closing`.

    Nobody waits for plugins that take long to say what they offer: clients are told when the lists change.
    """
    desk = QuestionRouter()
    host.questions = desk.ask
    async with McpServer(host, desk, patience=0, strict=False) as bridge:
        mcp = McpApp(bridge, Guard(token, frozenset(name.lower() for name in names)))
        closing = asyncio.create_task(_closed(app, mcp))

        async def both(scope: Scope, receive: Receive, send: Send) -> None:
            is_mcp = scope["type"] == "http" and scope["path"].rstrip("/") == PATH
            await (mcp(scope, receive, send) if is_mcp else app(scope, receive, send))

        try:
            yield both
        finally:
            closing.cancel()
            mcp.close()


async def _closed(app: FastAPI, mcp: McpApp) -> None:
    """Let every client go when the server is about to stop: a stream of theirs would hold it for as long as it may."""
    await app.state.closing.wait()
    mcp.close()
