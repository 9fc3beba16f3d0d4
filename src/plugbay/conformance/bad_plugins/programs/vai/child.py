"""The correct half of the bad plugins of vai: frames, requests, cancels, and a life as the contract wants it.

Nothing here is wrong. A program imports it and replaces something: a handler in SERVES, or a function of this module.
The first argument, KIND, says which of its cases it does.
"""

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
    # In the kit, what all contracts share lies one folder up; beside a copy of this file lies a copy of that.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import light_json as json

Message = dict[str, "Any"]

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
PROTOCOL = "vai.rpc.v1"
MAX_BODY = 8 << 20
LEAVE_SECONDS = 2.0
"""How long work that was begun may still take at the end."""


def manifest() -> str:
    """The one beside this file; where there is none, its text is told."""
    if "PLUGIN_MANIFEST" in os.environ:
        return os.environ["PLUGIN_MANIFEST"]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "vai-plugin.toml"), encoding="utf-8") as file:
        return file.read()


# The kit writes every manifest here in the same way, so that what matters is found between known words. Loading
# `tomllib`, or only `re`, would take longer than all else that such a plugin does to start.
MANIFEST = manifest()
_PAIRS = [line.partition(" = ") for line in MANIFEST.splitlines()]
_EXPORTS = [text.partition('", kind = "') for text in MANIFEST.split('{id = "')[1:]]
IDENTITY: dict[str, str] = {key: value[1:-1] for key, _, value in _PAIRS if key in ("package_id", "version")}
KINDS: dict[str, str] = {id: rest.partition('"')[0] for id, _, rest in _EXPORTS}
OPS = {"tool.invoke": "tool", "hook.handle": "hook", "compactor.compact": "compactor", "harness.run": "harness"}

cancels: dict[str, threading.Event] = {}
"""Of each request that is being worked on."""
workers: list[threading.Thread] = []
writing = threading.Lock()


# Frames.


def line() -> bytes:
    """The next line of a header; nothing at the end of the input."""
    return sys.stdin.buffer.readline(4097)


def length() -> int:
    """How long the next body is; -1 at the end of the input."""
    size = -1
    while (found := line()) != b"\r\n":
        name, _, value = found.partition(b":")
        if not found:
            return -1
        if name.strip().lower() == b"content-length":
            size = int(value)
    return size if 0 <= size <= MAX_BODY else sys.exit("broken length")


def body() -> bytes | None:
    """The next body; None at the end of the input."""
    size = length()
    data = sys.stdin.buffer.read(size) if size >= 0 else b""
    return data if len(data) == size else None


def write(data: bytes) -> None:
    """These very bytes, all of them and nothing in between."""
    with writing:
        while data:
            data = data[os.write(1, data) :]


def framed(text: str) -> bytes:
    data = text.encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(data), data)


def say(**message: Any) -> None:
    write(framed(json.dumps({"protocol": PROTOCOL, **message}, ensure_ascii=False)))


def respond(request: Message, **body: Any) -> None:
    say(type="response", id=request["id"], ok=True, body=body)


def refuse(request: Message, code: str, message: str = "no") -> None:
    say(type="response", id=request["id"], ok=False, error={"code": f"protocol.{code}", "message": message})


def tell(request: Message, **event: Any) -> None:
    say(type="event", request_id=request["id"], event=event)


# What a plugin is told.


def hello(message: Message) -> None:
    say(type="hello", role="plugin", plugin=IDENTITY)


def request(message: Message) -> None:
    """Refuse what cannot be done, and do the rest beside whatever else is being done."""
    wanted = message.get("body")
    if message.get("op") not in SERVES:
        refuse(message, "unknown_op", f"there is no {message.get('op')}")
    elif not isinstance(wanted, dict):
        refuse(message, "invalid_frame", "missing body")
    elif KINDS.get(str(wanted.get("export_id"))) != OPS[message["op"]]:
        refuse(message, "unknown_export", "there is no such export")
    else:
        begin(message)


def begin(message: Message) -> None:
    cancels[message["id"]] = threading.Event()
    worker = threading.Thread(target=work, args=(message,), daemon=True)
    workers.append(worker)
    worker.start()


def work(message: Message) -> None:
    outcome = attempt(message)
    del cancels[message["id"]]
    finish(message, outcome)


def attempt(message: Message) -> Message:
    """What came of a request; a handler that raises has failed."""
    try:
        return SERVES[message["op"]](message)
    except Exception as error:
        return failed(error)


def failed(error: Exception) -> Message:
    return {"status": "failed", "error": {"code": "canary.failed", "message": type(error).__name__}}


def finish(message: Message, outcome: Message) -> None:
    respond(message, **outcome)


def cancel(message: Message) -> None:
    found = cancels.get(message["request_id"])
    if found is not None:
        found.set()


def shutdown(message: Message) -> None:
    leave()


def leave() -> None:
    """Give up what is being worked on, and go."""
    for event in list(cancels.values()):
        event.set()
    for worker in workers:
        worker.join(LEAVE_SECONDS)
    os._exit(0)


# What a plugin does.


def tool(message: Message) -> Message:
    return {"status": "succeeded", "result": {"content": [{"type": "text", "text": "hello"}]}}


def hook(message: Message) -> Message:
    return {"status": "ack"}


SERVES: dict[str, Callable[[Message], Message]] = {"tool.invoke": tool, "hook.handle": hook}
HEARS: dict[str, Callable[[Message], None]] = {}


def hear(message: Message) -> None:
    """One frame of the host; one of a type that hosts do not send is the end."""
    known = {"hello": hello, "request": request, "cancel": cancel, "shutdown": shutdown, **HEARS}
    known[message["type"]](message)


def serve() -> None:
    """Hear until the input ends."""
    while (data := body()) is not None:
        hear(json.loads(data))
    leave()
