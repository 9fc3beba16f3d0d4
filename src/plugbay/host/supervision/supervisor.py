"""`Supervisor`: what the host asks of whoever looks after one plugin's children. Which kind is a fact of the spec.

Never asks which contract it serves: a plugin lives for one call (`per_call`), stays (`resident`), or does both as its
exports want it (`fleet`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from plugbay.host.supervision.instance import Binding, Deadline, Runtime, Seat
from plugbay.host.supervision.per_call import PerCallSupervisor
from plugbay.host.supervision.per_org import Fleet, has_classes
from plugbay.host.supervision.resident import ResidentSupervisor
from plugbay.link.link import Link
from plugbay.model.errors import Failure
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State
from plugbay.model.spec import Export, Lifetime

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp


class Lease(Protocol):
    """The right to use a child for one call."""

    link: Link
    seat: Seat

    async def conclude(self, answer: CallFinished, deadline: Deadline) -> CallFinished:
        """The call's outcome once everything that counts has been judged."""

    def forsake(self) -> None:
        """The call was given up without an answer: say so before `release`, so that nobody new is served like that."""

    def release(self) -> None:
        """The call is over, however it ended."""

    async def cleared(self) -> None:
        """After `release`: wait until a child that served this call alone is gone."""


class Supervisor(Protocol):
    """All children of one plugin."""

    binding: Binding

    @property
    def state(self) -> State: ...
    @property
    def generation(self) -> int:
        """Grows with every child; tells the calls of one child from those of the next."""
        ...

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

    def serving(self, execution_class: str, org: str, export: Export) -> Supervisor:
        """Who gives out children for an invocation of this export, in this class and for this org."""

    def at_once(self) -> Lease | None:
        """A lease without any wait, if there is one to have."""

    async def lease(self, deadline: Deadline) -> Lease | Failure:
        """A ready child for one call; a `Failure` says why there is none."""

    def tell(self, op: PluginOp) -> bool:
        """Tell the child that lives now something its contract has a word for, which is a use; False: there is none."""

    def shown(self) -> None:
        """A screen of it is being looked at, so it is not idle."""

    async def retire(self) -> float:
        """Let the calls that run and those that wait for their turn come to their end, then stop.

        The answer is how many seconds the last child had lived, where there was one.
        """

    async def stop(self) -> None:
        """Nothing new starts; everything that runs leaves or is killed."""


def supervise(binding: Binding, runtime: Runtime) -> Supervisor:
    """The supervisor that fits the plugin's lifetime, and the classes of its exports where they have any."""
    if has_classes(binding.spec):
        return Fleet(binding, runtime)
    if binding.spec.lifetime is Lifetime.RESIDENT:
        return ResidentSupervisor(binding, runtime)
    return PerCallSupervisor(binding, runtime)
