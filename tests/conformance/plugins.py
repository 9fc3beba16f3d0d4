"""What these tests share: a plugin that keeps every rule, in three languages, and a way to break it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from plugbay.contracts.rune.manifest import parse
from plugbay.contracts.rune.spec import FILE_NAME
from plugbay.model.spec import PluginSpec
from tests.support.openings import OPENING

SOURCE = Path(__file__).parents[2] / "src"

MANIFEST: dict[str, Any] = {
    "plugin_id": "example.good",
    "plugin_version": "1.0.0",
    "protocol_version": "rterm.plugin.v1",
    "capabilities": ["tool.execute"],
    "process": {"command": sys.executable, "args": ["-I", "-S", "plugin.py"]},
    "tools": [
        {
            "name": "example.echo",
            "input_schema": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        },
        {"name": "example.size"},
    ],
}

PYTHON = (
    OPENING
    + """
HELLO = {
    "plugin_id": "example.good",
    "plugin_version": "1.0.0",
    "protocol_version": "rterm.plugin.v1",
    "exposed_tools": ["example.echo", "example.size"],
    "capabilities": ["tool.execute"],
}

def line():
    return sys.stdin.buffer.readline()

def say(message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()

def run(tool, given):
    if not isinstance(given, dict):
        return {"status": "error", "error": {"code": "invalid_input", "message": "not an object"}}
    if tool == "example.echo":
        return {"status": "ok", "output": {"text": given["text"][:1000]}}
    if tool == "example.size":
        return {"status": "ok", "output": len(given)}
    return {"status": "error", "error": {"code": "not_found", "message": "there is no such tool"}}

hello = line()
if not hello:
    sys.exit(0)
greeting = json.loads(hello)
say({"type": "handshake", "manifest": HELLO})
asked = line()
if not asked:
    sys.exit(0)
request = json.loads(asked)
result = run(request["tool_name"], request["input"])
say({"type": "response", "request_id": request["request_id"], **result})
sys.stdin.buffer.read()
"""
)

SHELL = """
read -r greeting || exit 0
printf '%s' '{"type":"handshake","manifest":{"plugin_id":"example.good","plugin_version":"1.0.0",'
printf '%s' '"protocol_version":"rterm.plugin.v1","exposed_tools":["example.echo","example.size"],'
printf '%s\\n' '"capabilities":["tool.execute"]}}'
read -r request || exit 0
id=${request#*'"request_id":"'}; id=${id%%'"'*}
case $request in
*'"tool_name":"example.'*) rest='"status":"ok","output":{}' ;;
*) rest='"status":"error","error":{"code":"not_found","message":"there is no such tool"}' ;;
esac
printf '{"type":"response","request_id":"%s",%s}\\n' "$id" "$rest"
while read -r rest; do :; done
"""

SDK = """
from plugbay.sdk import Plugin

plugin = Plugin("example.good", version="1.0.0", capabilities=["tool.execute"])

@plugin.tool("example.echo")
def echo(text: str) -> dict:
    print("this goes to stderr")
    return {"text": text}

@plugin.tool("example.size")
def size(input: object) -> int:
    return len(input)

plugin.run()
"""


def plugin_spec(root: Path, source: str = PYTHON, file: str = "plugin.py", **manifest: Any) -> PluginSpec:
    """The spec of a plugin made of this source; `manifest` is laid over the usual one."""
    root.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(source, "utf-8")
    text = json.dumps({**MANIFEST, **manifest})
    (root / FILE_NAME).write_text(text, "utf-8")
    spec, problems = parse(text, root)
    assert spec is not None, problems
    return spec


def mutated(old: str, new: str, source: str = PYTHON) -> str:
    """The good plugin with one thing changed."""
    assert source.count(old) == 1, f"{old!r} is there {source.count(old)} times"
    return source.replace(old, new)
