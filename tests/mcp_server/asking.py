"""An MCP server that asks its client for everything, written without an SDK. A program, not a module.

    python asking.py handshake|modern

`ask` sends the request in its arguments, and answers with the result or error. `roots` lists the answers to the
requests for roots that the server made outside calls, after the greeting and after each change.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from typing import Any

MODERN = sys.argv[1:] == ["modern"]
CAPABILITIES: dict[str, Any] = {"tools": {}}
INFO = {"name": "asking", "version": "1.0.0"}
TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("ask", "roots")]
ROOTS: list[Any] = []
NUMBERS = itertools.count(1)
WAITING: dict[int, tuple[threading.Event, list[Any]]] = {}


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(method: str, params: dict[str, Any]) -> Any:
    """Send a request and wait for its answer."""
    number = next(NUMBERS)
    event, answers = WAITING[number] = (threading.Event(), [])
    say(id=number, method=method, params=params)
    event.wait()
    return answers[0]


def look_at_roots() -> None:
    ROOTS.append(ask("roots/list", {}))


def call(params: dict[str, Any]) -> dict[str, Any]:
    given = params.get("arguments") or {}
    if params["name"] == "roots":
        answer: Any = ROOTS
    elif not MODERN:
        answer = ask(given["method"], given.get("params", {}))
    elif "inputResponses" in params:
        answer = params["inputResponses"].get("q")
    else:
        question = {"method": given["method"], "params": given.get("params", {})}
        return {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"}
    return {"content": [{"type": "text", "text": json.dumps(answer)}]}


def answer(id: Any, method: str, params: dict[str, Any]) -> None:
    if method == "initialize" and not MODERN:
        said = {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": INFO}
        global roots
        roots = params["capabilities"].get("roots")
    elif method == "server/discover" and MODERN:
        said = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
    elif method == "tools/list":
        said = {"tools": TOOLS}
    elif method == "tools/call":
        said = call(params)
    else:
        say(id=id, error={"code": -32601, "message": f"method not found: {method}"})
        return
    say(id=id, result={"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **said} if MODERN else said)


roots: dict[str, Any] | None = None

for line in sys.stdin:
    message = json.loads(line)
    name = message.get("method")
    if name is None:
        event, answers = WAITING[message["id"]]
        answers.append(message.get("result", message.get("error")))
        event.set()
    elif "id" in message:
        begun = threading.Thread(target=answer, args=(message["id"], name, message.get("params") or {}), daemon=True)
        begun.start()
    elif roots is not None and name in ("notifications/initialized", "notifications/roots/list_changed"):
        threading.Thread(target=look_at_roots, daemon=True).start()
