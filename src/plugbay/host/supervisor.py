"""`Supervisor`: what the host asks of whoever looks after one plugin's children. Which kind is a fact of the spec.

Never asks which contract it serves: a plugin lives for one call (`per_call`) or stays (`resident`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from plugbay.host.per_call import PerCallSupervisor
from plugbay.host.resident import ResidentSupervisor
from plugbay.host.seat import Binding, Deadline, Runtime
from plugbay.link.link import Link
from plugbay.model.errors import Failure
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State
from plugbay.model.spec import Lifetime


class Lease(Protocol):
    """The right to use a child for one call."""

    link: Link

    async def conclude(self, answer: CallFinished, deadline: Deadline) -> CallFinished:
        """The call's outcome once everything that counts has been judged."""

    def release(self) -> None:
        """The call is over, however it ended."""


class Supervisor(Protocol):
    """All children of one plugin."""

    binding: Binding
    state: State
    generation: int
    """Grows with every child; tells the calls of one child from those of the next."""

    @property
    def busy(self) -> int: ...
    @property
    def ready(self) -> int: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def starting(self) -> asyncio.Future[Any] | None:
        """Done when the start that is under way has ended, well or not."""
        ...

    @property
    def counters(self) -> dict[str, int]: ...

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Start what should be ready ahead of time; `after` is the predecessor's `retire`."""

    def at_once(self) -> Lease | None:
        """A lease without any wait, if there is one to have."""

    async def lease(self, deadline: Deadline) -> Lease | Failure:
        """A ready child for one call; a `Failure` says why there is none."""

    async def retire(self) -> float:
        """Let the calls that run and those that wait for their turn come to their end, then stop.

        The answer is how many seconds the last child had lived, where there was one.
        """

    async def stop(self) -> None:
        """Nothing new starts; everything that runs leaves or is killed."""


def supervise(binding: Binding, runtime: Runtime) -> Supervisor:
    """The supervisor that fits the plugin's lifetime."""
    if binding.spec.lifetime is Lifetime.RESIDENT:
        return ResidentSupervisor(binding, runtime)
    return PerCallSupervisor(binding, runtime)
