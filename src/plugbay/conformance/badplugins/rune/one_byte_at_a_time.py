"""Writes its lines one byte at a time.

A line ends at its newline, however it was cut: accepted.
"""

from __future__ import annotations

import json
import os
import sys

HELLO = {
    "plugin_id": "bad.plugin",
    "plugin_version": "1.0.0",
    "protocol_version": "rterm.plugin.v1",
    "exposed_tools": ["bad.tool"],
}

sys.stdin.readline()


def drip(message: dict[str, object]) -> None:
    for byte in json.dumps(message).encode() + b"\n":
        os.write(1, bytes([byte]))


drip({"type": "handshake", "manifest": HELLO})
request = json.loads(sys.stdin.readline())

drip({"type": "response", "request_id": request["request_id"], "status": "ok", "output": {"said": "hello"}})
sys.stdin.read()
