"""Prints 300 KB after its response.

The host stops reading after the answer, so the pipe fills and the plugin cannot leave: crashed.
"""

from __future__ import annotations

import json
import sys

HELLO = {
    "plugin_id": "bad.plugin",
    "plugin_version": "1.0.0",
    "protocol_version": "rterm.plugin.v1",
    "exposed_tools": ["bad.tool"],
}

sys.stdin.readline()
print(json.dumps({"type": "handshake", "manifest": HELLO}), flush=True)
request = json.loads(sys.stdin.readline())

print(json.dumps({"type": "response", "request_id": request["request_id"], "status": "ok"}), flush=True)
print("a" * 300_000, flush=True)
sys.stdin.read()
