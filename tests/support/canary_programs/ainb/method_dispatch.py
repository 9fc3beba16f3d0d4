"""A plugin with a screen that knows what it is asked; broken: it answers what it should not, or not as it should."""

from __future__ import annotations

import sys

import child
from child import HEARS, KIND, SERVES, Message, answer, handle, picture, refuse, render, say, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

greeted = False


def refuses_init(message: Message) -> None:
    if message.get("method") == "plugin/init":
        refuse(message, -32603, "not today")
    else:
        handle(message)


def dies_of_renders(message: Message) -> None:
    if message.get("method") == "plugin/render":
        sys.exit("no colours")
    handle(message)


def null_for_unknown(message: Message) -> None:
    if "id" in message and message.get("method") not in {*SERVES, None}:
        answer(message, None)
    else:
        handle(message)


def other_code(message: Message) -> None:
    if "no_such_method" in str(message.get("method")):
        refuse(message, -32600)
    else:
        handle(message)


def init_first(message: Message) -> None:
    global greeted
    greeted = greeted or message.get("method") == "plugin/init"
    if greeted:
        handle(message)
    else:
        refuse(message, -32002, "not initialised")


def answers_notifications(message: Message) -> None:
    if str(message.get("method")).startswith("plugin/plugbay_no_such_n"):
        say(id=0, error={"code": -32601, "message": "no such notification"})
    else:
        handle(message)


def short_ids(message: Message) -> None:
    if type(message.get("id")) is int:
        message["id"] &= 0xFFFF
    handle(message)


def dies_of_answers(message: Message) -> None:
    message["method"]
    handle(message)


def answers_keys(message: Message) -> None:
    if message.get("method") == "plugin/handle_key":
        say(id=0, result={})
    else:
        handle(message)


def text_ids(message: Message) -> None:
    if message.get("method") == "plugin/render":
        say(id="r-1", method="host/workspace_list", params={})
    handle(message)


def asks_without_params(message: Message) -> None:
    if message.get("method") == "plugin/render":
        say(id=1, method="host/workspace_list")
    handle(message)


def any_params(params: Message) -> Any:
    viewport = params.get("viewport") or {}
    width, height = viewport.get("width"), viewport.get("height")
    proper = type(width) is int and type(height) is int and width >= 0
    return picture(width, height) if proper else picture(80, 24)


KINDS = {
    each.__name__: each
    for each in (
        refuses_init,
        dies_of_renders,
        null_for_unknown,
        other_code,
        init_first,
        answers_notifications,
        short_ids,
        dies_of_answers,
        answers_keys,
        text_ids,
        asks_without_params,
    )
}

SERVES["plugin/render"] = any_params if KIND == "any_params" else render
HEARS["plugin/handle_key"] = HEARS["plugin/handle_mouse"] = child.ignore
child.handle = KINDS.get(KIND, handle)
serve()
