"""Leaves a process that has left its session.

Whatever a plugin started ends with it, wherever it went: accepted, and nothing may be left.
"""

from __future__ import annotations

import json
import os
import sys
import time

HELLO = {
    "plugin_id": "bad.plugin",
    "plugin_version": "1.0.0",
    "protocol_version": "rterm.plugin.v1",
    "exposed_tools": ["bad.tool"],
}

sys.stdin.readline()
print(json.dumps({"type": "handshake", "manifest": HELLO}), flush=True)
request = json.loads(sys.stdin.readline())

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3):
            os.close(fd)
        time.sleep(600)
    os._exit(0)
os.wait()
print(
    json.dumps({"type": "response", "request_id": request["request_id"], "status": "ok", "output": 1}),
    flush=True,
)
sys.stdin.read()
