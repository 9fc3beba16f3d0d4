"""What the tests about nexo share: a plugin that keeps every rule, in plain Python, and a small one without tools."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from plugbay.contracts.nexo.manifest import parse
from plugbay.model.spec import PluginSpec
from tests.support.openings import OPENING

FILE_NAME = "nexo-plugin.toml"

SECTIONS = """
[[plugin.channels.register]]
kind = "pigeon"
adapter = "PigeonAdapter"

[plugin.extends]
tools = ["good_echo", "good_recall", "good_complete"]
channels = ["pigeon"]
llm_providers = ["parrot"]
memory_backends = ["shelf"]
hooks = ["before_message"]
"""

SOURCE = (
    OPENING
    + r"""
PLUGIN = {"id": "good", "version": "1.0.0", "name": "Good", "description": "keeps every rule"}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "good_echo", "description": "says it again", "input_schema": TEXT},
    {"name": "good_recall", "description": "asks for memory", "input_schema": {"type": "object"}},
    {"name": "good_complete", "description": "asks for text", "input_schema": {"type": "object"}},
]
OK = {"ok": True}
waiting = []
asked = 0

class Refused(Exception):
    pass

def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()

def messages():
    for line in sys.stdin.buffer:
        if len(line) > 1 << 20 or not line.strip():
            continue
        try:
            message = json.loads(line)
        except ValueError:
            print("malformed", file=sys.stderr)
            continue
        if isinstance(message, dict):
            yield message

def ask(method, **params):
    global asked
    asked += 1
    say(id=asked, method=method, params=params)
    for message in incoming:
        if message.get("method") == "llm.complete.delta":
            continue
        if message.get("method") == "shutdown":
            leave(message["id"])
        if "method" in message:
            waiting.append(message)
        elif message.get("id") == asked:
            if "error" in message:
                raise Refused(message["error"]["message"])
            return message["result"]
    sys.exit(0)

def leave(id):
    say(id=id, result=OK)
    sys.exit(0)

def publish(payload):
    event = {"topic": "plugin.inbound.pigeon", "source": "good", "payload": payload}
    say(method="broker.publish", params={"topic": "plugin.inbound.pigeon", "event": event})

def on_event(params):
    publish({"seen": True})

def initialize(params):
    return {"manifest": {"plugin": PLUGIN}, "server_version": "good-1.0.0", "tools": TOOLS}

def invoke(params):
    name = params.get("tool_name") if isinstance(params, dict) else None
    if not isinstance(name, str):
        raise Error(-32602, "no tool_name")
    args = params.get("args")
    if name == "good_echo":
        if not isinstance(args, dict) or "text" not in args:
            raise Error(-33402, "no text")
        return {"content": [{"type": "text", "text": args["text"]}], "is_error": False}
    if name == "good_recall":
        return ask("memory.recall", agent_id="a", query="q", limit=5)["entries"]
    if name == "good_complete":
        say_it = [{"role": "user", "content": "hi"}]
        ask("llm.complete", provider="p", model="m", messages=say_it, max_tokens=9, temperature=0.5)
        return ask("llm.complete", provider="p", model="m", messages=say_it, stream=True)["usage"]
    raise Error(-33401, "no such tool")

class Error(Exception):
    def __init__(self, code, message, **data):
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}

def channel(params):
    if params["kind"] != "pigeon":
        raise Error(-33005, "no such kind", feature="kind")
    return OK

def send(params):
    channel(params)
    return {"message_id": "m1", "sent_at_unix": 1741032000}

def chat(params, id):
    if params["provider"] != "parrot":
        raise Error(-33104, "no such provider")
    if params["stream"]:
        for chunk in ({"type": "text_delta", "delta": "hi"}, {"type": "end", "finish_reason": {"kind": "stop"}}):
            say(method="llm.chat.delta", params={"request_id": id, "chunk": chunk})
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    return {"content": {"type": "text", "text": "hi"}, "usage": usage, "finish_reason": {"kind": "stop"}}

def hook(params):
    return {"abort": False, "decision": "allow"}

def upsert(params):
    return {"count": len(params["records"])}

def search(params):
    match = {"id": "r", "content": "c", "score": 0.5, "metadata": {}}
    return {"matches": [match]}

def delete(params):
    return {"count": 0}

METHODS = {
    "initialize": initialize,
    "tool.invoke": invoke,
    "channel.start": channel,
    "channel.stop": channel,
    "channel.send_outbound": send,
    "llm.chat": chat,
    "hook.on_hook": hook,
    "memory.vector_upsert": upsert,
    "memory.vector_search": search,
    "memory.vector_delete": delete,
}

def serve(message):
    method, id = message.get("method"), message.get("id")
    if method == "broker.event":
        on_event(message["params"])
    if method is None or id is None:
        return
    if method == "shutdown":
        leave(id)
    if method not in METHODS:
        say(id=id, error={"code": -32601, "message": "method not found"})
        return
    try:
        params = message.get("params")
        result = chat(params, id) if method == "llm.chat" else METHODS[method](params)
    except Refused as error:
        say(id=id, error={"code": -33403, "message": str(error)})
    except Error as error:
        say(id=id, error=error.error)
    else:
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
for line in sys.stdin:
    try:
        message = json.loads(line)
    except ValueError:
        continue
    if not isinstance(message, dict) or message.get("method") is None or message.get("id") is None:
        continue
    method, id = message["method"], message["id"]
    if method == "initialize":
        plugin = {"id": "good", "version": "1.0.0"}
        answer = {"result": {"manifest": {"plugin": plugin}, "server_version": "1"}}
    elif method == "shutdown":
        answer = {"result": {"ok": True}}
    else:
        answer = {"error": {"code": -32601, "message": "method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": id, **answer}), flush=True)
    if method == "shutdown":
        break
"""
)


def manifest(sections: str = SECTIONS, **plugin: str) -> str:
    """The text of a manifest that is correct but for what `plugin` lays over it."""
    table = {
        "id": "good",
        "version": "1.0.0",
        "name": "Good",
        "description": "keeps every rule",
        "min_nexo_version": ">=0.1.0",
        **plugin,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    entry = f'[plugin.entrypoint]\ncommand = {json.dumps(sys.executable)}\nargs = ["-I", "-S", "plugin.py"]'
    return "\n".join(["[plugin]", *lines, "", entry, sections])


def nexo_folder(root: Path, source: str = SOURCE, sections: str = SECTIONS, **plugin: str) -> Path:
    """A folder with a plugin made of this source."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "plugin.py").write_text(source, "utf-8")
    (root / FILE_NAME).write_text(manifest(sections, **plugin), "utf-8")
    return root


def nexo_spec(root: Path, *args: Any, **options: Any) -> PluginSpec:
    """The spec of such a plugin."""
    folder = nexo_folder(root, *args, **options)
    spec, problems = parse((folder / FILE_NAME).read_text("utf-8"), folder, os.environ)
    assert spec is not None, problems
    return spec
