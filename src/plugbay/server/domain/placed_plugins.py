"""`PlacedPlugins`: the operator's installed plugins on the nodes of a cluster, and what these nodes ask of a gateway.

A lease in the database names the one node that runs a plugin. What a plugin changes through a gateway is changed in
the transaction that checks the lease, so an earlier holder changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from plugbay.cluster.asks import Asks, Holder
from plugbay.cluster.installed import Installed, InstalledSupervisor, is_single
from plugbay.cluster.singletons import PREFIX, Singletons, lease_name
from plugbay.cluster.subjects import Subjects
from plugbay.host.assembly import Stores
from plugbay.host.host import Host
from plugbay.host.inbound.handler import InboundHandler
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Runtime
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.operations import CompleteChat, InvokeAction, RecallMemory
from plugbay.model.values import Value
from plugbay.server.domain.nodes import Nodes
from plugbay.store import leases
from plugbay.store.agent_memory import SqlMemory
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.leases import Fence, LeaseLost
from plugbay.store.plugin_storage import SqlStorage
from plugbay.store.vectors import SqlVectors

OUTSIDE = (CompleteChat, InvokeAction, RecallMemory)
"""Requests that change nothing in the database and may call other plugins: their lease is checked before."""


def holder_id(node: str, boot: str) -> str:
    """The holder of a lease: one start of one node."""
    return f"{boot}.{hashlib.blake2b(node.encode(), digest_size=8).hexdigest()}"


class DatabaseLeases:
    """`SingletonLeases` in the database."""

    def __init__(self, database: Database, host: Host, seconds: float) -> None:
        self._database = database
        self._host = host
        self.seconds = seconds

    async def take(self, name: str, node: str, boot: str) -> tuple[bool, Holder]:
        """As `SingletonLeases.take`."""
        if name.removeprefix(PREFIX) not in self._host.specs or not name.startswith(PREFIX):
            raise CallFailed(Failure(Code.NOT_FOUND, f"this gateway has no plugin for the lease {name}"))
        holder = holder_id(node, boot)
        try:
            async with self._database.transaction() as tx:
                await leases.give_up(tx, name, holder)  # it asks, so it does not run the plugin: another tenure begins
                taken = await leases.take(tx, name, holder, self.seconds, {"node": node, "boot": boot})
                now = taken or await leases.get(tx, name)
        except StoreUnavailable as error:
            raise _away(error) from None
        assert now is not None, "a lease that is refused has a holder"
        return taken is not None, Holder(str(now.facts.get("node", "")), now.epoch)

    async def renew(self, held: Mapping[str, int], node: str, boot: str) -> list[str]:
        """As `SingletonLeases.renew`."""
        holder = holder_id(node, boot)
        try:
            async with self._database.transaction() as tx:
                return [
                    name
                    for name, epoch in sorted(held.items())
                    if await leases.renew(tx, Fence(name, holder, epoch), self.seconds)
                ]
        except StoreUnavailable as error:
            raise _away(error) from None

    async def release(self, held: Mapping[str, int], node: str, boot: str) -> None:
        """As `SingletonLeases.release`."""
        holder = holder_id(node, boot)
        try:
            async with self._database.transaction() as tx:
                for name, epoch in sorted(held.items()):
                    await leases.release(tx, Fence(name, holder, epoch))
        except StoreUnavailable as error:
            raise _away(error) from None


class HostRequests:
    """Answers requests of plugins on nodes with the services of this gateway's host."""

    def __init__(self, host: Host, database: Database) -> None:
        self._host = host
        self._database = database

    async def answer(
        self, node: str, boot: str, plugin: str, leases: Mapping[str, int], op: Value, progress: Callable[[Any], None]
    ) -> Any:
        """As `PluginRequests.answer`. The gate of this gateway is asked again: a node has no authority."""
        supervisor = self._host.supervisor(plugin)
        if supervisor is None:
            return Failure(Code.NOT_FOUND, f"this gateway has no plugin {plugin!r}", origin=Origin.SYSTEM)
        binding = supervisor.binding
        handler = InboundHandler(binding.spec, binding.granted, self._host.services)
        fence = self._fence(binding, node, boot, leases)
        try:
            if isinstance(op, OUTSIDE):
                await self._check(fence)
                return await handler.handle_request(op, progress)
            async with self._database.transaction() as tx:
                if fence is not None:
                    await _check(tx, fence)
                return await handler.handle_request(op, progress)  # type: ignore[arg-type]
        except LeaseLost as error:
            return Failure(Code.UNAVAILABLE, str(error), origin=Origin.SYSTEM, detail={"reason": "old_epoch"})
        except StoreUnavailable as error:
            return _away(error).failure

    def _fence(self, binding: Binding, node: str, boot: str, held: Mapping[str, int]) -> Fence | None:
        """The fence that the effect must pass; None for a plugin that may run more than once."""
        plugin = self._host.config.plugin(binding.spec.id)
        if not is_single(binding.spec, plugin):
            return None
        name = lease_name(binding.spec.id)
        return Fence(name, holder_id(node, boot), held.get(name, 0))

    async def _check(self, fence: Fence | None) -> None:
        if fence is not None:
            async with self._database.transaction() as tx:
                await _check(tx, fence)


_check = leases.check


def _away(error: StoreUnavailable) -> CallFailed:
    return CallFailed(Failure(Code.UNAVAILABLE, str(error), origin=Origin.SYSTEM, retryable=True, retry_after_ms=1000))


class PlacedPlugins:
    """The operator's installed plugins on nodes."""

    def __init__(self, nodes: Nodes, host: Host, database: Database, lease_seconds: float, *, confined: bool) -> None:
        """Call it before the host is started."""
        self._host = host
        cluster = nodes.cluster
        self._singletons = Singletons(cluster.roster)
        self._installed = Installed(cluster, self._singletons, nodes.installed, confined)
        answers = DatabaseLeases(database, host, lease_seconds)
        self._asks = Asks(cluster.wire, Subjects(nodes.cell), answers, HostRequests(host, database))
        host.place(self._supervise, Stores(SqlStorage(database), SqlMemory(database), SqlVectors(database)))

    def _supervise(self, binding: Binding, runtime: Runtime) -> InstalledSupervisor:
        return InstalledSupervisor(binding, runtime, self._installed, self._host.config.plugin(binding.spec.id))

    async def start(self) -> None:
        """Nothing to do: plugins are started as the host starts them."""

    async def stop(self) -> None:
        """Let the plugins be; other gateways may need them."""
        await self._singletons.stop()
        await self._asks.stop()
