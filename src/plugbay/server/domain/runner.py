"""`Runner`: starts the plugins of packages, each release in a host of its own, several versions side by side.

    async with runner.host(package, reach) as host:
        await host.invoke(...)

Owns which hosts there are: made when they are first needed, from files that are held against their hash then, and
stopped when nobody needs them. What a binding takes away of the network is a matter of how a process is confined, so a
release has one host for each reach it is used with. Refuses to know bindings, and what is invoked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from plugbay.host.config.config import Config, NetworkConfig
from plugbay.host.discovery.folders import Found
from plugbay.host.host import Host
from plugbay.host.invocations.resources import Gateway as WayBack
from plugbay.host.ports import Checkpoints, InvocationLog, TokenIssuer
from plugbay.model.addresses import clean_host, is_address
from plugbay.model.protected import Entry
from plugbay.model.spec import Access, PluginSpec
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import unavailable
from plugbay.server.domain.packages import Packages
from plugbay.store.packages import PackageRow

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

IDLE = 600.0
"""Seconds without an invocation after which a host goes; its plugins' own processes go sooner."""

MAX_HOSTS = 64
"""Hosts at the same time; the one that was used longest ago goes first, if it is idle."""

LOOK = 30.0
"""Seconds between two looks at who is idle."""

NETWORK = "network"
PORTS = {"http": 80, "https": 443}

LOOPBACK = "127.0.0.1"


class Reach(NamedTuple):
    """How far into the network a plugin may get: all of it, some hosts, or nowhere (no hosts)."""

    domains: tuple[str, ...] | None = None


class Key(NamedTuple):
    """What a host is for."""

    digest: str
    reach: Reach


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """What hosts of packages are made with."""

    state_dir: Path
    log_dir: Path | None = None
    base_url: str | None = None
    """Where plugins find the gateway."""
    unconfined: bool = False
    """For tests alone: nobody is confined."""
    protected: Callable[[], tuple[Entry, ...]] = tuple
    """What is out of reach for every plugin of a package, beside its other releases."""


@dataclass(slots=True)
class _Berth:
    """One host, and who uses it."""

    host: Host | None = None
    users: int = 0
    used_at: float = 0.0
    making: asyncio.Lock = field(default_factory=asyncio.Lock)


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
    ) -> None:
        self._tracer = tracer
        self._packages = packages
        self._settings = settings
        self._config = config
        self._log = log
        self._checkpoints = checkpoints
        self._tokens = tokens
        self._clock = clock
        self._berths: dict[Key, _Berth] = {}
        self._stopping = False

    @property
    def running(self) -> int:
        """How many hosts there are."""
        return sum(berth.host is not None for berth in self._berths.values())

    @asynccontextmanager
    async def host(self, package: PackageRow, reach: Reach) -> AsyncIterator[Host]:
        """The host of a release, started if it is not there; it stays for as long as it is used."""
        if self._stopping:
            raise unavailable("gateway.stopping", "the gateway is about to stop")
        key = Key(package.digest, reach)
        berth = self._berths.setdefault(key, _Berth())
        berth.users += 1
        try:
            async with berth.making:
                if berth.host is None:
                    berth.host = await self._started(package, reach)
                host = berth.host
            yield host
        finally:
            berth.users -= 1
            berth.used_at = self._clock.monotonic()
            if berth.host is None and not berth.users:
                self._berths.pop(key, None)  # it could not be started

    def cancel(self, invocation_id: str, reason: str) -> bool:
        """Call one invocation off; False when it is not running, or was called off already."""
        hosts = [berth.host for berth in self._berths.values() if berth.host is not None]
        return any(host.invocations.cancel(invocation_id, reason) for host in hosts)

    async def reap(self, needed: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """Stop hosts that nobody needs; goes on until it is cancelled. `needed` tells which releases are bound."""
        while True:
            await asyncio.sleep(LOOK)
            await self.reap_now(await needed())

    async def reap_now(self, needed: frozenset[str]) -> int:
        """Stop hosts that are idle and have been so for long, are too many, or of releases not `needed`; how many."""
        now = self._clock.monotonic()
        idle = [(berth.used_at, key) for key, berth in self._berths.items() if not berth.users]
        idle.sort(key=lambda each: each[0])  # not by keys: a reach of some hosts and one of all cannot be compared
        surplus = max(0, self.running - MAX_HOSTS)
        gone = [
            key
            for at, (used_at, key) in enumerate(idle)
            if at < surplus or now - used_at >= IDLE or key.digest not in needed
        ]
        await self._stop([self._berths.pop(key) for key in gone])
        return len(gone)

    async def stop(self) -> None:
        """Stop all of them; what they do is called off, and no other is started."""
        self._stopping = True
        berths, self._berths = list(self._berths.values()), {}
        await self._stop(berths)

    async def _stop(self, berths: list[_Berth]) -> None:
        await asyncio.gather(*(_stopped(berth) for berth in berths), return_exceptions=True)

    async def _started(self, package: PackageRow, reach: Reach) -> Host:
        found = await self._packages.intact(package)
        host = Host(
            [_reaching(found, reach, self._settings.base_url)],
            _configured(self._config, self._settings.base_url),
            grant_all=True,
            eager=False,
            unconfined=self._settings.unconfined,
            invocation_log=self._log,
            checkpoints=self._checkpoints,
            state_dir=self._settings.state_dir,
            log_dir=self._settings.log_dir,
            tracer=self._tracer,
            protected=self._settings.protected(),
        )
        if self._settings.base_url is not None:
            host.invocations.gateway = WayBack(self._settings.base_url, self._tokens)
        await host.start()
        return host


async def _stopped(berth: _Berth) -> None:
    """Stop a host, also one that is just being started."""
    async with berth.making:
        if berth.host is not None:
            await berth.host.stop()


def _configured(config: Config, base_url: str | None) -> Config:
    """The operator's words about plugins, without the services of the host's own; and the way back to the gateway."""
    door = None if base_url is None else _door(base_url)
    private = [*config.network.allow_private]
    if door is not None and is_address(door[0]):
        private.append(f"[{door[0]}]:{door[1]}" if ":" in door[0] else f"{door[0]}:{door[1]}")
    update: dict[str, Any] = {
        "network": NetworkConfig(allow_private=private),
        "memory": None,
        "agents": {},
        "broker": None,
    }
    return config.model_copy(update=update)


def _reaching(found: Found, reach: Reach, base_url: str | None) -> Found:
    """The plugin, its way into the network as narrow as this."""
    assert found.spec is not None
    spec = found.spec
    if reach.domains is None or not any(item.kind == NETWORK for item in spec.access):
        return found
    others = tuple(item for item in spec.access if item.kind != NETWORK)
    return replace(found, spec=replace(spec, access=(*others, *_doors(spec, reach.domains, base_url))))


def _doors(spec: PluginSpec, domains: tuple[str, ...], base_url: str | None) -> list[Access]:
    """The hosts, and the gateway for a plugin that may ask it anything."""
    capability = next(item.capability for item in spec.access if item.kind == NETWORK)
    doors = [Access(NETWORK, domain, capability=capability) for domain in domains]
    door = None if base_url is None or not domains else _door(base_url)
    if door is not None:
        doors.append(Access(NETWORK, door[0], door[1], capability))
    return doors


def _door(base_url: str) -> tuple[str, int] | None:
    """Where a URL leads: host and port."""
    parts = urlsplit(base_url)
    host = clean_host(parts.hostname or "")
    if host is None:
        return None
    return LOOPBACK if host == "localhost" else host, parts.port or PORTS.get(parts.scheme, 80)
