"""Run every attack of an area, each in a process of its own, and say how each went, as one JSON object."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable

from .tools import World, name_of

Attack = Callable[[World], str | None]

SECONDS = 20
"""For one attack; then it counts as hanging."""


def attacks(area: str) -> dict[str, Attack]:
    module = importlib.import_module(f".{area}", __package__)
    found = inspect.getmembers(module, inspect.isfunction)
    return {name: attack for name, attack in found if attack.__module__ == module.__name__ and name[0] != "_"}


def attempt(attack: Attack, world: World) -> str:
    """`ok`, the name of an error or of a signal, or what the attack says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(SECONDS)
        os.write(writing, _outcome(attack, world).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else said


def _outcome(attack: Attack, world: World) -> str:
    try:
        return attack(world) or "ok"
    except OSError as error:
        return name_of(error)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    area, given, *only = sys.argv[1:]
    world = World(json.loads(given))
    chosen = {name: attack for name, attack in attacks(area).items() if not only or name in only}
    print(json.dumps({name: attempt(attack, world) for name, attack in chosen.items()}), flush=True)
    sys.stdin.read()  # until the driver has looked at what is still there
