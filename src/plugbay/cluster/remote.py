"""`RemoteSupervisor`: the supervisor of a plugin whose instances are on nodes.

Its leases lead over the wire. Names, policies, schemas, records and retries stay where they are: in the call pipeline
of the gateway, which treats these leases like any others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from plugbay.cluster.calling import Cluster, Target
from plugbay.cluster.envelope import Access, Package
from plugbay.cluster.files import CallFiles, files_of
from plugbay.cluster.placement import Wish
from plugbay.host.invocations.artifacts import BadArtifact
from plugbay.host.invocations.retry import repeatable
from plugbay.host.nesting import Cause
from plugbay.host.ports import DEFAULT_ORG
from plugbay.host.recording.redaction import Redactor
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline, Runtime
from plugbay.host.supervision.per_org import ISOLATED
from plugbay.host.supervision.supervisor import Supervise
from plugbay.link.in_flight import Grace
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State
from plugbay.model.spec import Export, Lifetime

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp


class Placed(msgspec.Struct, frozen=True):
    """A release that runs on nodes."""

    package: Package
    access: Access
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Labels of the nodes that may run it."""
    confined: bool = True


class RemoteInstance:
    """Some instance on some node."""

    __slots__ = ("_redactor", "_secrets", "node", "scratch_folder")

    stderr: ClassVar[None] = None

    def __init__(self, secrets: Mapping[str, Any] | None, scratch_folder: Path | None) -> None:
        """`secrets` of the plugin; files of its calls come into a folder below `scratch_folder`, on their way."""
        self._secrets = secrets
        self.scratch_folder = scratch_folder
        self._redactor: Redactor | None = None
        self.node: str | None = None
        """The node that the call was given to last."""

    @property
    def redactor(self) -> Redactor:
        """Of this call; only invocations use it."""
        if self._redactor is None:
            self._redactor = Redactor(self._secrets)
        return self._redactor

    def nested(self, cause: Cause) -> AbstractContextManager[None]:
        """Nothing to remember: requests of plugins on nodes are not passed on."""
        return nullcontext()


class RemoteLease:
    """The right to one call on a node. It is its own link."""

    __slots__ = ("_route", "instance", "link")
    shared: ClassVar[bool] = True
    fault: ClassVar[Failure | None] = None

    def __init__(self, route: RemoteRoute) -> None:
        self._route = route
        self.instance = RemoteInstance(route.binding.secrets, route.supervisor.scratch_folder)
        self.link = self

    async def call(
        self,
        op: PluginOp,
        timeout: float,
        on_progress: Callable[[Any], None] | None = None,
        grace: Grace | None = None,
        over: Callable[[], None] | None = None,
    ) -> CallFinished:
        """As `Link.call`."""
        supervisor = self._route.supervisor
        supervisor.busy += 1
        try:
            files = await files_of(op)
            answer = await supervisor.call(self._route.target, op, timeout, on_progress, grace, self._note_node, files)
            if files is not None:
                await files.keep()
            return answer
        except OSError as error:
            text = f"the files of the call cannot be stored on this machine: {error.strerror}"
            return CallFinished(0, None, Failure(Code.UNAVAILABLE, text, origin=Origin.SYSTEM))
        except BadArtifact as error:
            text = f"the node {self.instance.node} sent a file that no result can name: {error}"
            return CallFinished(0, None, Failure(Code.MALFORMED_RESPONSE, text, origin=Origin.SYSTEM))
        finally:
            supervisor.busy -= 1
            if not supervisor.busy:
                supervisor.idle.set()
            if over is not None:
                over()

    def _note_node(self, name: str) -> None:
        self.instance.node = name

    async def conclude(self, answer: CallFinished, deadline: Deadline) -> CallFinished:
        """The answer as it is: the node has concluded the call."""
        return answer

    def abandon(self) -> None:
        """Nothing to do: the node has been told."""

    def release(self) -> None:
        """Nothing to do: the call has ended."""

    async def wait_gone(self) -> None:
        """Nothing to wait for on this machine."""


class RemoteRoute:
    """The way to the instances for one export, execution class and org."""

    def __init__(self, supervisor: RemoteSupervisor, target: Target) -> None:
        self.supervisor = supervisor
        self.target = target
        self.binding = supervisor.binding

    def try_lease(self) -> RemoteLease | None:
        supervisor = self.supervisor
        if supervisor.state is State.STOPPED or (
            supervisor.scratch_folder is None and self.binding.scratch is not None
        ):
            return None
        return RemoteLease(self)

    async def lease(self, deadline: Deadline) -> RemoteLease | Failure:
        problem = await self.supervisor.make_scratch_folder()
        return problem or self.try_lease() or Failure(Code.UNAVAILABLE, "the plugin is stopped")


class RemoteSupervisor:
    """All instances of one plugin, on all nodes."""

    def __init__(self, binding: Binding, cluster: Cluster, placed: Placed) -> None:
        self.binding = binding
        self.cluster = cluster
        self.busy = 0
        self.idle = asyncio.Event()
        self.scratch_folder: Path | None = None
        """Of all calls, if the plugin may have scratch folders: what a call reads and leaves there is on its way."""
        self._making_folder = asyncio.Lock()
        self._placed = placed
        self._stopped = False
        self._routes: dict[tuple[str, str, str, str], RemoteRoute] = {}

    @property
    def state(self) -> State:
        if self._stopped:
            return State.STOPPED
        return State.RUNNING if self.busy else State.IDLE

    @property
    def lacks_scratch_folder(self) -> bool:
        return self.scratch_folder is None and self.binding.scratch is not None

    async def make_scratch_folder(self) -> Failure | None:
        """Make it before the first call; returns why that failed."""
        async with self._making_folder:
            if self.lacks_scratch_folder and not self._stopped:
                assert self.binding.scratch is not None
                made = await self.binding.scratch.make_instance_folder(self.binding.spec.id)
                if isinstance(made, Failure):
                    return made
                self.scratch_folder = made
        return None

    generation: ClassVar[int] = 0
    ready: ClassVar[int] = 0
    pid: ClassVar[int | None] = None
    starting: ClassVar[asyncio.Future[Any] | None] = None

    @property
    def counters(self) -> dict[str, int]:
        return {}

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Nothing to do: nodes start instances with the first call."""

    def for_export(self, execution_class: str, org: str, export: Export) -> Any:
        """The way to instances for this export, in this class and for this org."""
        key = (execution_class, org, export.kind, export.name)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = RemoteRoute(self, self._target(execution_class, org, export))
        return route

    def _target(self, execution_class: str, org: str, export: Export) -> Target:
        placed = self._placed
        shared = execution_class != ISOLATED and (
            bool(execution_class) or self.binding.spec.lifetime is Lifetime.RESIDENT
        )
        key = "\n".join((placed.package.tree, repr(placed.access), org))
        return Target(
            placed.package,
            placed.access,
            export.name,
            export.kind,
            execution_class,
            org,
            Wish(key, shared, placed.labels, placed.confined),
            repeatable(export.kind, export.facts.get("effect_class")),
        )

    async def call(
        self,
        target: Target,
        op: PluginOp | None,
        timeout: float,
        on_progress: Callable[[Any], None] | None = None,
        grace: Grace | None = None,
        on_node: Callable[[str], object] = lambda _: None,
        files: CallFiles | None = None,
    ) -> CallFinished:
        """Have a node carry out an operation; a failure is a value here."""
        return await self.cluster.call(target, op, timeout, on_progress, grace, on_node, files)

    def _any_route(self) -> RemoteRoute:
        """For plain calls: nodes find the instance by the plugin alone."""
        export = next(iter(self.binding.spec.exports))
        route: RemoteRoute = self.for_export("", DEFAULT_ORG, export)
        return route

    def try_lease(self) -> RemoteLease | None:
        return self._any_route().try_lease()

    async def lease(self, deadline: Deadline) -> RemoteLease | Failure:
        return await self._any_route().lease(deadline)

    def notify(self, op: PluginOp) -> bool:
        """False: notifications are not sent to nodes."""
        return False

    def mark_shown(self) -> None:
        """Nothing to do: such plugins have no screens."""

    async def retire(self) -> float:
        """Wait for running calls, then stop."""
        while self.busy:
            self.idle.clear()
            await self.idle.wait()
        await self.stop()
        return 0.0

    async def stop(self) -> None:
        self._stopped = True
        folder, self.scratch_folder = self.scratch_folder, None
        if folder is not None and self.binding.scratch is not None:
            self.binding.scratch.release(folder)


def supervise_on_nodes(cluster: Cluster, placed: Placed) -> Supervise:
    """For `Host(supervise=…)`: the instances of its plugin are on nodes."""

    def supervise(binding: Binding, runtime: Runtime) -> RemoteSupervisor:
        return RemoteSupervisor(binding, cluster, placed)

    return supervise
