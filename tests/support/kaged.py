"""Kaged plugins for tests: a folder with a manifest and a child in plain Python, no SDK. A test writes what is special.

The body may define `tool(name, params, m)`, `hook(name, params, m)`, `method(name, params, m)` and `health(m)`, replace
`initialize` and `shutdown`, and say things on its own with `send`, `reply`, `fail`, `notify` and `request`.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from tests.support.openings import FLAG, OPENING

_CHILD = """
{opening}
NAME = {name!r}
TOOLS = {tools!r}
METHODS = {methods!r}

def send(**message):
    sys.stdout.write(json.dumps({{"jsonrpc": "2.0", **message}}) + "\\n")
    sys.stdout.flush()

def reply(m, result):
    send(id=m["id"], result=result)

def fail(m, code, message, **data):
    send(id=m["id"], error={{"code": code, "message": message, **({{"data": data}} if data else {{}})}})

def notify(method, **params):
    send(method=method, params=params)

def request(id, method, **params):
    send(id=id, method=method, params=params)

def initialize(m):
    global greeting
    greeting = m["params"]
    offered = METHODS + [f"{{NAME}}.{{tool}}" for tool in TOOLS]
    said = {{"name": NAME, "version": "1.0.0", "api_version": 1, "methods": offered, "notifications": []}}
    reply(m, {{**said, "capabilities_used": []}})

def shutdown(m):
    reply(m, {{"status": "ok"}})

def tool(name, params, m):
    reply(m, {{key: value for key, value in params.items() if key != "_context"}})

def hook(name, params, m):
    reply(m, None)

def method(name, params, m):
    reply(m, params)

def health(m):
    reply(m, {{"status": "ok"}})

def answered(m):
    pass

{body}

for line in sys.stdin:
    m = json.loads(line)
    name = m.get("method")
    params = m.get("params") or {{}}
    if name is None:
        answered(m)
    elif name in ("initialize", "shutdown"):
        globals()[name](m)
    elif name in ("health.check", "ping"):
        health(m)
    elif name.startswith("kaged.hook."):
        hook(name.removeprefix("kaged.hook."), params, m)
    elif name in METHODS:
        method(name, params, m)
    elif name.removeprefix(NAME + ".") in TOOLS:
        tool(name.removeprefix(NAME + "."), params, m)
    elif "id" in m:
        fail(m, -32601, "method not found")
"""


def write_kaged_plugin(folder: Path, name: str = "p", body: str = "", **manifest: Any) -> Path:
    """A plugin folder in `folder`, named after the plugin; `manifest` replaces or adds fields. `tools` may be names."""
    root = folder / name
    root.mkdir(parents=True, exist_ok=True)
    given = manifest.pop("tools", ["echo"])
    tools = [tool if isinstance(tool, dict) else _tool(tool) for tool in given]
    whole = {
        "name": name,
        "version": "1.0.0",
        "kaged_api": 1,
        "description": "A test.",
        "command": ["python3", FLAG, "child.py"],
        "tools": tools,
        **manifest,
    }
    # JSON is YAML.
    root.joinpath("kaged-plugin.yaml").write_text(json.dumps(whole, indent=1))
    names = [tool["name"] for tool in tools]
    told = {"name": name, "tools": names, "methods": manifest.get("methods", [])}
    root.joinpath("child.py").write_text(_CHILD.format(opening=OPENING, **told, body=textwrap.dedent(body)))
    return root


def _tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "A tool.", "parameters_schema": {"type": "object"}}
