"""Answers with 300,000 empty arrays.

The number of values is bounded, or one line costs a hundred times its size: malformed_response.
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

head = json.dumps({"type": "response", "request_id": request["request_id"], "status": "ok"})[:-1] + ', "output": '
print(head + "[" + "[]," * 300_000 + "[]]" + "}", flush=True)
sys.stdin.read()
