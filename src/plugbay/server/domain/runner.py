"""`Runner`: one host per release and reach, so several versions run side by side.

    async with runner.host(package, reach) as host:
        await host.invoke(...)

Hosts are created on first use from files whose hash was checked, and stopped when idle. The reach of a binding (network
and scratch directories) is enforced by the sandbox of a process, so each reach needs its own host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from plugbay.host.config.config import Config
from plugbay.host.confinement.reach import Reach, narrow_access, package_config
from plugbay.host.host import Host
from plugbay.host.invocations.artifacts import Artifacts
from plugbay.host.invocations.invocations import ARTIFACTS
from plugbay.host.invocations.resources import Gateway as GatewayAccess
from plugbay.host.ports import Checkpoints, InvocationLog, TokenIssuer
from plugbay.host.recording.org_logs import OrgLogs
from plugbay.host.supervision.supervisor import Supervise, supervise
from plugbay.model.protected import Entry
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import unavailable
from plugbay.server.domain.packages import Packages
from plugbay.store.packages import PackageRow

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from plugbay.server.domain.nodes import Nodes

IDLE_SECONDS = 600.0
"""Seconds without an invocation before a host is stopped; its plugin processes stop sooner."""

MAX_HOSTS = 64
"""Hosts at the same time; the least recently used idle host is stopped first."""

REAP_EVERY = 30.0
"""Seconds between checks for idle hosts."""


class Key(NamedTuple):
    """The key of a host."""

    digest: str
    reach: Reach


class RunnerSettings(msgspec.Struct, frozen=True):
    """Settings of package hosts."""

    state_dir: Path
    log_dir: Path | None = None
    base_url: str | None = None
    """The URL of the gateway for plugins."""
    unconfined: bool = False
    """For tests only: no sandbox."""
    org_logs: OrgLogs | None = None
    """Takes the output of plugins, apart for each org."""
    protected: Callable[[], tuple[Entry, ...]] = tuple
    """Paths that no plugin of a package can reach, besides its other releases."""


class _HostSlot(msgspec.Struct):
    """One host and its number of users."""

    host: Host | None = None
    users: int = 0
    used_at: float = 0.0
    making: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class Runner:
    """The hosts of all packages that are in use."""

    def __init__(
        self,
        packages: Packages,
        settings: RunnerSettings,
        config: Config,
        log: InvocationLog,
        checkpoints: Checkpoints,
        tokens: TokenIssuer,
        clock: Clock,
        tracer: Tracer | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        """With `nodes`, plugins run there; without, on this machine."""
        self._nodes = nodes
        self._tracer = tracer
        self._packages = packages
        self._settings = settings
        self._config = config
        self._log = log
        self._checkpoints = checkpoints
        self._tokens = tokens
        self._clock = clock
        self._slots: dict[Key, _HostSlot] = {}
        self._stopping = False
        self.artifacts = Artifacts(lambda: settings.state_dir / ARTIFACTS)
        """The artifacts of all hosts: they share a state directory."""

    @property
    def running(self) -> int:
        """Number of hosts."""
        return sum(slot.host is not None for slot in self._slots.values())

    @asynccontextmanager
    async def host(self, package: PackageRow, reach: Reach) -> AsyncIterator[Host]:
        """The host of a release, started if needed; it runs at least as long as it is used."""
        if self._stopping:
            raise unavailable("gateway.stopping", "the server is stopping")
        key = Key(package.digest, reach)
        slot = self._slots.setdefault(key, _HostSlot())
        slot.users += 1
        try:
            if slot.host is None:
                await self._start(slot, package, reach)
            assert slot.host is not None
            yield slot.host
        finally:
            slot.users -= 1
            slot.used_at = self._clock.monotonic()
            if slot.host is None and not slot.users:
                self._slots.pop(key, None)  # it could not be started

    async def _start(self, slot: _HostSlot, package: PackageRow, reach: Reach) -> None:
        async with slot.making:
            if slot.host is None:
                slot.host = await self._start_host(package, reach)

    def cancel(self, invocation_id: str, reason: str) -> bool:
        """Cancel an invocation; False if it is not running or was cancelled before."""
        hosts = [slot.host for slot in self._slots.values() if slot.host is not None]
        return any(host.invocations.cancel(invocation_id, reason) for host in hosts)

    async def reap(self, needed: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """Stop unneeded hosts until cancelled. `needed` returns the digests in use."""
        while True:
            await asyncio.sleep(REAP_EVERY)
            await self.reap_now(await needed())

    async def reap_now(self, needed: frozenset[str]) -> int:
        """Stop idle hosts that timed out, exceed the maximum, or are not `needed`; returns their number."""
        now = self._clock.monotonic()
        idle = [(slot.used_at, key) for key, slot in self._slots.items() if not slot.users]
        idle.sort(key=lambda each: each[0])  # by time only: reaches are not comparable
        surplus = max(0, self.running - MAX_HOSTS)
        gone = [
            key
            for at, (used_at, key) in enumerate(idle)
            if at < surplus or now - used_at >= IDLE_SECONDS or key.digest not in needed
        ]
        await self._stop([self._slots.pop(key) for key in gone])
        return len(gone)

    async def stop(self) -> None:
        """Stop all hosts and start no others."""
        self._stopping = True
        slots, self._slots = list(self._slots.values()), {}
        await self._stop(slots)

    async def _stop(self, slots: list[_HostSlot]) -> None:
        await asyncio.gather(*(_stop_slot(slot) for slot in slots), return_exceptions=True)

    async def _start_host(self, package: PackageRow, reach: Reach) -> Host:
        found = await self._packages.load_verified(package)
        supervisors: Supervise = supervise
        if self._nodes is not None:
            supervisors = await self._nodes.supervise(package, reach, self._settings.base_url)
        host = Host(
            [narrow_access(found, reach, self._settings.base_url)],
            package_config(self._config, self._settings.base_url),
            grant_all=True,
            eager=False,
            unconfined=self._settings.unconfined,
            invocation_log=self._log,
            checkpoints=self._checkpoints,
            state_dir=self._settings.state_dir,
            log_dir=self._settings.log_dir,
            tracer=self._tracer,
            protected=self._settings.protected(),
            supervise=supervisors,
        )
        host.invocations.org_logs = self._settings.org_logs
        host.invocations.now = self._clock.now
        if self._settings.base_url is not None:
            host.invocations.gateway = GatewayAccess(self._settings.base_url, self._tokens)
        await host.start()
        return host


async def _stop_slot(slot: _HostSlot) -> None:
    """Stop a host, even while it is starting."""
    async with slot.making:
        if slot.host is not None:
            await slot.host.stop()
