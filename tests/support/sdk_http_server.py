# mypy: disable-error-code="untyped-decorator"
"""A server of the official MCP SDK over streamable HTTP. A program, not a module.

python sdk_http_server.py PORT [json] [stateless] [grown] [key=TOKEN] [version=VERSION] [tls=FILE]
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

PORT, OPTIONS = int(sys.argv[1]), sys.argv[2:]

NAMED = dict(word.split("=", 1) for word in OPTIONS if "=" in word)

server = MCPServer("remote", title="Remote", version=NAMED.get("version", "3.1.0"), instructions="Add before you ask.")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def slow(ctx: Context, seconds: float = 60) -> str:
    """Wait, with progress."""
    await ctx.report_progress(1, 3, "started")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        STATE["cancelled"] = STATE.get("cancelled", 0) + 1
        raise
    await ctx.report_progress(2, 3, "done")
    return "waited"


class Sure(BaseModel):
    sure: bool


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the user."""
    said = await ctx.elicit("Sure?", Sure)
    return f"{said.action} {getattr(said, 'data', None)}"


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one tool more, and tell so on the stream that belongs to no request."""
    server.add_tool(lambda: "new", name="fresh", description="A new tool.")
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def headers(ctx: Context) -> dict[str, str]:
    """The headers of this request."""
    request: Any = ctx.request_context.request
    return dict(request.headers)


@server.tool()
def cancelled() -> int:
    """How many calls were cancelled."""
    return int(STATE.get("cancelled", 0))


@server.resource("memo://one")
def one() -> str:
    """A memo."""
    return "words"


STATE: dict[str, int] = {}

if "grown" in OPTIONS:
    server.add_tool(lambda: "new", name="fresh", description="A new tool.")


@server.custom_route("/page", methods=["GET", "POST"])
async def page(request: Request) -> Response:
    return Response("<html><body>Welcome</body></html>", media_type="text/html")


def app() -> Any:
    made = server.streamable_http_app(json_response="json" in OPTIONS, stateless_http="stateless" in OPTIONS)
    key = NAMED.get("key")

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and key is not None:
            given = dict(scope["headers"]).get(b"authorization", b"").decode()
            if given != f"Bearer {key}":
                await JSONResponse({"error": f"not {given}"}, 401)(scope, receive, send)
                return
        await made(scope, receive, send)

    return guarded


uvicorn.run(app(), host="127.0.0.1", port=PORT, log_level="warning", ssl_certfile=NAMED.get("tls"))
