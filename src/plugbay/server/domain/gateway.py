"""`Gateway`: every area of the control plane, made from what it needs, started and stopped in one order.

    gateway = Gateway(database, host, GatewaySettings(data))
    await gateway.start()

Owns the order and nothing else; what an area does is in the module of its name. An area is an attribute. One that has
work of its own when the gateway starts or stops has `start()` and `stop()`, and stands in `_areas`: started from the
first to the last, after the tables are there, and stopped from the last to the first. Work in the background is given
to `tasks` and is over before any area is stopped.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Protocol

from plugbay.host.host import Host
from plugbay.host.records import TOKEN_PREFIX
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.bindings import Bindings
from plugbay.server.domain.bound_workers import BoundWorkers
from plugbay.server.domain.call_history import CallHistory
from plugbay.server.domain.clock import Clock, SystemClock
from plugbay.server.domain.conversations import Conversations
from plugbay.server.domain.credentials import Credentials
from plugbay.server.domain.discovery import Discovery
from plugbay.server.domain.host_events import HostEvents
from plugbay.server.domain.hosted import Hosted
from plugbay.server.domain.invocation_log import SqlCheckpoints, SqlInvocationLog
from plugbay.server.domain.invocations import Invocations
from plugbay.server.domain.keyring import load as load_keyring
from plugbay.server.domain.keys import Keys, operator_token
from plugbay.server.domain.live import Live
from plugbay.server.domain.marketplace import Marketplace
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.packages import Packages, PackageSettings
from plugbay.server.domain.plugin_logs import PluginLogs
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.releases import Releases
from plugbay.server.domain.repeats import Repeats
from plugbay.server.domain.retention import Retention
from plugbay.server.domain.runner import Runner, RunnerSettings
from plugbay.server.domain.secrets import Secrets
from plugbay.server.domain.settings import CONFIG_JOURNAL, GatewaySettings, protected
from plugbay.server.domain.tasks import Tasks
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable


class Area(Protocol):
    """A part of the gateway with work of its own."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Gateway:
    """The control plane of one data directory."""

    def __init__(
        self,
        database: Database,
        host: Host,
        settings: GatewaySettings,
        clock: Clock | None = None,
        calls: CallHistory | None = None,
    ) -> None:
        """`host` has the plugins of the operator's folders; whoever made it starts and stops it, and had `calls` be its
        call log if they are to be kept.
        """
        self.database = database
        self.host = host
        self.settings = settings
        self.clock = clock = clock or SystemClock()
        self.tasks = Tasks()
        self.calls = calls or CallHistory(database, Meters(), settings.calls_kept)
        self.meters = self.calls.meters
        self._areas: list[Area] = []
        self.made_operator_token: str | None = None
        """The operator's token, when it was made at this start: the one time it is told."""

        # Who uses it.
        self.audit = Audit(database, clock)
        self.orgs = Orgs(database, self.audit, clock)
        self.keys = Keys(database, self.orgs, self.audit, clock)
        self.repeats = Repeats(database, clock)
        self.retention = Retention(database, settings.retention, self.audit, self.meters, clock)

        # The plugins in the host's own folders.
        self.hosted = Hosted(host, database, self.audit, settings.config_file, settings.data / CONFIG_JOURNAL)
        self.host_logs = PluginLogs(host.journal, settings.log_dir)
        self.host_events = HostEvents(host)

        # Packages, bindings, invocations, credentials, secrets, the marketplace.
        self.live = Live()
        self.releases = Releases(settings.data, lambda: datetime.fromtimestamp(clock.now(), UTC))
        rules = PackageSettings(
            settings.require_signature, settings.plain_http, frozenset(host.config.network.allow_private)
        )
        self.packages = Packages(database, self.releases, self.audit, clock, rules)
        keyring = load_keyring(settings.data, os.environ)
        self.secrets = Secrets(database, self.orgs, self.audit, keyring, clock)
        self.bindings = Bindings(database, self.orgs, self.packages, self.secrets, self.audit, clock)
        self.discovery = Discovery(database, self.orgs, self.packages)
        self.credentials = Credentials(database, clock)
        self.checkpoints = SqlCheckpoints(database, clock)
        self.invocation_log = SqlInvocationLog(database, self.live, self.meters, clock)
        self.runner = Runner(
            self.packages,
            RunnerSettings(
                settings.data / "state",
                settings.data / "logs",
                settings.base_url,
                settings.unconfined,
                lambda: (*protected(settings, database.file), *host.protection.everything),
            ),
            host.config,
            self.invocation_log,
            self.checkpoints,
            self.credentials,
            clock,
            host.tracer,
        )
        self.invocations = Invocations(
            database,
            self.bindings,
            self.secrets,
            self.runner,
            self.invocation_log,
            self.live,
            self.tasks,
            clock,
        )
        self.marketplace = Marketplace(
            database, self.packages, self.bindings, self.releases, settings.data, self.releases.clock
        )
        self._areas += [self.packages, self.invocations]

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
        self.bindings.disabled.append(conversations.dispatcher.disabled)
        self._areas.append(conversations)

    async def start(self) -> None:
        """Take up what the last start left behind, then begin."""
        token, made = operator_token(self.settings.data)
        self.keys.trust(token)
        self.made_operator_token = token if made else None
        await self.repeats.recover()
        self.tasks.start("keeping of answers", self.repeats.catch_up)
        self.calls.begin(self.tasks)
        self.tasks.start("host events", self.host_events.run)
        self.tasks.start("removal of old records", self.retention.run)
        for area in self._areas:
            await area.start()

    async def stop(self) -> None:
        """End everything that `start` began, whatever happens. The database and the host are others' to close."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._flush)
            for area in self._areas:
                stack.push_async_callback(area.stop)
            await self.tasks.stop()

    async def _flush(self) -> None:
        await self.repeats.pay_all()
        with contextlib.suppress(StoreUnavailable):
            await self.calls.flush()

    async def checks(self) -> dict[str, str]:
        """What requests need to be answered well: `ok` for each, or why it is not."""
        try:
            await self.database.ping()
            database = "ok"
        except StoreUnavailable as error:
            database = str(error)
        crashed = [name for name, times in self.tasks.crashes.items() if times and name not in self.tasks.names]
        work = f"not running: {', '.join(crashed)}" if crashed else "ok"
        return {"database": database, "background": work, "host": "ok" if self.host.is_running else "not running"}

    async def authenticate(self, token: str) -> Principal:
        """Who has this token; raises when nobody has, or not any more."""
        if token.startswith(TOKEN_PREFIX):
            return await self.credentials.principal(token)
        return await self.keys.principal(token)
