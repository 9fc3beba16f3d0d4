"""Answers with a line of exactly 1 MiB and blanks around it.

The limit holds for the trimmed line: accepted.
"""

from __future__ import annotations

import json
import sys

LIMIT = 1_048_576
HELLO = {
    "plugin_id": "bad.plugin",
    "plugin_version": "1.0.0",
    "protocol_version": "rterm.plugin.v1",
    "exposed_tools": ["bad.tool"],
}

sys.stdin.readline()
print(json.dumps({"type": "handshake", "manifest": HELLO}), flush=True)
request = json.loads(sys.stdin.readline())

head = json.dumps({"type": "response", "request_id": request["request_id"], "status": "ok"})[:-1] + ', "output": "'
tail = '"}'
line = head + "a" * (LIMIT - len(head) - len(tail)) + tail
print("  " + line + " \r", flush=True)
sys.stdin.read()
