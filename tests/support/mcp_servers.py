"""MCP servers for tests: a child in plain Python, no SDK, and the `.mcp.json` that names it. A test writes what is
special.

The body may define functions named like methods with `_` for `/` (`tools_call(m)`, `resources_read(m)`, …), replace
`initialize`, change `TOOLS`, `RESOURCES`, `TEMPLATES` and `PROMPTS`, and say things with `send`, `reply`, `fail` and
`notify`. `ask(method, **params)` asks the client and waits for its answer.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from tests.support.openings import FLAG, OPENING

_CHILD = """
# OPENING
TOOLS = [{"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}]
RESOURCES, TEMPLATES, PROMPTS = [], [], []

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def reply(m, **result):
    send(id=m["id"], result=result)

def fail(m, code, message, **data):
    send(id=m["id"], error={"code": code, "message": message, **({"data": data} if data else {})})

def notify(method, **params):
    send(method=method, params=params)

def text(said, **more):
    return {"content": [{"type": "text", "text": said}], **more}

def receive():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)

def ask(method, **params):
    send(id="q", method=method, params=params)
    while True:
        m = receive()
        if m.get("id") == "q" and "method" not in m:
            return m
        handle(m)

def initialize(m):
    capabilities = {"tools": {"listChanged": True}, "logging": {}}
    if RESOURCES or TEMPLATES:
        capabilities["resources"] = {"subscribe": True, "listChanged": True}
    if PROMPTS:
        capabilities["prompts"] = {"listChanged": True}
    reply(m, protocolVersion="2025-11-25", capabilities=capabilities, serverInfo={"name": "test", "version": "1.2"})

def ping(m):
    reply(m)

def tools_list(m):
    reply(m, tools=TOOLS)

def resources_list(m):
    reply(m, resources=RESOURCES)

def resources_templates_list(m):
    reply(m, resourceTemplates=TEMPLATES)

def prompts_list(m):
    reply(m, prompts=PROMPTS)

def tools_call(m):
    reply(m, **text(json.dumps(m["params"].get("arguments"))))

def handle(m):
    method = m.get("method")
    handler = method and globals().get(method.replace("/", "_"))
    if handler:
        handler(m)
    elif method and "id" in m:
        fail(m, -32601, "method not found")

# BODY

while True:
    handle(receive())
"""

MODERN = """
ERA = "io.modelcontextprotocol/"

def initialize(m):
    fail(m, -32022, "unsupported protocol version", supported=["2026-07-28"], requested="2025-11-25")

def server_discover(m):
    capabilities = {"tools": {}, "resources": {}, "prompts": {}}
    info = {"name": "test", "version": "1.2"}
    reply(m, resultType="complete", supportedVersions=["2026-07-28"], capabilities=capabilities,
          ttlMs=0, cacheScope="private", _meta={ERA + "serverInfo": info})

def reply_modern(m, **result):
    reply(m, resultType="complete", **result)

def tools_list(m):
    reply_modern(m, tools=TOOLS, ttlMs=0, cacheScope="private")

def resources_list(m):
    reply_modern(m, resources=RESOURCES, ttlMs=0, cacheScope="private")

def resources_templates_list(m):
    reply_modern(m, resourceTemplates=TEMPLATES, ttlMs=0, cacheScope="private")

def prompts_list(m):
    reply_modern(m, prompts=PROMPTS, ttlMs=0, cacheScope="private")

def tools_call(m):
    reply_modern(m, **text(json.dumps(m["params"].get("arguments"))))
"""
"""A body for a server that speaks only the modern era."""


def write_child(folder: Path, body: str = "", name: str = "server") -> Path:
    """The program of a server."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(_CHILD.replace("# OPENING", OPENING).replace("# BODY", textwrap.dedent(body)))
    return path


def entry(child: Path, **more: Any) -> dict[str, Any]:
    """How `.mcp.json` starts it."""
    return {"command": sys.executable, "args": [FLAG, str(child)], **more}


def write_server(folder: Path, name: str = "srv", body: str = "", **more: Any) -> Path:
    """A server in `folder`, and its entry in the `.mcp.json` there beside those it has."""
    child = write_child(folder, body, name)
    return declare(folder, name, entry(child, **more))


def declare(folder: Path, name: str, said: dict[str, Any]) -> Path:
    file = folder / ".mcp.json"
    known = json.loads(file.read_text()) if file.exists() else {"mcpServers": {}}
    known["mcpServers"][name] = said
    file.write_text(json.dumps(known))
    return file
