"""A plugin that owns an action and invokes others; broken: it answers none, any, or dies when one times out."""

from __future__ import annotations

import sys

import child
from child import HEARS, KIND, SERVES, Message, ask, b64, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def invoked(params: Message) -> Any:
    if KIND == "any_action":
        return {"payload": ""}
    if params["action"] != child.NAME:
        raise child.Refusal(-32602, "no such action")
    if KIND == "no_payload":
        return {}
    return {"payload": b64(b"done")}


def dispatch(params: Message) -> Any:
    answered = ask("host/action/invoke", action="canary.greet", payload=b64(b"{}"), timeout_ms=100)
    if KIND == "dies_of_timeout" and answered.get("error", {}).get("code") == -32002:
        sys.exit(1)
    return child.dispatch(params)


def action_told(params: Message) -> None:
    if KIND == "dies_of_unknown":
        {"canary.greet": 1}[params["action_id"]]


def handle(message: Message) -> None:
    if KIND == "never_answers" and message.get("method") == "host/action/invoke":
        return
    proper(message)


proper, child.handle = child.handle, handle
SERVES["host/action/invoke"] = invoked
SERVES["plugin/cli_dispatch"] = dispatch
HEARS["plugin/handle_action"] = action_told
serve()
