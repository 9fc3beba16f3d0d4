"""A plugin that leaves when it should; broken: it does not, not well, or not alone."""

from __future__ import annotations

import sys
import time

import child
from child import HEARS, KIND, SERVES, Message, ask, say, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def init(params: Message) -> Any:
    ask("host/workspace_list")
    return child.init(params)


def shutdown(params: Message) -> Any:
    if KIND == "leaves_a_child":
        from subprocess import DEVNULL, Popen  # loading it takes as long as starting the interpreter

        Popen(["/bin/sleep", "600"], stdin=DEVNULL, stdout=DEVNULL)
    return None if KIND == "acks_with_null" else {}


def told(params: Message) -> None:
    if KIND == "only_requests":
        params["id"]
    if KIND == "answers_notification":
        say(id=0, result={})


def body() -> bytes:
    """The next body, and what happens when there is none."""
    try:
        return bytes(proper())
    except SystemExit:
        if KIND == "stays":
            time.sleep(600)
        sys.exit(3)


def asked(method: str, /, **params: Any) -> Message:
    """Waits for the host for ever, and ignores the end of its input meanwhile."""
    say(id=1, method=method, params=params)
    try:
        while True:
            message = child.read()
            if "method" not in message:
                return message
            child.waiting.append(message)
    except SystemExit:
        time.sleep(600)
        raise


proper = child.body
if KIND in ("stays", "status_3"):
    child.body = body
if KIND == "waits_for_the_host":
    ask = asked
SERVES["plugin/init"] = init
SERVES["plugin/shutdown"] = shutdown
HEARS["plugin/shutdown"] = told
serve()
