"""A rune plugin without any SDK: the standard library, no checks, one echo tool."""

from __future__ import annotations

import json
import sys

MANIFEST = {
    "plugin_id": "bench.echo",
    "plugin_version": "1.0.0",
    "protocol_version": "rterm.plugin.v1",
    "exposed_tools": ["echo"],
    "capabilities": [],
}


def say(message: object) -> None:
    """One JSON line to the host."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


sys.stdin.readline()
say({"type": "handshake", "manifest": MANIFEST})
request = json.loads(sys.stdin.readline())
output = {"text": request["input"]["text"]}
say({"type": "response", "request_id": request["request_id"], "status": "ok", "output": output})
sys.stdin.read()
