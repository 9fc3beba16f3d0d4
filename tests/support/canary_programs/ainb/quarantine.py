"""A plugin that stays until it is asked to leave; broken: it leaves by itself, or does not come back often enough."""

from __future__ import annotations

import os
import sys
import threading

import child
from child import KIND, SERVES, Message, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STARTS = os.path.join(os.environ.get("TMPDIR", "/tmp"), "canary.starts")
TOO_MANY = 2
"""Starts before this one; who was killed once, has one behind it."""

IDLE_SECONDS = 1.5


def init(params: Message) -> Any:
    if KIND == "gives_up" and started_before() >= TOO_MANY:
        sys.exit("it crashed too often")
    return child.init(params)


def started_before() -> int:
    with open(STARTS, "a+", encoding="utf-8") as starts:
        starts.seek(0)
        before = len(starts.read())
        starts.write(".")
    return before


def read() -> Message:
    """Leaves when nothing comes for a while, though not while it was never greeted."""
    leave = threading.Timer(IDLE_SECONDS, os._exit, (0,))
    leave.daemon = True
    leave.start()
    message = proper()
    leave.cancel()
    return message


proper = child.read
if KIND == "leaves_when_idle":
    child.read = read
SERVES["plugin/init"] = init
serve()
