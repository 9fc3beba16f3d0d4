"""`Gateway`: creates, starts and stops every area of the control plane.

    gateway = Gateway(database, host, GatewaySettings(data))
    await gateway.start()

Areas with their own start and stop are in `_areas`: started in order after migration, stopped in reverse. Background
work runs in `tasks` and ends before any area stops. `Conversations` groups sessions, chains, runs, compactions,
harnesses and hooks; it closes work that a killed gateway left open before new work starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from plugbay.host.admin.channels import ChannelStarter
from plugbay.host.admin.folders import FolderWatch
from plugbay.host.admin.logs import PluginLogs
from plugbay.host.disk.durable import room_problem
from plugbay.host.host import Host
from plugbay.host.records import TOKEN_PREFIX
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.packages.reference import Registries
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.background import Tasks
from plugbay.server.domain.bindings import Bindings
from plugbay.server.domain.clock import Clock, SystemClock
from plugbay.server.domain.cluster_status import ClusterStatus
from plugbay.server.domain.compactions import Compactions
from plugbay.server.domain.credentials import Credentials, Keys, operator_token
from plugbay.server.domain.deliveries import LEASE, Deliveries, Dispatcher, Events
from plugbay.server.domain.harnesses import Harnesses
from plugbay.server.domain.idempotency import IdempotentRequests
from plugbay.server.domain.installed_plugins import InstalledPlugins
from plugbay.server.domain.invocations import InvocationEvents, Invocations, SqlCheckpoints, SqlInvocationLog
from plugbay.server.domain.live import LiveStreams
from plugbay.server.domain.logs import HostLogs
from plugbay.server.domain.marketplace import Marketplace
from plugbay.server.domain.membership import Membership
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.operator_config import OperatorConfig
from plugbay.server.domain.operator_memory import OperatorMemory
from plugbay.server.domain.operator_plugins import CallHistory, HostEvents, OperatorPlugins
from plugbay.server.domain.operator_servers import OperatorServers
from plugbay.server.domain.operator_settings import OperatorSettings
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.package_logs import PackageLogs
from plugbay.server.domain.packages import Packages, PackageSettings, Releases
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.recordings import Recordings
from plugbay.server.domain.resources import ResourceHistory
from plugbay.server.domain.retention import Retention
from plugbay.server.domain.runner import Runner, RunnerSettings
from plugbay.server.domain.runs import Runs
from plugbay.server.domain.secrets import Secrets, load_keyring
from plugbay.server.domain.sessions import Chains, Sessions
from plugbay.server.domain.settings import CONFIG_JOURNAL, GatewaySettings, protected
from plugbay.server.domain.trust import TrustedPublishers
from plugbay.server.domain.workers import BoundWorkers, Budgets, Workers
from plugbay.store.database import Database
from plugbay.store.failures import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from plugbay.host.config.config import Config
    from plugbay.server.domain.nodes import Nodes
    from plugbay.server.domain.placed_plugins import PlacedPlugins

READY_SECONDS = 1.0
"""For the database to be free, in a readiness check: orchestrators wait as long by default."""


class Conversations:
    """Sessions, chains, runs, compactions, harnesses and hooks as one area."""

    def __init__(
        self,
        database: Database,
        llm: Callable[[], LlmRegistry],
        workers: Workers,
        budgets: Budgets,
        orgs: Orgs,
        audit: Audit,
        tasks: Tasks,
        meters: Meters,
        clock: Clock,
        *,
        lease: float = LEASE,
    ) -> None:
        self._tasks = tasks
        self.dispatcher = Dispatcher(database, workers, clock, meters, lease=lease)
        self.events = Events(database, workers, clock, self.dispatcher.wake)
        self.deliveries = Deliveries(database, workers, audit, clock, self.dispatcher.wake)
        self.sessions = Sessions(database, orgs, audit, clock)
        self.chains = Chains(database, self.sessions, audit, clock)
        self.runs = Runs(database, llm, self.chains, workers, budgets, self.events, audit, clock)
        self.compactions = Compactions(database, self.chains, workers, budgets, self.events, audit, clock)
        self.harnesses = Harnesses(database, self.chains, workers, audit, clock)

    async def start(self) -> None:
        """Close or resume work that the last gateway left open, then start deliveries."""
        await self.runs.start()
        await self.harnesses.start()
        await self.compactions.start()
        self._tasks.start("deliveries", self.dispatcher.run)

    async def stop(self) -> None:
        """Cancel all work and record its ends; grace periods of plugins run in parallel."""
        await asyncio.gather(self.harnesses.stop(), self.compactions.stop(), self.runs.stop())
        await self.dispatcher.stop()


class Area(Protocol):
    """A part of the gateway with its own start and stop."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Gateway:
    """The control plane of one data directory."""

    _folder_watch: FolderWatch | None = None

    def __init__(
        self,
        database: Database,
        host: Host,
        settings: GatewaySettings,
        clock: Clock | None = None,
        calls: CallHistory | None = None,
        membership: Membership | None = None,
    ) -> None:
        """`host` has the plugins of the operator's folders; the creator starts it before `start`, stops it, and passed
        it `calls` as its call log if calls are recorded. `membership` is that of one of several gateways; it has
        joined.
        """
        self.database, self.membership = database, membership
        self.host, self.settings = host, settings
        self.clock = clock = clock or SystemClock()
        self.tasks = Tasks()
        self.calls = calls or CallHistory(database, Meters(), settings.calls_kept)
        self.meters = self.calls.meters
        self.made_operator_token: str | None = None
        """The operator token if it was created at this start; it is shown only then."""

        # Tenants, keys and records.
        self.audit = Audit(database, clock)
        self.orgs = Orgs(database, self.audit, clock)
        self.keys = Keys(database, self.orgs, self.audit, clock)
        self.idempotency = IdempotentRequests(database, clock)
        self.retention = Retention(database, settings.retention, self.audit, self.meters, clock)

        self._make_operator_areas()

        # Packages, bindings, invocations, credentials, secrets, the marketplace.
        self.invocation_events = InvocationEvents()
        self.releases = Releases(settings.data, lambda: datetime.fromtimestamp(clock.now(), UTC))
        rules = PackageSettings(
            settings.require_signature,
            frozenset(host.config.network.allow_private),
            Registries.of(host.config.registries),
        )
        self.packages = Packages(database, self.releases, self.orgs, self.audit, clock, rules)
        self.secrets = Secrets(database, self.orgs, self.audit, load_keyring(settings.data, os.environ), clock)
        self.bindings = Bindings(database, self.orgs, self.packages, self.secrets, self.audit, clock)
        self.trusted_publishers = TrustedPublishers(
            database, self.releases.trust, self.packages, self.bindings, self.audit
        )
        self.installed_plugins = InstalledPlugins(
            database,
            host,
            self.operator_plugins,
            self.packages,
            self.releases,
            self.audit,
            clock,
            settings,
            self._rescan_folders,
        )
        self.credentials = Credentials(database, clock)
        self.checkpoints = SqlCheckpoints(database, clock)
        self.invocation_log = SqlInvocationLog(
            database, self.invocation_events, self.meters, clock, self.credentials.holders
        )
        self._make_nodes()
        self.placed_plugins = self._place(membership)
        self.runner = Runner(
            self.packages,
            RunnerSettings(
                settings.data / "state",
                settings.data / "logs",
                settings.plugin_url,
                settings.unconfined,
                self.package_logs.written,
                lambda: (*protected(settings, database.file), *host.protection.everything),
            ),
            host.config,
            self.invocation_log,
            self.checkpoints,
            self.credentials,
            clock,
            host.tracer,
            self.nodes,
        )
        self.invocations = Invocations(
            database,
            self.bindings,
            self.secrets,
            self.runner,
            self.invocation_log,
            self.invocation_events,
            self.tasks,
            clock,
        )
        self.marketplace = Marketplace(
            database, self.packages, self.bindings, self.releases, self.audit, settings.data, clock
        )
        # Sessions, chains, runs, compactions, harnesses, deliveries.
        conversations = Conversations(
            database,
            lambda: host.llm,
            BoundWorkers(self.bindings, self.invocations),
            self.credentials,
            self.orgs,
            self.audit,
            self.tasks,
            self.meters,
            clock,
        )
        self.sessions, self.chains, self.runs = conversations.sessions, conversations.chains, conversations.runs
        self.compactions, self.harnesses = conversations.compactions, conversations.harnesses
        self.events, self.deliveries = conversations.events, conversations.deliveries
        self.bindings.on_disabled.append(conversations.dispatcher.drop_binding)
        self._areas: list[Area] = [*self._node_areas(), self.invocations, conversations]
        self.live = LiveStreams(self.invocation_events, self.invocations.others, self.runs)
        if membership is not None:
            self._follow_others(membership, conversations)

    def _follow_others(self, membership: Membership, conversations: Conversations) -> None:
        """Take part in the work of several gateways."""
        if self.nodes is not None:
            self.live.join(self.nodes.cluster.live)
        membership.reaps(
            self.invocation_log.close_left,
            self.idempotency.close_left,
            self.runs.close_left,
            self.harnesses.close_left,
            self.compactions.close_left,
            conversations.dispatcher.close_left,
        )
        membership.pulses(
            self.invocations.cancel_requested,
            self.runs.cancel_requested,
            self.harnesses.cancel_requested,
            self.invocations.others.look,
            self.runs.look_at_others,
        )
        membership.on_edition(self.invocations.cancel_unbound)

    def _make_nodes(self) -> None:
        """The cluster, and the logs of plugins, which may be on its nodes."""
        database, settings = self.database, self.settings
        self.nodes = _nodes(settings, self.releases, self.host.config)
        self.cluster = ClusterStatus(database, self.audit, self.nodes, self.membership)
        logs = None if self.nodes is None else self.nodes.cluster.logs
        self.host_logs = HostLogs(PluginLogs(self.host.journal, settings.log_dir), logs)
        self.package_logs = PackageLogs(database, self.packages, self.orgs, settings.data / "logs", logs)

    def _place(self, membership: Membership | None) -> PlacedPlugins | None:
        """Have the operator's plugins run on the nodes of the cluster, if it has some."""
        if self.nodes is None or self.settings.cluster is None:
            return None
        from plugbay.server.domain.placed_plugins import PlacedPlugins

        seconds = self.settings.cluster.lease_seconds if membership is None else membership.seconds
        confined = not self.settings.unconfined
        return PlacedPlugins(self.nodes, self.host, self.database, seconds, confined=confined)

    def _node_areas(self) -> list[Area]:
        """What a gateway with nodes starts first."""
        return [area for area in (self.nodes, self.placed_plugins) if area is not None]

    def _make_operator_areas(self) -> None:
        """The operator's plugins."""
        host, database, settings = self.host, self.database, self.settings
        self.operator_memory = OperatorMemory(host, database, self.audit)
        self.operator_config = OperatorConfig(host, settings.config_file, settings.data / CONFIG_JOURNAL)
        self.operator_plugins = OperatorPlugins(host, database, self.audit, self.operator_config)
        self.operator_servers = OperatorServers(host, database, self.audit, self.operator_config)
        self.operator_settings = OperatorSettings(host, database, self.audit)
        self.recordings = Recordings(host, database, self.audit, settings.data / "recordings")
        self.host_events = HostEvents(host)
        self.resources = ResourceHistory(host, self.clock)

    async def start(self) -> None:
        """Recover from the end of the last gateway, then start all areas."""
        token, made = operator_token(self.settings.data)
        self.keys.trust(token)
        self.made_operator_token = token if made else None
        await self.idempotency.start()
        self.tasks.start("keeping of answers", self.idempotency.run)
        self.tasks.start("calls", self.calls.run)
        self.tasks.start("host events", self.host_events.run)
        self.tasks.start("resource samples", self.resources.run)
        self.tasks.start("channels", ChannelStarter(self.host).run)
        if self.settings.folders:
            self._folder_watch = FolderWatch(self.host, self.settings.folders)
            self.tasks.start("plugin folders", self._folder_watch.run)
        self.tasks.start("removal of old records", self.retention.run)
        self.tasks.start("trusted keys", self.trusted_publishers.run)
        await asyncio.to_thread(self.releases.sweep)
        await asyncio.to_thread(self.installed_plugins.sweep)
        for area in self._areas:
            await area.start()
        if self.membership is not None:
            await self.membership.close_exclusive()
            self.tasks.start("other gateways", self.membership.watch)

    async def stop(self) -> None:
        """Stop everything that `start` started, even after errors. The caller closes database and host."""
        self.packages.stop()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._flush)
            for area in self._areas:
                stack.push_async_callback(area.stop)
            await self.tasks.stop()

    async def _rescan_folders(self) -> None:
        """Follow the operator's folders at once."""
        if self._folder_watch is not None:
            await self._folder_watch.rescan()

    async def _flush(self) -> None:
        await self.idempotency.write_deferred()
        with contextlib.suppress(StoreUnavailable):
            await self.calls.flush()

    async def checks(self) -> dict[str, str]:
        """Readiness checks: `ok` for each, or the problem."""
        try:
            await self.database.check_writable(READY_SECONDS)
            database = "ok"
        except (StoreUnavailable, StoreRefused) as error:
            database = str(error)
        folders = [self.settings.data, *(() if self.database.file is None else (self.database.file.parent,))]
        full = [problem for problem in await asyncio.to_thread(lambda: [*map(room_problem, folders)]) if problem]
        crashed = [name for name, times in self.tasks.crashes.items() if times and name not in self.tasks.names]
        work = f"not running: {', '.join(crashed)}" if crashed else "ok"
        lease = {} if self.membership is None else {"lease": self.membership.problem() or "ok"}
        checks = {
            **lease,
            "database": database,
            "disk": full[0] if full else "ok",
            "background": work,
            "host": "ok" if self.host.is_running else "not running",
        }
        return checks if self.nodes is None else {**checks, "nats": self.nodes.problem or "ok"}

    def count_gateways(self) -> int:
        """The gateways that share the database."""
        return 1 if self.membership is None else self.membership.gateways

    async def authenticate(self, token: str) -> Principal:
        """The owner of this token; raises if it is unknown, revoked or expired."""
        if token.startswith(TOKEN_PREFIX):
            return await self.credentials.principal(token)
        return await self.keys.principal(token)


def _nodes(settings: GatewaySettings, releases: Releases, config: Config) -> Nodes | None:
    """The nodes of the cluster, if it has NATS servers. Other gateways do not load the client of NATS."""
    if settings.cluster is None or not settings.cluster.nats:
        return None
    from plugbay.server.domain.nodes import Nodes

    return Nodes(settings.cluster, os.environ, releases, config, unconfined=settings.unconfined)
