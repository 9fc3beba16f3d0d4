"""A man in the middle: runs a plugin, passes on what is said, and gets one thing wrong.

    python3 -I -S meddler.py CONTRACT MUTATION COMMAND…

Knows the framing of each contract and which of its messages is which, and no plugin.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

CONTRACT, MUTATION, *COMMAND = sys.argv[1:]
BY_LENGTH = CONTRACT in ("ainb", "vai")
SLOW_SECONDS = {"rune": 3, "nexo": 6, "kaged": 11, "ainb": 16, "vai": 16, "mcp": 16}
"""Longer than a greeting may take."""

Message = dict[str, Any]
asked: dict[Any, str] = {}
"""What each request asks for, by its id."""

GREETINGS = ("handshake", "hello", "initialize", "plugin/init")
GOOD_BYES = ("shutdown", "plugin/shutdown")
NO_CALLS = (*GREETINGS, *GOOD_BYES, "health.check", "ping", "")


def messages(stream: IO[bytes]) -> Iterator[tuple[bytes, Any]]:
    """Each message as it came, and what it says; None when that cannot be read."""
    while head := stream.readline():
        if not BY_LENGTH:
            yield head, read(head)
            continue
        while (line := stream.readline()) not in (b"\r\n", b""):
            head += line
        lengths = [line for line in head.splitlines() if line.strip().lower().startswith(b"content-length")]
        body = stream.read(int(lengths[-1].split(b":")[1]))
        yield head + b"\r\n" + body, read(body)


def read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def framed(message: Any) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body if BY_LENGTH else body + b"\n"


def named(message: Message) -> str:
    """What a message of the host is about: its method, its op, its tool, its type."""
    return str(next((message[key] for key in ("method", "op", "tool_name", "type") if key in message), ""))


def is_greeting(message: Message) -> bool:
    """Whether this is the plugin's answer to being greeted."""
    if CONTRACT in ("rune", "vai"):
        return message.get("type") in GREETINGS
    return "method" not in message and asked.get(message.get("id")) in GREETINGS


def is_answer(message: Message) -> bool:
    """Whether this answers a call."""
    id = message.get("request_id" if CONTRACT == "rune" else "id")
    return "method" not in message and message.get("type") in (None, "response") and is_call(asked.get(id, ""))


def is_call(name: str) -> bool:
    """Whether this is something that a plugin offers; what the kit makes up has its own name in it."""
    return name not in NO_CALLS and "plugbay" not in name


# What goes wrong on the way to the host.


def wrong_version(message: Message) -> list[bytes]:
    said = {
        "rune": lambda: message["manifest"].update(protocol_version="rterm.plugin.v9"),
        "nexo": lambda: message["result"]["manifest"]["plugin"].update(version="9.9.9"),
        "kaged": lambda: message["result"].update(api_version=9),
        "ainb": lambda: message["result"].update(version="9.9.9", abi_version=9),
        "vai": lambda: message["plugin"].update(version="9.9.9"),
        "mcp": lambda: message["result"].update(protocolVersion="2099-12-31"),
    }
    said[CONTRACT]()
    return [framed(message)]


def wrong_type(message: Message) -> list[bytes]:
    key = {"rune": "manifest", "vai": "plugin"}.get(CONTRACT, "result")
    return [framed({**message, key: "a text"})]


def extra_stdout(message: Message) -> list[bytes]:
    return [b"warming up ...\n", framed(message)]


def slow_init(message: Message) -> list[bytes]:
    time.sleep(SLOW_SECONDS[CONTRACT])
    return [framed(message)]


def greets_twice(message: Message) -> list[bytes]:
    return [framed(message)] * 2


def missing_tool(message: Message) -> list[bytes]:
    if is_greeting(message) and CONTRACT == "rune":
        message["manifest"]["exposed_tools"][0] += ".gone"
    elif is_greeting(message) and CONTRACT == "nexo":
        message["result"]["tools"] = []
    elif is_answer(message) and CONTRACT == "vai":
        error = {"code": "protocol.unknown_export", "message": "there is no such export"}
        message = {"protocol": "vai.rpc.v1", "type": "response", "id": message["id"], "ok": False, "error": error}
    elif is_answer(message) and CONTRACT in ("kaged", "ainb", "mcp"):
        refusal: Message = {"code": -32601, "message": "method not found"}
        message = {"jsonrpc": "2.0", "id": message["id"], "error": refusal}
    return [framed(message)]


def wrong_id(message: Message) -> list[bytes]:
    key = "request_id" if CONTRACT == "rune" else "id"
    other = message[key] + 1000 if isinstance(message[key], int) else f"{message[key]}x"
    return [framed({**message, key: other})]


OF_GREETINGS: dict[str, Callable[[Message], list[bytes]]] = {
    "wrong_version": wrong_version,
    "wrong_type": wrong_type,
    "extra_stdout": extra_stdout,
    "slow_init": slow_init,
    "greets_twice": greets_twice,
    "missing_tool": missing_tool,
}
OF_ANSWERS = {"missing_tool": missing_tool, "wrong_id": wrong_id}


def meddled(raw: bytes, message: Any) -> list[bytes]:
    """What the host gets for a message of the plugin."""
    if not isinstance(message, dict):
        return [raw]
    meddle = OF_GREETINGS.get(MUTATION) if is_greeting(message) else None
    if meddle is None and is_answer(message):
        meddle = OF_ANSWERS.get(MUTATION)
    return [raw] if meddle is None else meddle(message)


# What goes wrong on the way to the plugin.


def to_plugin(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    for raw, message in messages(sys.stdin.buffer):
        if isinstance(message, dict):
            asked[message.get("request_id", message.get("id"))] = name = named(message)
            if MUTATION == "dies_mid_call" and is_call(name):
                child.kill()
                os._exit(7)
            if MUTATION == "ignores_shutdown" and name in GOOD_BYES:
                continue
        child.stdin.write(raw)
        child.stdin.flush()
    if MUTATION == "ignores_end_of_input":
        time.sleep(600)
    child.stdin.close()


def main() -> int:
    if MUTATION == "leaves_a_process":
        subprocess.Popen(["sleep", "600"], stdin=-3, stdout=-3, stderr=-3, start_new_session=True)
    child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    threading.Thread(target=to_plugin, args=(child,), daemon=True).start()
    for raw, message in messages(child.stdout):
        for piece in meddled(raw, message):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    if MUTATION == "leaves_with_3":
        return 3
    status = child.wait()
    return 7 if status == -signal.SIGKILL else status  # then the other thread is about to leave with this as well


if __name__ == "__main__":
    os._exit(main())
