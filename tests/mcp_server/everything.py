"""An MCP server with every feature, written without an SDK: lines in, lines out. A program, not a module.

    python everything.py handshake|modern|both

Serves the handshake era, the modern era, or both. It has tools that answer, fail, refuse, report, wait, ask, log,
grow and touch; resources, a template, prompts and completions; and it lists in pages of two.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

ERA = sys.argv[1] if len(sys.argv) > 1 else "both"
OURS = "io.modelcontextprotocol/"
INFO = {"name": "everything", "version": "7.1.0", "title": "Everything"}
CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
ANY = {"type": "object"}


def tool(name: str, schema: dict[str, Any] = ANY, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema, **more}


TOOLS: list[dict[str, Any]] = [
    tool(
        "echo",
        {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "$comment": "kept"},
        title="Echo",
        annotations={"readOnlyHint": True, "openWorldHint": False},
        icons=[{"src": "data:image/png;base64,AAAA", "sizes": ["48x48"]}],
        _meta={"example.org/colour": "teal"},
    ),
    tool("add", {"type": "object"}, outputSchema={"type": "object", "required": ["sum"]}),
    tool("picture"),
    tool("fail"),
    tool("refuse"),
    tool("report"),
    tool("wait"),
    tool("cancellations"),
    tool("ask"),
    tool("meta"),
    tool("say"),
    tool("grow"),
    tool("touch"),
    tool("large"),
]
RESOURCES: list[dict[str, Any]] = [
    {
        "uri": "memo://one",
        "name": "one",
        "title": "One",
        "mimeType": "text/plain",
        "size": 5,
        "annotations": {"priority": 1},
    },
    {"uri": "memo://picture", "name": "picture", "description": "Bytes.", "_meta": {"example.org/kept": True}},
    {"uri": "memo://three", "name": "three"},
]
TEMPLATES: list[dict[str, Any]] = [
    {"uriTemplate": "memo://by-name/{name}", "name": "by-name", "description": "A memo by its name."}
]
PROMPTS: list[dict[str, Any]] = [
    {
        "name": "greet",
        "title": "Greet",
        "description": "Greet somebody.",
        "arguments": [{"name": "who", "description": "Whom.", "required": True}, {"name": "how"}],
    },
    {"name": "echo", "description": "A prompt that is called like a tool."},
]
LISTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "tools/list": ("tools", TOOLS),
    "resources/list": ("resources", RESOURCES),
    "resources/templates/list": ("resourceTemplates", TEMPLATES),
    "prompts/list": ("prompts", PROMPTS),
}
PAGE = 2


class Refusal(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}


class Server:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.cancelled: dict[Any, threading.Event] = {}
        self.cancellations = 0
        self.answers: dict[Any, Any] = {}
        self.asked: dict[Any, threading.Event] = {}
        self.session = False
        self.subscribed: set[str] = set()
        self.listeners: dict[Any, dict[str, Any]] = {}
        self.numbers = 0

    # The wire.

    def write(self, message: dict[str, Any]) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.write({"method": method, **({} if params is None else {"params": params})})

    def run(self) -> None:
        sys.stderr.write("a word for the operator\n")
        sys.stderr.flush()
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                self.answers[message["id"]] = message.get("result", message.get("error"))
                self.asked[message["id"]].set()
            elif "id" not in message:
                self.told(message["method"], message.get("params") or {})
            else:
                self.cancelled[message["id"]] = threading.Event()
                threading.Thread(target=self.serve, args=(message,), daemon=True).start()

    def told(self, method: str, params: dict[str, Any]) -> None:
        if method != "notifications/cancelled":
            return
        self.listeners.pop(params["requestId"], None)
        if params["requestId"] in self.cancelled:
            self.cancelled[params["requestId"]].set()

    def serve(self, message: dict[str, Any]) -> None:
        id, params = message["id"], message.get("params") or {}
        modern = OURS + "protocolVersion" in (params.get("_meta") or {})
        try:
            result = self.answer(id, message["method"], params, modern)
        except Refusal as refused:
            self.write({"id": id, "error": refused.error})
            return
        if result is None or self.cancelled[id].is_set():
            return
        if modern:
            meta = {**result.get("_meta", {}), OURS + "serverInfo": INFO}
            result = {"resultType": "complete", **result, "_meta": meta}
            if message["method"].endswith("list") or message["method"] in ("resources/read", "server/discover"):
                result |= {"ttlMs": 0, "cacheScope": "private"}
        self.write({"id": id, "result": result})

    # Methods.

    def answer(self, id: Any, method: str, params: dict[str, Any], modern: bool) -> dict[str, Any] | None:
        if modern != (ERA == "modern") and ERA != "both":
            raise Refusal(-32601, f"method not found: {method}")
        if method == "initialize":
            self.session = True
            told = {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": INFO}
            return {**told, "instructions": "Use everything."}
        if method == "server/discover":
            return {
                "supportedVersions": ["2026-07-28"],
                "capabilities": CAPABILITIES,
                "instructions": "Use everything.",
            }
        if method in LISTS:
            return self.page(*LISTS[method], params)
        if method == "subscriptions/listen":
            self.listen(id, params)
            return None
        if method == "tools/call":
            return self.call(id, params, modern)
        return self.rest(method, params, modern)

    def welcome(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        said = {"capabilities": CAPABILITIES, "instructions": "Use everything."}
        if method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], **said}
        self.session = True
        return {"protocolVersion": params["protocolVersion"], "serverInfo": INFO, **said}

    def rest(self, method: str, params: dict[str, Any], modern: bool) -> dict[str, Any]:
        if method in ("ping", "logging/setLevel"):
            return {}
        if method in ("resources/subscribe", "resources/unsubscribe"):
            (self.subscribed.add if method.endswith("/subscribe") else self.subscribed.discard)(params["uri"])
            return {}
        if method == "resources/read":
            return self.read(params["uri"], modern)
        if method == "prompts/get":
            return self.prompt(params)
        if method == "completion/complete":
            return self.complete(params)
        raise Refusal(-32601, f"method not found: {method}")

    def page(self, key: str, entries: list[Any], params: dict[str, Any]) -> dict[str, Any]:
        start = int(params.get("cursor", "0"))
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(entries) else {}
        return {key: entries[start : start + PAGE], **more}

    def listen(self, id: Any, params: dict[str, Any]) -> None:
        self.listeners[id] = wanted = params["notifications"]
        meta = {OURS + "subscriptionId": id}
        self.notify("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": wanted})

    def read(self, uri: str, modern: bool) -> dict[str, Any]:
        if uri == "memo://picture":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": "AAAA"}]}
        if uri in ("memo://one", "memo://unlisted") or uri.startswith("memo://by-name/"):
            return {
                "contents": [{"uri": uri, "mimeType": "text/plain", "text": f"about {uri}"}],
                "_meta": {"a.org/b": 1},
            }
        raise Refusal(-32602 if modern else -32002, "Resource not found", {"uri": uri})

    def prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        given = params.get("arguments") or {}
        if params["name"] == "greet" and "who" not in given:
            raise Refusal(-32602, "who is missing", {"argument": "who"})
        text = f"{params['name']} {json.dumps(given, sort_keys=True)}"
        return {"description": "Said.", "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}

    def complete(self, params: dict[str, Any]) -> dict[str, Any]:
        seen = [params["ref"].get("name") or params["ref"]["uri"], params["argument"]["value"]]
        return {"completion": {"values": [*seen, json.dumps(params.get("context"))], "total": 9, "hasMore": True}}

    # Tools.

    def call(self, id: Any, params: dict[str, Any], modern: bool) -> dict[str, Any] | None:
        name, given = params["name"], params.get("arguments") or {}
        token = (params.get("_meta") or {}).get("progressToken")
        if name == "report":
            for step in (1, 2):
                said = {"progressToken": token, "progress": step / 2, "total": 1, "message": f"step {step}"}
                self.notify("notifications/progress", said)
        elif name == "wait":
            self.notify("notifications/progress", {"progressToken": token, "progress": 1})
            self.cancelled[id].wait()
            self.cancellations += 1
        elif name == "ask":
            return self.ask(params, modern)
        elif name == "say":
            self.notify("notifications/message", {"level": "warning", "logger": "kitchen", "data": "the kettle is hot"})
        elif name == "grow":
            TOOLS.append(tool("grown", title="Grown"))
            self.changed("notifications/tools/list_changed", "toolsListChanged")
        elif name == "touch":
            self.touched(given["uri"])
        elif name == "refuse":
            raise Refusal(-32050, "I would rather not", {"because": ["it", {"is": "late"}]})
        return self.result(name, given, params)

    def result(self, name: str, given: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(given, sort_keys=True)
        results: dict[str, dict[str, Any]] = {
            "add": {"structuredContent": {"sum": sum(given.get("numbers", ()))}},
            "picture": {
                "content": [
                    {"type": "image", "data": "AAAA", "mimeType": "image/png", "annotations": {"audience": ["user"]}},
                    {"type": "resource_link", "uri": "memo://unlisted", "name": "unlisted"},
                    {"type": "resource", "resource": {"uri": "memo://x", "text": "inside"}},
                ]
            },
            "fail": {"isError": True, "structuredContent": {"why": "no milk"}, "_meta": {"example.org/x": 1}},
            "meta": {"content": [{"type": "text", "text": json.dumps(own_meta(params), sort_keys=True)}]},
            "cancellations": {"content": [{"type": "text", "text": str(self.cancellations)}]},
            "large": {"content": [{"type": "text", "text": "x" * given.get("size", 0)}]},
        }
        return {"content": [{"type": "text", "text": text}], **results.get(name, {})}

    def ask(self, params: dict[str, Any], modern: bool) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        question = {"message": "Who are you?", "requestedSchema": schema}
        if modern and "inputResponses" not in params:
            wanted = {"who": {"method": "elicitation/create", "params": question}}
            return {"resultType": "input_required", "inputRequests": wanted, "requestState": "state-of-ours"}
        if modern:
            said = params["inputResponses"]["who"]
            assert params["requestState"] == "state-of-ours"
        else:
            self.numbers += 1
            number = self.numbers
            self.asked[number] = threading.Event()
            self.write({"id": number, "method": "elicitation/create", "params": question})
            self.asked[number].wait()
            said = self.answers[number]
        return {"content": [{"type": "text", "text": json.dumps(said, sort_keys=True)}]}

    def changed(self, method: str, flag: str) -> None:
        if self.session:
            self.notify(method)
        for id, wanted in list(self.listeners.items()):
            if wanted.get(flag):
                self.notify(method, {"_meta": {OURS + "subscriptionId": id}})

    def touched(self, uri: str) -> None:
        if uri in self.subscribed:
            self.notify("notifications/resources/updated", {"uri": uri})
        for id, wanted in list(self.listeners.items()):
            if uri in wanted.get("resourceSubscriptions", ()):
                self.notify("notifications/resources/updated", {"_meta": {OURS + "subscriptionId": id}, "uri": uri})


def own_meta(params: dict[str, Any]) -> dict[str, Any]:
    meta = params.get("_meta") or {}
    return {key: value for key, value in meta.items() if key != "progressToken" and not key.startswith(OURS)}


if __name__ == "__main__":
    Server().run()
