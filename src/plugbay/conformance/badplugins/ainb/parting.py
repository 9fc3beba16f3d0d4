"""Leaves otherwise than asked, as KIND says: accepted, or recorded as the code of a good-bye that failed."""

from __future__ import annotations

import subprocess
import sys
import time

import child
from child import KIND, SERVES, Message, say, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def shutdown(params: Message) -> Any:
    if KIND == "exits_without_a_word":
        sys.exit(0)
    if KIND == "refuses":
        raise child.Refusal(-32601, "method not found: plugin/shutdown")
    if KIND == "talks_on":
        for _ in range(1000):
            say(method="host/log", params={"level": "info", "message": "not yet"})
    if KIND == "leaves_a_child":
        subprocess.Popen(["/bin/sleep", "600"], stdin=subprocess.DEVNULL)
    return None if KIND == "null" else {}


def body() -> bytes:
    try:
        return bytes(proper())
    except SystemExit:
        if KIND == "stays":
            time.sleep(600)
        sys.exit(3)


def handle(message: Message) -> None:
    if KIND == "never_answers" and message.get("method") == "plugin/shutdown":
        return
    answers(message)


answers: Any = child.handle
proper: Any = child.body
child.handle = handle
if KIND in ("stays", "status_3"):
    child.body = body
SERVES |= {"plugin/shutdown": shutdown, "plugin/cli_dispatch": child.dispatch}
serve()
