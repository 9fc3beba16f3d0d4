"""A plugin of the contract `sketch`, copied from rune: one handshake, one request, then it exits."""

from __future__ import annotations

import json
import sys

assert json.loads(sys.stdin.readline()) == {"type": "handshake", "protocol_version": "sketch.v1"}
about = {
    "plugin_id": "sketch.plugin",
    "plugin_version": "1.0.0",
    "protocol_version": "sketch.v1",
    "exposed_tools": ["sketch_double"],
}
print(json.dumps({"type": "handshake", "manifest": about}), flush=True)
request = json.loads(sys.stdin.readline())
output = {"doubled": 2 * request["input"]["number"]}
answer = {"type": "response", "request_id": request["request_id"], "status": "ok", "output": output}
print(json.dumps(answer), flush=True)
