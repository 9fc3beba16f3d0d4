"""A plugin that logs at every level; broken: nobody can tell how important it is, or what it says."""

from __future__ import annotations

import child
from child import KIND, SERVES, Message, say, serve, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LEVELS = ("trace", "debug", "info", "warn", "error")


def init(params: Message) -> Any:
    for level in LEVELS:
        tell("host/log", level=level, message=f"this is {level}", fields={"level": level})
    if KIND == "own_level":
        tell("host/log", level="fatal", message="it is over")
    if KIND == "upper_case":
        tell("host/log", level="WARN", message="careful")
    if KIND == "no_level":
        tell("host/log", message="hello")
    if KIND == "number":
        tell("host/log", level="info", message=7)
    if KIND == "with_id":
        say(id=1, method="host/log", params={"level": "info", "message": "was it heard?"})
    return child.init(params)


SERVES["plugin/init"] = init
serve()
