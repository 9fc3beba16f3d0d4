"""The states of a plugin as the operator sees them, and the table of legal transitions.

The supervisor changes state only through `step`; a transition outside of the table is a bug and raises. The diagram in
the docs is drawn from `TRANSITIONS`.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    IDLE = "idle"
    SPAWNING = "spawning"
    RUNNING = "running"
    BACKOFF = "backoff"
    QUARANTINED = "quarantined"
    SHUTTING_DOWN = "shutting_down"
    STOPPED = "stopped"


PENDING = "pending"
"""The state of a plugin that waits for the operator: its capabilities are not granted, or its exports not approved. It
comes before the states of the supervisor, which starts no such plugin."""


class Trigger(StrEnum):
    """The triggers of state changes."""

    LEASED = "leased"
    READY = "ready"
    RELEASED = "released"
    IDLED = "idled"
    FAILED = "failed"
    DELAY_OVER = "delay_over"
    GAVE_UP = "gave_up"
    RELOADED = "reloaded"
    STOP = "stop"
    GONE = "gone"


TRANSITIONS: dict[tuple[State, Trigger], State] = {
    (State.IDLE, Trigger.LEASED): State.SPAWNING,
    (State.SPAWNING, Trigger.READY): State.RUNNING,
    (State.SPAWNING, Trigger.RELEASED): State.IDLE,
    (State.SPAWNING, Trigger.FAILED): State.BACKOFF,
    (State.SPAWNING, Trigger.GAVE_UP): State.QUARANTINED,
    (State.RUNNING, Trigger.RELEASED): State.IDLE,
    (State.RUNNING, Trigger.FAILED): State.BACKOFF,
    (State.RUNNING, Trigger.GAVE_UP): State.QUARANTINED,
    (State.BACKOFF, Trigger.DELAY_OVER): State.IDLE,
    (State.BACKOFF, Trigger.RELOADED): State.IDLE,
    (State.QUARANTINED, Trigger.RELOADED): State.IDLE,
    (State.RUNNING, Trigger.RELOADED): State.SHUTTING_DOWN,
    (State.IDLE, Trigger.STOP): State.STOPPED,
    (State.SPAWNING, Trigger.STOP): State.SHUTTING_DOWN,
    (State.RUNNING, Trigger.STOP): State.SHUTTING_DOWN,
    (State.BACKOFF, Trigger.STOP): State.STOPPED,
    (State.QUARANTINED, Trigger.STOP): State.STOPPED,
    (State.RUNNING, Trigger.IDLED): State.SHUTTING_DOWN,
    (State.SHUTTING_DOWN, Trigger.RELEASED): State.IDLE,
    (State.SHUTTING_DOWN, Trigger.GONE): State.STOPPED,
    (State.STOPPED, Trigger.RELOADED): State.IDLE,
}


class IllegalMove(RuntimeError):
    """Our own bug: the supervisor asked for a move that the table does not have."""


def step(state: State, trigger: Trigger) -> State:
    """The state after `trigger`; raises `IllegalMove` for a table miss."""
    try:
        return TRANSITIONS[state, trigger]
    except KeyError:
        raise IllegalMove(f"no move from {state} on {trigger}") from None
