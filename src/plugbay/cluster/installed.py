"""`InstalledSupervisor`: the supervisor of a plugin that the operator installed, whose instances are on nodes.

The operator's settings go with each call, sealed. A resident plugin is kept running on some node; it is one copy, by a
lease, unless the operator allows many.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from plugbay.cluster.calling import Cluster, Target
from plugbay.cluster.envelope import Access, Package
from plugbay.cluster.files import CallFiles
from plugbay.cluster.operated import encode_settings
from plugbay.cluster.placement import holder_of
from plugbay.cluster.remote import Placed, RemoteLease, RemoteSupervisor
from plugbay.cluster.singletons import Singletons, lease_name
from plugbay.host.config.config import PluginConfig
from plugbay.host.ports import DEFAULT_ORG
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline, Runtime
from plugbay.host.supervision.per_org import has_execution_classes
from plugbay.link.in_flight import Grace
from plugbay.model.errors import CallFailed, Failure
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State
from plugbay.model.spec import Export, Lifetime, PluginSpec

if TYPE_CHECKING:
    import asyncio

    from plugbay.model.operations import PluginOp

PULL_SECONDS = 60.0
"""For a node to pull a package, on top of the time to start it."""

NO_TREE = "0" * 64
"""The hash of a release until it is known."""


class Installed(msgspec.Struct, frozen=True):
    """What the supervisors of installed plugins share."""

    cluster: Cluster
    singletons: Singletons
    package: Callable[[PluginSpec], Awaitable[Package]]
    """The release of a plugin, and where nodes get it; raises `CallFailed`."""
    confined: bool = True


def is_single(spec: PluginSpec, plugin: PluginConfig) -> bool:
    """Whether one copy of the plugin runs at a time."""
    usual = "one" if spec.lifetime is Lifetime.RESIDENT and not has_execution_classes(spec) else "many"
    return (plugin.copies or usual) == "one"


class InstalledSupervisor(RemoteSupervisor):
    """All instances of one installed plugin, on all nodes."""

    def __init__(self, binding: Binding, runtime: Runtime, installed: Installed, plugin: PluginConfig) -> None:
        spec = binding.spec
        package = Package(spec.id, spec.version, NO_TREE, "")
        super().__init__(binding, installed.cluster, Placed(package, Access(), plugin.on, installed.confined))
        self.lease_name = lease_name(spec.id) if is_single(spec, plugin) else ""
        self._installed = installed
        self._runtime = runtime
        self._settings = encode_settings(binding, plugin)
        self._package: Package | None = None

    @property
    def state(self) -> State:
        """Of one that runs on one node at a time: whether some node holds it."""
        held = holder_of(self.lease_name, self.cluster.roster.nodes.values()) is not None
        return State.RUNNING if held and not self._stopped else super().state

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Have an eager plugin run on some node from now on."""
        if self.binding.spec.eager and self.binding.refusal is None:
            self._installed.singletons.want(self)

    def try_lease(self) -> RemoteLease | None:
        return None if self.binding.refusal is not None else super().try_lease()

    async def lease(self, deadline: Deadline) -> RemoteLease | Failure:
        return self.binding.refusal or await super().lease(deadline)

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
        if self._package is None:
            try:
                self._package = await self._installed.package(self.binding.spec)
            except CallFailed as error:
                return CallFinished(0, None, error.failure)
        target = replace(target, package=self._package)
        return await super().call(target, op, timeout, on_progress, grace, on_node, files)

    def _target(self, execution_class: str, org: str, export: Any) -> Target:
        target = super()._target(execution_class, org, export)
        # By the id alone: a new release stays where the old one was.
        wish = replace(target.wish, key=self.binding.spec.id, lease=self.lease_name)
        return replace(target, wish=wish, settings=self._settings)

    async def start_somewhere(self) -> Failure | None:
        """Have a node start the plugin; learn what it says of itself."""
        spec = self.binding.spec
        export = next(iter(spec.exports), None) or Export("tool", spec.id)
        target = replace(self._target("", DEFAULT_ORG, export), repeatable=True)
        seconds = PULL_SECONDS + spec.timeouts.launch + spec.timeouts.handshake
        finished = await self.call(target, None, seconds)
        if finished.failure is not None:
            return finished.failure
        if self._runtime.greeted is not None and finished.value is not None and not self._stopped:
            self._runtime.greeted(self.binding.spec.id, msgspec.json.decode(bytes(finished.value)))
        return None
