"""A plugin of the contract `sketch`, copied from nexo: it answers requests until its input ends."""

from __future__ import annotations

import json
import sys

TOOL = {"name": "sketch_double", "description": "Doubles a number.", "input_schema": {"type": "object"}}
ABOUT = {"id": "sketch", "version": "1.0.0", "name": "Sketch"}

for line in sys.stdin:
    request = json.loads(line)
    result: object = {}
    if request["method"] == "initialize":
        assert "sketch_version" in request["params"]
        result = {"manifest": {"plugin": ABOUT}, "tools": [TOOL]}
    if request["method"] == "tool.invoke":
        result = {"doubled": 2 * request["params"]["args"]["number"]}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
