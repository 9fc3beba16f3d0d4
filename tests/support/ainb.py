"""Ainb plugins for tests: a folder with a manifest and a child in plain Python, no SDK. A test writes what is special.

The body may define `render(params, m)`, `cli_dispatch(params, m)`, `action(params, m)`, `handle_key(params)`,
`handle_mouse(params)`, `handle_event(params)` and `handle_action(params)`, replace `init(m)` and `shutdown(m)`, and say
things on its own with `send`, `reply`, `fail`, `notify`, `request`, `raw` and `publish`. `picture(params, *lines)` is a
result of `plugin/render` that shows these lines; `b64` and `unb64` are what bytes look like on the wire.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.openings import FLAG, OPENING

_CHILD = """#!{python} {flag}
{opening}
import _thread, binascii

NAME = {name!r}
keys, events = [], []
_lock = _thread.allocate_lock()

def raw(data):
    with _lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

def send(**message):
    body = json.dumps({{"jsonrpc": "2.0", **message}}, ensure_ascii=False).encode()
    raw(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body))

def reply(m, result):
    send(id=m["id"], result=result)

def fail(m, code, message, **data):
    send(id=m["id"], error={{"code": code, "message": message, **({{"data": data}} if data else {{}})}})

def notify(method, **params):
    send(method=method, params=params)

def request(id, method, **params):
    send(id=id, method=method, params=params)

def b64(data):
    return binascii.b2a_base64(data, newline=False).decode()

def unb64(text):
    return binascii.a2b_base64(text, strict_mode=True)

def publish(topic, data):
    notify("host/snapshot/publish", topic=topic, payload=b64(data))

def picture(params, *lines, **more):
    at = [(x, y, symbol) for y, line in enumerate(lines) for x, symbol in enumerate(line)]
    cells = [[{{"x": x, "y": y}}, {{"symbol": symbol, "modifier": 0}}] for x, y, symbol in at]
    return {{"buffer": {{**params["viewport"], "cells": cells}}, "redraw": False, "captures_text": False, **more}}

def init(m):
    global greeting
    greeting = m["params"]
    reply(m, {{"name": NAME, "version": "1.0.0", "abi_version": 2}})

def shutdown(m):
    if "id" in m:
        reply(m, {{}})

def render(params, m):
    size = "{{width}}x{{height}}".format(**params["viewport"])
    reply(m, picture(params, NAME + " " + size, "keys " + " ".join(keys)))

def cli_dispatch(params, m):
    words = " ".join([params["namespace"], *params["argv"]])
    reply(m, {{"stdout": b64(words.encode() + b"\\n"), "stderr": "", "exit_code": 0}})

def action(params, m):
    reply(m, {{"payload": params["payload"]}})

def handle_key(params):
    code = params["key"]["code"]
    keys.append(code.get("ch") or code["type"])

def handle_mouse(params):
    pass

def handle_event(params):
    events.append((params["topic"], unb64(params["payload"])))

def handle_action(params):
    pass

def answered(m):
    pass

{body}

_REQUESTS = {{"plugin/render": "render", "plugin/cli_dispatch": "cli_dispatch", "host/action/invoke": "action"}}

def _read():
    size = 0
    while (line := sys.stdin.buffer.readline()) not in (b"\\r\\n", b""):
        size = int(line.partition(b":")[2])
    return json.loads(sys.stdin.buffer.read(size)) if line else None

while (m := _read()) is not None:
    method, params = m.get("method"), m.get("params")
    if method is None:
        answered(m)
    elif method in ("plugin/init", "plugin/shutdown"):
        globals()[method.removeprefix("plugin/")](m)
    elif method in _REQUESTS:
        globals()[_REQUESTS[method]](params, m)
    elif method.startswith("plugin/handle_") and method.removeprefix("plugin/") in globals():
        globals()[method.removeprefix("plugin/")](params)
    elif "id" in m:
        fail(m, -32601, "method not found: " + method)
"""


def write_ainb_plugin(
    folder: Path,
    name: str = "p",
    body: str = "",
    *,
    screens: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    capabilities: dict[str, Any] | None = None,
    subscribes: dict[str, Any] | None = None,
    lifecycle: dict[str, Any] | None = None,
    more: str = "",
    **plugin: Any,
) -> Path:
    """A plugin folder in `folder`, named after the plugin; `plugin` replaces or adds keys of `[plugin]`."""
    root = folder / name
    root.mkdir(parents=True, exist_ok=True)
    sections: dict[str, dict[str, Any]] = {
        "plugin": {"name": name, "version": "1.0.0", "abi_version": 2, "description": "A test.", **plugin},
        "capabilities": capabilities or {},
        "provides": {"screens": list(screens), "cli_namespaces": list(namespaces)},
        "subscribes": subscribes or {},
        "lifecycle": lifecycle or {},
    }
    text = "\n".join(f"[{title}]\n{_lines(values)}" for title, values in sections.items())
    root.joinpath("manifest.toml").write_text(f"{text}\n{more}\n")
    program = root / name
    began = {"python": sys.executable, "flag": FLAG, "opening": OPENING}
    program.write_text(_CHILD.format(**began, name=name, body=textwrap.dedent(body)))
    program.chmod(0o755)
    return root


def _lines(values: dict[str, Any]) -> str:
    """JSON's texts, numbers, booleans and lists are TOML's too; a key in quotes is a key."""
    return "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())
