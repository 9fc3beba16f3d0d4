"""Writes lines of binary junk before its handshake.

The first line is the handshake, whatever it holds: malformed_response.
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

sys.stdout.buffer.write(bytes(range(128, 256)) + b"\n\0\0\0\n")
sys.stdin.readline()
print(json.dumps({"type": "handshake", "manifest": HELLO}), flush=True)
sys.stdin.read()
