"""A server of MCP in both eras, with tools, a resource, a prompt and a log, and nothing wrong; without any SDK."""

from __future__ import annotations

import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    import json
    from collections.abc import Callable
    from typing import Any
else:
    try:
        import light_json as json  # beside a copy of this file
    except ImportError:
        import json

Message = dict[str, "Any"]

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
"""In which way it is broken."""

HANDSHAKES = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
OURS = "io.modelcontextprotocol/"
LEVELS = "debug info notice warning error critical alert emergency".split()
FRESH = {"ttlMs": 60_000, "cacheScope": "public"}
CACHED = {"server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"}

INFO = {"name": "canary", "version": "1.0.0"}
CAPABILITIES: Message = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}

TEXT: Message = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS: list[Message] = [
    {
        "name": "echo",
        "description": "Says what it is told.",
        "inputSchema": {**TEXT, "examples": [{"text": "hello"}]},
        "outputSchema": TEXT,
        "annotations": {"readOnlyHint": True},
    },
    {"name": "look.around", "inputSchema": {"type": "object", "additionalProperties": False}},
]
RESOURCES: list[Message] = [{"uri": "note://one", "name": "one", "mimeType": "text/plain"}]
TEMPLATES: list[Message] = [{"uriTemplate": "note://{name}", "name": "note"}]
PROMPTS: list[Message] = [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]

PAGE = 1
"""Tools on a page."""

writing = threading.Lock()
workers: list[threading.Thread] = []


class Refusal(Exception):
    """An error as the answer: its number, its words, and its data."""


# Writing.


def write(data: bytes) -> None:
    with writing:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def framed(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def say(**message: Any) -> None:
    write(framed({"jsonrpc": "2.0", **message}))


def finish(message: Message, **outcome: Any) -> None:
    say(id=message["id"], **outcome)


# What is asked.


def initialize(params: Message) -> Message:
    asked = params["protocolVersion"]
    version = asked if asked in HANDSHAKES else HANDSHAKES[-1]
    return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": INFO}


def discover(params: Message) -> Message:
    return {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}


def list_tools(params: Message) -> Message:
    cursor = params.get("cursor")
    if cursor is not None and not (isinstance(cursor, str) and cursor.isdigit() and int(cursor) < len(TOOLS)):
        raise Refusal(-32602, "there is no such page")
    begin = int(cursor or 0)
    more = {"nextCursor": str(begin + PAGE)} if begin + PAGE < len(TOOLS) else {}
    return {"tools": TOOLS[begin : begin + PAGE], **more}


def call_tool(params: Message) -> Message:
    given = params.get("arguments", {})
    if params.get("name") not in [tool["name"] for tool in TOOLS]:
        raise Refusal(-32602, "there is no such tool")
    if not isinstance(given, dict) or not isinstance(given.get("text", ""), str):
        return failed("text must be a string")
    if params["name"] == "look.around":
        return {"content": [{"type": "text", "text": "nothing to see"}]}
    if "text" not in given:
        return failed("text is missing")
    report(params, 1)
    report(params, 2)
    return {"content": [{"type": "text", "text": given["text"]}], "structuredContent": {"text": given["text"]}}


def failed(words: str) -> Message:
    return {"content": [{"type": "text", "text": words}], "isError": True}


def report(params: Message, progress: int) -> None:
    token = params.get("_meta", {}).get("progressToken")
    if token is not None:
        said = {"progressToken": token, "progress": progress, "total": 2, "message": "été"}
        say(method="notifications/progress", params=said)


def read_resource(params: Message) -> Message:
    if params.get("uri") != "note://one":
        raise Refusal(-32002, "there is no such note")
    return {"contents": [{"uri": "note://one", "text": "one"}]}


def get_prompt(params: Message) -> Message:
    if params.get("name") != "greet":
        raise Refusal(-32602, "there is no such prompt")
    who = params.get("arguments", {}).get("who", "everybody")
    return {"messages": [{"role": "user", "content": {"type": "text", "text": f"Greet {who}."}}]}


def set_level(params: Message) -> Message:
    if params.get("level") not in LEVELS:
        raise Refusal(-32602, "there is no such level")
    return {}


METHODS: dict[str, Callable[[Message], Message]] = {
    "initialize": initialize,
    "ping": lambda params: {},
    "server/discover": discover,
    "tools/list": list_tools,
    "tools/call": call_tool,
    "resources/list": lambda params: {"resources": RESOURCES},
    "resources/templates/list": lambda params: {"resourceTemplates": TEMPLATES},
    "resources/read": read_resource,
    "prompts/list": lambda params: {"prompts": PROMPTS},
    "prompts/get": get_prompt,
    "logging/setLevel": set_level,
}


def refuse_unknown(params: Message) -> Message:
    raise Refusal(-32601, "there is no such method")


def check_meta(meta: Message) -> None:
    """What every request of the modern era says."""
    version = meta[OURS + "protocolVersion"]
    if version != MODERN:
        data = {"supported": [MODERN], "requested": version}
        raise Refusal(-32022, "that revision is not spoken here", data)
    if not isinstance(meta.get(OURS + "clientCapabilities"), dict):
        raise Refusal(-32602, "it does not say what its client can")


def completed(method: str, result: Message) -> Message:
    """A result as the modern era has it."""
    fresh = FRESH if method in CACHED else {}
    return {"resultType": "complete", **result, **fresh, "_meta": {OURS + "serverInfo": INFO}}


def answer(message: Message) -> None:
    method, params = message["method"], message.get("params") or {}
    meta = params.get("_meta") or {}
    modern = OURS + "protocolVersion" in meta
    try:
        if modern:
            check_meta(meta)
        result = METHODS.get(method, refuse_unknown)(params)
        finish(message, result=completed(method, result) if modern else result)
    except Refusal as refusal:
        number, words, *data = refusal.args
        finish(message, error={"code": number, "message": words, **({"data": data[0]} if data else {})})


# What is heard.


NOTICES: dict[str, Callable[[Message], None]] = {}
"""Nothing here takes so long that calling it off would end it sooner."""


def ignore(params: Message) -> None:
    """What there is nothing to do about."""


def begin(message: Message) -> None:
    """Calls are answered beside whatever else is being done."""
    worker = threading.Thread(target=answer, args=(message,), daemon=True)
    workers.append(worker)
    worker.start()


def puzzled(line: bytes) -> None:
    print("not a message of ours", file=sys.stderr)


def hear(line: bytes) -> None:
    """One line of the client; what is not a message is noted and skipped."""
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        puzzled(line)
    elif "id" not in message:
        NOTICES.get(message["method"], ignore)(message.get("params") or {})
    elif message["method"] == "tools/call":
        begin(message)
    else:
        answer(message)


def lines() -> Any:
    return sys.stdin.buffer


def leave() -> None:
    for worker in workers:
        worker.join(1)
    os._exit(0)


def serve() -> None:
    """Hear until the input ends."""
    for line in lines():
        hear(line)
    leave()
