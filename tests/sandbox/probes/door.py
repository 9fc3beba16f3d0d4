"""The network of a plugin whose host has closed its door."""

from __future__ import annotations

import os
import time

from .egress import _get
from .tools import World


def closed_door(world: World) -> str | None:
    """Ask once, wait until the host has closed, and ask again."""
    if _get(f"good.test:{world['good']}", world) != "200":
        return "the door was never open"
    os.close(os.open(f"{world['written']}/asked", os.O_CREAT | os.O_WRONLY))
    while not os.path.exists(f"{world['written']}/closed"):
        time.sleep(0.005)
    return None if _get(f"good.test:{world['good']}", world) == "200" else "no answer"
