"""Answers initialize as KIND says, some of it merely odd and accepted, most of it wrong.

What is wrong is handshake_failed, protocol_version_mismatch or capability_not_declared; silence is a timeout, and who
leaves has crashed.
"""

from __future__ import annotations

import sys

from child import IDENTITY, KIND, Message, answer, greet, read, refuse, say, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OVER: dict[str, dict[str, Any]] = {
    "other_name": {"name": "somebody"},
    "name_number": {"name": 7},
    "other_api": {"api_version": 2},
    "api_text": {"api_version": "1"},
    "api_boolean": {"api_version": True},
    "version_number": {"version": 1},
    "other_version": {"version": "9.9.9"},
    "extra_method": {"methods": ["bad.bad_tool", "bad.look.around", "bad.delete_all"]},
    "reserved_method": {"methods": ["kaged.storage.get"]},
    "bare_tool": {"methods": ["bad_tool"]},
    "methods_null": {"methods": None},
    "methods_numbers": {"methods": [1]},
    "no_methods": {"methods": []},
    "notifications_object": {"notifications": {}},
    "extra_notification": {"notifications": ["changed", "moved"]},
    "capabilities_text": {"capabilities_used": "kaged:storage:read"},
    "extra_capability": {"capabilities_used": ["kaged:storage:read", "net:*"]},
    "more_keys": {"mood": {"today": ["good"]}},
}


def _without(key: str) -> dict[str, Any]:
    return {name: value for name, value in IDENTITY.items() if name != key}


def _twice(request: Message) -> None:
    answer(request, IDENTITY)
    answer(request, IDENTITY)


WAYS: dict[str, Callable[[Message], object]] = {
    "null": lambda request: answer(request, None),
    "list": lambda request: answer(request, [IDENTITY]),
    "text": lambda request: answer(request, "hello"),
    "no_api_version": lambda request: answer(request, _without("api_version")),
    "no_capabilities": lambda request: answer(request, _without("capabilities_used")),
    "error": lambda request: refuse(request, -32603),
    "both": lambda request: say(id=request["id"], result=IDENTITY, error={"code": -32603, "message": "no"}),
    "neither": lambda request: say(id=request["id"]),
    "twice": _twice,
    "other_id": lambda request: say(id=2, result=IDENTITY),
    "text_id": lambda request: say(id="1", result=IDENTITY),
    "zero_id": lambda request: say(id=0, result=IDENTITY),
    "never": lambda request: None,
    "exit_0": lambda request: sys.exit(0),
    "exit_1": lambda request: sys.exit("cannot go on"),
}

if KIND in WAYS:
    WAYS[KIND](read())
else:
    greet(**OVER[KIND])
serve()
