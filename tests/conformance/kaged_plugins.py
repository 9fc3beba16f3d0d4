"""What the tests about kaged share: a plugin that keeps every rule, in plain Python, and a small one without tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from plugbay.contracts.kaged.manifest import parse
from plugbay.model.spec import PluginSpec
from tests.support.openings import OPENING

FILE_NAME = "kaged-plugin.yaml"

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

MANIFEST: dict[str, Any] = {
    "name": "good",
    "version": "1.0.0",
    "kaged_api": 1,
    "description": "keeps every rule",
    "command": [sys.executable, "-I", "-S", "plugin.py"],
    "capabilities": ["kaged:storage:read", "kaged:storage:write"],
    "methods": ["status.now"],
    "notifications": ["changed"],
    "hooks": ["on_session_start", "on_session_idle", "pre_compact", "post_compact"],
    "roles": ["observer", "compactor"],
    "tools": [
        {"name": "echo", "description": "says it again", "parameters_schema": TEXT},
        {"name": "remember", "description": "keeps a value", "parameters_schema": {"type": "object"}},
    ],
    "shutdown_timeout_sec": 2,
    "hook_timeout_sec": 1,
}

BARE_MANIFEST = {
    **{key: MANIFEST[key] for key in ("name", "version", "kaged_api", "description", "command")},
    "hooks": ["on_session_idle"],
}

SOURCE = (
    OPENING
    + r"""
CAPABILITIES = ["kaged:storage:read", "kaged:storage:write"]
METHODS = ["good.echo", "good.remember", "status.now"]
HOOK = "kaged.hook."
WELL = {"status": "ok"}
waiting = []
asked = 0

class Error(Exception):
    pass

def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()

def fail(id, code, message):
    say(id=id, error={"code": code, "message": message})

def messages():
    for line in sys.stdin.buffer:
        line = line.strip()
        if not line:
            continue
        try:
            message = json.loads(line)
        except ValueError:
            fail(0, -32700, "Parse error")
            continue
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            fail(0, -32600, "Invalid request")
            continue
        yield message

def ask(method, **params):
    global asked
    asked += 1
    say(id=asked, method="kaged.storage." + method, params=params)
    for message in incoming:
        if "method" in message:
            waiting.append(message)
        elif message.get("id") == asked:
            if "error" in message:
                raise Error(-32000, message["error"]["message"])
            return message["result"]
    sys.exit(0)

def initialize(params):
    answer = {"name": "good", "version": "1.0.0", "api_version": 1, "methods": METHODS}
    return {**answer, "notifications": ["changed"], "capabilities_used": CAPABILITIES}

def echo(params):
    if not isinstance(params, dict) or not isinstance(params.get("text"), str):
        raise Error(-32602, "Missing required parameter: text")
    say(method="changed", params={"size": len(params["text"])})
    return {"text": params["text"]}

def remember(params):
    ask("set", key="k", value={"n": 1})
    found = ask("get", key="k")
    assert found == {"value": {"n": 1}, "found": True}, found
    assert ask("list", prefix="k", limit=10) == {"keys": ["k"]}
    assert ask("delete", key="k") == {"deleted": True}
    return ask("get", key="k")

def status(params):
    return WELL

def on_session_start(params):
    return {"inject": "remember this"}

def on_session_idle(params):
    return None

def pre_compact(params):
    return {"messages": params["messages"][-1:]} if "messages" in params else {}

def post_compact(params):
    return {"retain": [], "inject": "it was long"}

SERVES = {
    "initialize": initialize,
    "health.check": status,
    "ping": status,
    "shutdown": status,
    "good.echo": echo,
    "good.remember": remember,
    "status.now": status,
    "kaged.hook.on_session_start": on_session_start,
    "kaged.hook.on_session_idle": on_session_idle,
    "kaged.hook.pre_compact": pre_compact,
    "kaged.hook.post_compact": post_compact,
}

def serve(message):
    method, id, params = message.get("method"), message.get("id"), message.get("params")
    if "id" not in message or "result" in message or "error" in message:
        return
    id = id if isinstance(id, (int, float)) else 0
    if not isinstance(method, str) or not method:
        return fail(id, -32600, "Invalid request: missing method")
    if method not in SERVES:
        return fail(id, -32601, "Method not found: " + method)
    try:
        result = SERVES[method](params)
    except Error as error:
        return fail(id, *error.args)
    say(id=id, result=result)

incoming = messages()
while True:
    message = waiting.pop(0) if waiting else next(incoming, None)
    if message is None:
        break
    serve(message)
"""
)

BARE = (
    OPENING
    + r"""
for line in sys.stdin.buffer:
    try:
        message = json.loads(line)
    except ValueError:
        continue
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        continue
    if not isinstance(message.get("method"), str) or message["method"] == "" or "id" not in message:
        continue
    answer = {"result": None}
    if message["method"] == "initialize":
        answer["result"] = {"name": "good", "version": "2", "api_version": 1, "methods": []}
        answer["result"] |= {"notifications": [], "capabilities_used": []}
    elif message["method"] not in ("ping", "shutdown", "kaged.hook.on_session_idle"):
        answer = {"error": {"code": -32601, "message": "method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
)


def kaged_folder(root: Path, source: str = SOURCE, manifest: dict[str, Any] | None = None) -> Path:
    """A folder with a plugin made of this source."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "plugin.py").write_text(source, "utf-8")
    # JSON is YAML.
    (root / FILE_NAME).write_text(json.dumps(MANIFEST if manifest is None else manifest), "utf-8")
    return root


def kaged_spec(root: Path, source: str = SOURCE, manifest: dict[str, Any] | None = None) -> PluginSpec:
    """The spec of such a plugin."""
    folder = kaged_folder(root, source, manifest)
    spec, problems = parse((folder / FILE_NAME).read_text("utf-8"), folder)
    assert spec is not None, problems
    return spec
