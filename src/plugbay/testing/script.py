"""The behaviour of a fake plugin: what tests write, and the JSON that its process reads.

answers({"ok": True}, after=0.1)     a value; any JSON value alone means the same
fails("no such city", code="…")      an error
in_turn(1, 2, fails("enough"))       one after the other; the last is repeated
faults.wrong_id                      a fault
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plugbay.testing.faults import ALL, CALL, Fault


class Step(msgspec.Struct, frozen=True):
    """The behaviour of one call."""

    value: Any = None
    """The answer, unless it fails."""
    error: str | None = None
    code: str = "plugin_error"
    after: float = 0.0
    """Delay in seconds."""
    fault: str | None = None
    """Name of the fault."""


class Turns(msgspec.Struct, frozen=True):
    """Steps for consecutive calls."""

    steps: tuple[Step, ...]


def answers(value: Any, *, after: float = 0.0) -> Step:
    """Answer with a JSON value, after a delay in seconds."""
    return Step(value, after=after)


def fails(message: str, *, code: str = "plugin_error", after: float = 0.0) -> Step:
    """Answer with an error; `code` is the plugin's own error code."""
    return Step(error=message, code=code, after=after)


def in_turn(*steps: Any) -> Turns:
    """One step per call; the last step is repeated."""
    if not steps:
        raise ValueError("in_turn needs at least one answer")
    return Turns(tuple(map(to_step, steps)))


def to_step(value: Any) -> Step:
    """The step for a value in a script."""
    if isinstance(value, Turns):
        raise TypeError("in_turn cannot contain in_turn")
    if not isinstance(value, Fault):
        return value if isinstance(value, Step) else Step(value)
    if value.moment != CALL:
        raise ValueError(f"faults.{value.name} is not about a call: fake_plugin(…, fault=faults.{value.name})")
    return Step({"fault": value.name}, after=value.seconds or 0.0, fault=value.name)


class Script(msgspec.Struct, frozen=True):
    """The whole behaviour of a fake plugin."""

    id: str
    version: str
    tools: Mapping[str, tuple[Step, ...]]
    fault: str | None = None
    """The fault at start or stop, if any."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Script:
        tools = {name: tuple(Step(**step) for step in steps) for name, steps in value["tools"].items()}
        return cls(**{**value, "tools": tools})


def make_script(id: str, version: str, tools: Mapping[str, Any], fault: Fault | None = None) -> Script:
    """Build the script of a fake plugin."""
    steps = {name: value.steps if isinstance(value, Turns) else (to_step(value),) for name, value in tools.items()}
    if fault is None:
        return Script(id, version, steps)
    if fault.moment == CALL:
        raise ValueError(f"faults.{fault.name} happens in a call: fake_plugin({{'tool': faults.{fault.name}}})")
    assert ALL[fault.name].moment == fault.moment
    return Script(id, version, steps, fault.name, fault.seconds or 0.0)
