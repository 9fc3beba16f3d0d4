"""Answers a command line otherwise than the contract says, as KIND says.

malformed_response, timeout, or the plugin's own error with its code; some of it is accepted.
"""

from __future__ import annotations

import child
from child import KIND, Message, b64, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WELL: Message = {"stdout": b64(b"hello\n"), "stderr": "", "exit_code": 0}

ANSWERS: dict[str, Message] = {
    "null": {"result": None},
    "nothing": {},
    "text": {"result": "hello"},
    "array": {"result": [WELL]},
    "no_stdout": {"result": {"stderr": "", "exit_code": 0}},
    "no_exit_code": {"result": {"stdout": "", "stderr": ""}},
    "stdout_null": {"result": {**WELL, "stdout": None}},
    "stdout_text": {"result": {**WELL, "stdout": "hello there\n"}},
    "stdout_unpadded": {"result": {**WELL, "stdout": "aGVsbG8"}},
    "stdout_array": {"result": {**WELL, "stdout": [104, 105, 10]}},
    "stdout_array_of_300": {"result": {**WELL, "stdout": [300]}},
    "status_large": {"result": {**WELL, "exit_code": 2**31}},
    "status_float": {"result": {**WELL, "exit_code": 0.5}},
    "status_boolean": {"result": {**WELL, "exit_code": True}},
    "status_text": {"result": {**WELL, "exit_code": "0"}},
    "status_negative": {"result": {**WELL, "exit_code": -1}},
    "more_keys": {"result": {**WELL, "seconds": 3}},
    "both": {"result": WELL, "error": {"code": -32603, "message": "both"}},
    "null_error": {"result": WELL, "error": None},
    "error_text": {"error": "no"},
    "error_empty": {"error": {}},
    "error_code_text": {"error": {"code": "-32601", "message": "no"}},
    "not_found": {"error": {"code": -32601, "message": "method not found"}},
    "invalid_params": {"error": {"code": -32602, "message": "no"}},
    "denied": {"error": {"code": -32001, "message": "capability denied: network"}},
    "timed_out": {"error": {"code": -32002, "message": "action timed out: x"}},
    "own_error": {"error": {"code": 7, "message": "own", "data": {"a": 1}}},
}


def handle(message: Message) -> None:
    if message.get("method") != "plugin/cli_dispatch":
        proper(message)
    elif KIND == "text_id":
        say(id=str(message["id"]), result=WELL)
    elif KIND == "other_id":
        say(id=message["id"] + 1000, result=WELL)
    elif KIND == "twice":
        say(id=message["id"], result=WELL)
        say(id=message["id"], result=WELL)
    elif KIND != "never":
        say(id=message["id"], **ANSWERS[KIND])


proper: Any = child.handle
child.handle = handle
child.serve()
