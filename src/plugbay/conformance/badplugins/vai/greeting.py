"""Says hello otherwise than it should, as KIND says: nothing is ever asked of it."""

from __future__ import annotations

import os
import time

import child
from child import HEARS, IDENTITY, KIND, Message, respond, say, serve, tell, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLUGIN: Message = {"type": "hello", "role": "plugin", "plugin": IDENTITY}

HELLOS: dict[str, Message] = {
    "other_package": {**PLUGIN, "plugin": {**IDENTITY, "package_id": "somebody/else"}},
    "other_case": {**PLUGIN, "plugin": {**IDENTITY, "package_id": IDENTITY["package_id"].upper()}},
    "other_version": {**PLUGIN, "plugin": {**IDENTITY, "version": "1.0.1"}},
    "version_number": {**PLUGIN, "plugin": {**IDENTITY, "version": 1}},
    "no_version": {**PLUGIN, "plugin": {"package_id": IDENTITY["package_id"]}},
    "nobody": {"type": "hello", "role": "plugin"},
    "other_protocol": {**PLUGIN, "protocol": "vai.rpc.v2"},
    "host_role": {**PLUGIN, "role": "host"},
    "no_role": {"type": "hello", "plugin": IDENTITY},
    "no_type": {"role": "plugin", "plugin": IDENTITY},
    "request_first": {"type": "request", "id": "req_1", "op": "tool.invoke", "body": {}},
    "shutdown_first": {"type": "shutdown"},
}


def hello(message: Message) -> None:
    acts: dict[str, Any] = {
        "response_first": lambda: respond({"id": "req_1"}, status="succeeded", result={}),
        "event_first": lambda: tell({"id": "req_1"}, type="progress"),
        "text_first": lambda: write(b"Listening on port 8080\n"),
        "not_json": lambda: write(child.framed("hello")),
        "exits": lambda: os._exit(3),
        "never": lambda: time.sleep(60),
        "ends_in_hello": lambda: (write(b'Content-Length: 200\r\n\r\n{"protocol"'), os._exit(0)),
        "more_fields": lambda: say(**PLUGIN, exports=["bad_tool"], plugin_url="x"),
    }
    acts[KIND]() if KIND in acts else say(**HELLOS[KIND])


if KIND == "speaks_first":
    child.hello({})
    HEARS["hello"] = lambda message: None
else:
    HEARS["hello"] = hello
serve()
