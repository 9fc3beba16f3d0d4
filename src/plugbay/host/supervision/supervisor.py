"""`Supervisor`: starts, leases and ends the instances of one plugin. `supervise` picks the kind that fits its spec.

The kind follows from the spec, never from the contract: instances serve one call (`per_call`), stay (`resident`), or
both, as the execution classes of the exports say (`per_org`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from plugbay.host.nesting import Cause
from plugbay.host.recording.redaction import Redactor
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline, Runtime
from plugbay.host.supervision.per_call import PerCallSupervisor
from plugbay.host.supervision.per_org import PerOrgSupervisor, has_execution_classes
from plugbay.host.supervision.resident import ResidentSupervisor
from plugbay.link.in_flight import Grace
from plugbay.model.errors import Failure
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State
from plugbay.model.spec import Export, Lifetime
from plugbay.process.stderr import StderrDrain

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp


class CallLink(Protocol):
    """The way to a plugin: a `Link` to a process of this host, or to an instance on another machine."""

    @property
    def fault(self) -> Failure | None:
        """Why it takes no calls any more."""
        ...

    async def call(
        self,
        op: PluginOp,
        timeout: float,
        on_progress: Callable[[Any], None] | None = None,
        grace: Grace | None = None,
        over: Callable[[], None] | None = None,
    ) -> CallFinished:
        """As `Link.call`."""
        ...


class LeasedInstance(Protocol):
    """The instance behind a lease, as far as a call uses it."""

    @property
    def redactor(self) -> Redactor: ...
    @property
    def scratch_folder(self) -> Path | None:
        """Its folder for scratch folders of calls, if it has one on this machine."""
        ...

    @property
    def stderr(self) -> StderrDrain | None:
        """Its stderr, if it is a process of this machine."""
        ...

    @property
    def node(self) -> str | None:
        """The machine that it is on; None: this one."""
        ...

    def nested(self, cause: Cause) -> AbstractContextManager[None]:
        """It works on a call that a request of a plugin led to."""
        ...


class Lease(Protocol):
    """The right to use an instance for one call."""

    @property
    def link(self) -> CallLink: ...
    @property
    def instance(self) -> LeasedInstance: ...

    shared: ClassVar[bool]
    """Whether the instance serves other calls too, so it stays after this one."""

    async def conclude(self, answer: CallFinished, deadline: Deadline) -> CallFinished:
        """The outcome of the call, after checks that the contract makes at the end of a process."""

    def abandon(self) -> None:
        """Report that the call got no answer. Call it before `release`, so that the instance gets no new calls."""

    def release(self) -> None:
        """End the call, however it ended."""

    async def wait_gone(self) -> None:
        """After `release`: wait until an instance that served only this call is gone."""


class Supervisor(Protocol):
    """All instances of one plugin."""

    binding: Binding

    @property
    def state(self) -> State: ...
    @property
    def generation(self) -> int:
        """Grows with every instance; tells the calls of one instance from those of the next."""
        ...

    @property
    def busy(self) -> int: ...
    @property
    def ready(self) -> int: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def starting(self) -> asyncio.Future[Any] | None:
        """Done when the start in progress has ended, successful or not."""
        ...

    @property
    def counters(self) -> dict[str, int]: ...

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Start the instances that should be ready ahead of time; `after` is the predecessor's `retire`."""

    def for_export(self, execution_class: str, org: str, export: Export) -> Supervisor:
        """The supervisor that leases instances for invocations of this export, in this class and for this org."""

    def try_lease(self) -> Lease | None:
        """A lease if one is available without waiting."""

    async def lease(self, deadline: Deadline) -> Lease | Failure:
        """Wait for a ready instance for one call; a `Failure` says why there is none."""

    def notify(self, op: PluginOp) -> bool:
        """Send a notification to the running instance, which counts as use; False if that is not possible."""

    def mark_shown(self) -> None:
        """One of its screens is being shown, so it is not idle."""

    async def retire(self) -> float:
        """Wait for running and queued calls, then stop. Returns the uptime of the last instance in seconds, or 0."""

    async def stop(self) -> None:
        """Start nothing new; shut down or kill all instances."""


Supervise = Callable[[Binding, Runtime], Supervisor]
"""Makes the supervisor of a plugin."""


def supervise(binding: Binding, runtime: Runtime) -> Supervisor:
    """The supervisor for the plugin's lifetime, and for the execution classes of its exports if they have any."""
    if has_execution_classes(binding.spec):
        return PerOrgSupervisor(binding, runtime)
    if binding.spec.lifetime is Lifetime.RESIDENT:
        return ResidentSupervisor(binding, runtime)
    return PerCallSupervisor(binding, runtime)
