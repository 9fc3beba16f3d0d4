"""Plugins by hand, without an SDK: each keeps its contract's text and takes a liberty that the text leaves open.

A liberty is named by the first argument of the program; without one, the plugin also follows the advice of the kit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from plugbay.host.discovery.folders import inspect
from plugbay.model.spec import PluginSpec

RUNE = r"""
import json, sys
liberty = sys.argv[1]

def say(message):
    print(json.dumps(message), flush=True)

if not sys.stdin.readline():
    sys.exit(0)
IDENTITY = {"plugin_id": "foreign", "plugin_version": "1.0.0", "protocol_version": "rterm.plugin.v1"}
HELLO = {**IDENTITY, "exposed_tools": ["t"]}
say({"type": "handshake", "manifest": {**HELLO, **({"capabilities": ["net"]} if liberty == "declares_more" else {})}})
asked = sys.stdin.readline()
if asked:
    request = json.loads(asked)
    answer = {"type": "response", "request_id": request["request_id"]}
    if request["tool_name"] == "t":
        say({**answer, "status": "ok", "output": {}})
    else:
        say({**answer, "status": "error", "error": {"code": "not_found", "message": "there is no such tool"}})
    if liberty != "leaves_early":
        sys.stdin.read()
sys.exit(3 if liberty == "leaves_with_3" else 0)
"""

NEXO = r"""
import json, sys, threading, time
liberty = sys.argv[1]
TOOL = {"name": "foreign_t", "description": "t", "input_schema": {"type": "object"}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1}

def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()

def publish():
    event = {"topic": "plugin.inbound.pigeon", "source": "foreign", "payload": {}}
    say(method="broker.publish", params={"topic": "plugin.inbound.pigeon", "event": event})

def refuse(id, code):
    say(id=id, error={"code": code, "message": "no"})

if liberty == "publishes_early":
    publish()
for line in sys.stdin.buffer:
    if liberty == "dies_of_long_lines" and len(line) > 1 << 20:
        sys.exit(1)
    if liberty == "dies_of_blank_lines" and not line.strip():
        sys.exit(1)
    if len(line) > 1 << 20 or not line.strip():
        continue
    try:
        message = json.loads(line)
    except ValueError:
        refuse(None, -32700)
        continue
    if not isinstance(message, dict) or "method" not in message:
        continue
    id, method, params = message.get("id"), message["method"], message.get("params") or {}
    if id is None:
        continue
    if method == "initialize":
        plugin = {"id": "foreign", "version": "1.0.0"}
        say(id=id, result={"manifest": {"plugin": plugin}, "server_version": "1", "tools": [TOOL]})
    elif method == "tool.invoke" and params.get("tool_name") != "foreign_t":
        refuse(id, -33401)
    elif method == "tool.invoke":
        later = threading.Timer(0.3 if liberty == "overtakes_calls" else 0, say, kwargs={"id": id, "result": {}})
        later.start()
        if liberty != "overtakes_calls":
            later.join()
    elif method.startswith("channel.") and params["kind"] != "pigeon" and liberty != "takes_any_name":
        refuse(id, -33005)
    elif method == "channel.send_outbound":
        say(id=id, result={"message_id": "1", "sent_at_unix": 1})
    elif method in ("channel.start", "channel.stop"):
        say(id=id, result={"ok": True})
    elif method == "llm.chat" and params["provider"] != "parrot" and liberty != "takes_any_name":
        refuse(id, -33104)
    elif method == "llm.chat":
        content = {"type": "text", "text": "hi"}
        say(id=id, result={"content": content, "usage": USAGE, "finish_reason": {"kind": "stop"}})
    elif method == "shutdown":
        say(id=id, result={"ok": True})
        if liberty == "stays":
            time.sleep(60)
        if liberty == "overtakes_calls":
            time.sleep(0.5)
        break
    else:
        refuse(id, -32601)
"""

KAGED = r"""
import json, sys
liberty = sys.argv[1]
ME = {"name": "foreign", "version": "1.0.0", "api_version": 1, "notifications": ["foreign.started"]}

def write(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()

def answer(message):
    if not isinstance(message, dict):
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Invalid Request"}}
    if "id" not in message or "method" not in message:
        return None
    method, reply = message["method"], {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        return {**reply, "result": {**ME, "methods": ["foreign.t"], "capabilities_used": []}}
    if method in ("health.check", "shutdown", "foreign.t"):
        return {**reply, "result": {}}
    return {**reply, "error": {"code": -32601, "message": "Method not found"}}

if liberty == "notifies_early":
    write({"jsonrpc": "2.0", "method": "foreign.started", "params": {}})
for line in sys.stdin.buffer:
    if not line.strip():
        if liberty == "dies_of_blank_lines":
            sys.exit(1)
        continue
    try:
        message = json.loads(line)
    except ValueError:
        write({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}})
        continue
    if isinstance(message, list) and message and liberty == "answers_batches":
        write([reply for each in message if (reply := answer(each))])
        continue
    reply = answer(message)
    if reply:
        write(reply)
"""

FRAMES = r"""
import base64, json, sys
liberty = sys.argv[1]

def read():
    length, headers = None, 0
    while (line := sys.stdin.buffer.readline()).strip():
        headers += 1
        length = int(line.split(b":")[1])
    if headers > 1 and liberty == "refuses_repeated_headers":
        sys.exit(1)
    if length is None:
        sys.exit(0)
    return json.loads(sys.stdin.buffer.read(length) or b"null")

def write(message):
    body = json.dumps(message).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()
"""

AINB = (
    FRAMES
    + r"""
while True:
    message = read()
    if not isinstance(message, dict) or "method" not in message:
        continue
    id, method, params = message.get("id"), message["method"], message.get("params") or {}
    if id is None:
        if method == "plugin/shutdown" and liberty == "answers_only_requests":
            import time
            time.sleep(60)
        continue
    reply = {"jsonrpc": "2.0", "id": id}
    if method == "plugin/init":
        write({**reply, "result": {"name": "foreign", "version": "1.0.0", "abi_version": 2}})
    elif method == "plugin/render":
        view = params.get("viewport")
        if not isinstance(view, dict) or not all(type(size) is int and size >= 0 for size in view.values()):
            write({**reply, "error": {"code": -32602, "message": "Invalid params"}})
            continue
        far = [[{"x": view["width"] + 5, "y": 0}, {"symbol": "x", "modifier": 0}]]
        cells = [[{"x": 0, "y": 0}, {"symbol": "x", "modifier": 0}]] + (far if liberty == "draws_outside" else [])
        write({**reply, "result": {"buffer": {**view, "cells": cells}}})
    elif method == "plugin/shutdown":
        write({**reply, "result": {}})
    else:
        write({**reply, "error": {"code": -32601, "message": "Method not found"}})
"""
)

VAI = (
    FRAMES
    + r"""
V = {"protocol": "vai.rpc.v1"}
RESULT = {"content": [{"type": "text", "text": "hi"}], "structured_output": {}, "is_error": False, "retryable": False}

def answer(id, status, **more):
    write({**V, "type": "response", "id": id, "ok": True, "body": {"status": status, **more}})

def refuse(id, code):
    write({**V, "type": "response", "id": id, "ok": False, "error": {"code": code, "message": "no"}})

while True:
    message = read()
    kind, id = message["type"], message.get("id")
    if kind == "hello":
        write({**V, "type": "hello", "role": "plugin", "plugin": {"package_id": "acme/foreign", "version": "1.0.0"}})
    elif kind == "shutdown":
        break
    elif kind != "request":
        continue
    elif not isinstance(message.get("body"), dict):
        refuse(id, "protocol.invalid_frame")
    elif message["op"] == "tool.invoke" and message["body"].get("export_id") == "t":
        answer(id, "succeeded", result=RESULT)
    elif liberty == "ignores_unknown":
        continue
    elif liberty == "dies_of_unknown":
        sys.exit(1)
    elif liberty == "answers_unknown":
        answer(id, "failed")
    else:
        refuse(id, "protocol.unknown_export" if message["op"] == "tool.invoke" else "protocol.unknown_op")
"""
)

COMMAND = [sys.executable, "-I", "-S", "plugin.py"]

NEXO_MANIFEST = """[plugin]
id = "foreign"
version = "1.0.0"
name = "Foreign"
description = "by hand"
min_nexo_version = ">=0.1.0"

[plugin.entrypoint]
command = {command}
args = {args}

[[plugin.channels.register]]
kind = "pigeon"
adapter = "A"

[plugin.extends]
tools = ["foreign_t"]
channels = ["pigeon"]
llm_providers = ["parrot"]
"""

VAI_MANIFEST = """api_version = "vai.plugin.v1"
package_id = "acme/foreign"
version = "1.0.0"
name = "Foreign"

[runtime]
protocol = "vai.rpc.v1"
transport = "stdio"
entrypoint = ["./foreign"]
os = ["linux", "darwin"]
arch = ["amd64", "arm64"]

[[exports]]
id = "t"
kind = "tool"
display_name = "T"
default_timeout_ms = 5000

[exports.tool]
effect_class = "read_only"
input_schema = "input.json"
"""

AINB_MANIFEST = """[plugin]
name = "foreign"
version = "1.0.0"
abi_version = 2

[provides]
screens = ["main"]
"""


def write_plugin(folder: Path, contract: str, liberty: str = "none") -> Path:
    """The folder of the foreign plugin of this contract, which takes this liberty."""
    folder = folder / "foreign"
    folder.mkdir()
    source = {"rune": RUNE, "nexo": NEXO, "kaged": KAGED, "ainb": AINB, "vai": VAI}[contract]
    (folder / "plugin.py").write_text(source, "utf-8")
    argv = [*COMMAND, liberty]
    if contract == "rune":
        process = {"command": argv[0], "args": argv[1:]}
        manifest = {"plugin_id": "foreign", "plugin_version": "1.0.0", "protocol_version": "rterm.plugin.v1"}
        _write(folder / "rterm-plugin.json", json.dumps({**manifest, "process": process, "tools": [{"name": "t"}]}))
    elif contract == "nexo":
        _write(
            folder / "nexo-plugin.toml", NEXO_MANIFEST.format(command=json.dumps(argv[0]), args=json.dumps(argv[1:]))
        )
    elif contract == "kaged":
        more = {"methods": ["foreign.t"], "notifications": ["foreign.started"], "command": argv}
        facts = {"name": "foreign", "version": "1.0.0", "kaged_api": 1, "description": "by hand"}
        _write(folder / "manifest.yaml", json.dumps({**facts, **more}))
    elif contract == "ainb":
        _write(folder / "manifest.toml", AINB_MANIFEST)
    else:
        _write(folder / "vai-plugin.toml", VAI_MANIFEST)
        _write(folder / "input.json", '{"type": "object"}')
    script = folder / "foreign"
    _write(script, f'#!/bin/sh\ncd "$(dirname "$0")" && exec {" ".join(argv)}\n')
    script.chmod(0o755)
    return folder


def load_plugin(folder: Path, contract: str, liberty: str = "none") -> PluginSpec:
    found = inspect(write_plugin(folder, contract, liberty), contract)
    assert found.spec is not None, found.problems
    return found.spec


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
