"""A plugin of the contract `sketch`, copied from MCP: its tools are known only after the greeting."""

from __future__ import annotations

import json
import sys

TOOL = {"name": "sketch_double", "inputSchema": {"type": "object"}}

for line in sys.stdin:
    request = json.loads(line)
    result: object = {}
    if request["method"] == "initialize":
        info = {"name": "sketch", "version": "1.0.0"}
        version = request["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if request["method"] == "tools/list":
        result = {"tools": [TOOL]}
    if request["method"] == "tools/call":
        output = {"doubled": 2 * request["params"]["arguments"]["number"]}
        result = {"content": [], "structuredContent": output}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
