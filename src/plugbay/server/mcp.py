"""`/mcp`: the plugins of the operator's folders as one MCP server, mounted beside the REST application.

Requires the operator's token, because these plugins belong to the operator. A call over MCP reaches the same process,
with the same grants, logs and records, as a call over REST. The protocol is in `plugbay.mcp_server`.
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
from plugbay.mcp_server.server import McpServer, QuestionRouter

PATH = "/mcp"


@asynccontextmanager
async def mount_mcp(app: FastAPI, host: Host, token: str, names: Iterable[str]) -> AsyncIterator[ASGIApp]:
    """The application with `/mcp` beside its own paths, until `app.state.closing`.

    Clients do not wait for slow plugins: they get a notification when the lists change.
    """
    questions = QuestionRouter()
    host.questions = questions.ask
    async with McpServer(host, questions, patience=0, strict=False) as server:
        mcp = McpApp(server, Guard(token, frozenset(name.lower() for name in names)))
        closing = asyncio.create_task(_close_with_server(app, mcp))

        async def both(scope: Scope, receive: Receive, send: Send) -> None:
            is_mcp = scope["type"] == "http" and scope["path"].rstrip("/") == PATH
            await (mcp(scope, receive, send) if is_mcp else app(scope, receive, send))

        try:
            yield both
        finally:
            closing.cancel()
            mcp.close()


async def _close_with_server(app: FastAPI, mcp: McpApp) -> None:
    """Close client streams when the server stops; they would delay it otherwise."""
    await app.state.closing.wait()
    mcp.close()
