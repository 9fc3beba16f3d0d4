"""Writes 1 MB to stderr before the first byte to stdout.

stderr is always drained, or the plugin would block: accepted.
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

for number in range(10_000):
    print(f"line {number} of a long story" + "." * 80, file=sys.stderr)
sys.stdin.readline()
print(json.dumps({"type": "handshake", "manifest": HELLO}), flush=True)
request = json.loads(sys.stdin.readline())

print(
    json.dumps({"type": "response", "request_id": request["request_id"], "status": "ok", "output": 1}),
    flush=True,
)
sys.stdin.read()
