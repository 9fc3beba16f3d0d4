"""Answers with arrays nested 100,000 deep.

Nesting is bounded, or a few bytes cost a stack: malformed_response.
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
print(head + "[" * 100_000 + "]" * 100_000 + "}", flush=True)
sys.stdin.read()
