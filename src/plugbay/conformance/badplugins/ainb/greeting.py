"""Answers plugin/init otherwise than its manifest, as KIND says.

handshake_failed, timeout, crashed or protocol_version_mismatch; another name or shape is accepted with a warning.
"""

from __future__ import annotations

import sys

import child
from child import KIND, SERVES, Message, say, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLUGIN = {"name": "bad", "version": "1.0.0", "abi_version": 2}

RESULTS: dict[str, Any] = {
    "other_name": {**PLUGIN, "name": "somebody"},
    "other_version": {**PLUGIN, "version": "9.9.9"},
    "in_manifest": {"manifest": {"plugin": PLUGIN}},
    "empty": {},
    "null": None,
    "text": "hello",
    "array": [],
    "other_abi": {**PLUGIN, "abi_version": 3},
    "abi_in_manifest": {"manifest": {"plugin": {**PLUGIN, "abi_version": 1}}},
    "abi_text": {**PLUGIN, "abi_version": "2"},
    "abi_boolean": {**PLUGIN, "abi_version": True},
}


def init(params: Message) -> Any:
    if KIND == "refuses":
        raise child.Refusal(-32003, "the manifest is not mine")
    if KIND == "exits":
        sys.exit(3)
    if KIND == "never":
        while True:
            child.read()
    if KIND == "twice":
        say(id=1, result=PLUGIN)
    return RESULTS.get(KIND, PLUGIN)


SERVES |= {"plugin/init": init, "plugin/cli_dispatch": child.dispatch}
serve()
