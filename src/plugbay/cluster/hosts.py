"""`NodeHosts`: the hosts of a node, one for each package and access; started with the first call, stopped when idle."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from time import monotonic

import msgspec

from plugbay.cluster.envelope import Access, Package
from plugbay.cluster.logs import LogFiles
from plugbay.cluster.operated import decode_settings, operated_config, supervise_with
from plugbay.cluster.releases import NodeReleases
from plugbay.host.config.config import Config
from plugbay.host.confinement.reach import Reach, narrow_access, package_config
from plugbay.host.discovery.folders import Found
from plugbay.host.host import Host
from plugbay.host.inbound.handler import AskElsewhere

IDLE_SECONDS = 600.0
"""Seconds without a call until a host is stopped; its plugin processes stop sooner."""

MAX_HOSTS = 256
"""Hosts at the same time; the one that is idle for the longest time is stopped first."""

Key = tuple[Package, Access, bytes]
"""The last is the operator's settings; empty for packages of the control plane."""


class Slot(msgspec.Struct):
    """One host and its users."""

    host: Host | None = None
    users: int = 0
    used_at: float = 0.0
    making: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class Visit:
    """The use of a host by one call."""

    __slots__ = ("_elsewhere", "_hosts", "_key", "_live_until", "_slot")

    def __init__(
        self, hosts: NodeHosts, key: Key, live_until: float | None = None, elsewhere: AskElsewhere | None = None
    ) -> None:
        self._hosts = hosts
        self._key = key
        self._live_until = live_until
        self._elsewhere = elsewhere
        self._slot: Slot | None = None

    async def __aenter__(self) -> Host:
        self._slot = slot = await self._hosts.enter(self._key, self._live_until, self._elsewhere)
        assert slot.host is not None
        return slot.host

    async def __aexit__(self, *raised: object) -> None:
        assert self._slot is not None
        self._hosts.leave(self._key, self._slot)


class NodeHosts:
    """The hosts of one node."""

    def __init__(
        self, releases: NodeReleases, config: Config, state_dir: Path, log_dir: Path | None, *, unconfined: bool = False
    ) -> None:
        self._releases = releases
        self._config = config
        self._state_dir = state_dir
        self._log_dir = log_dir
        self.logs = None if log_dir is None else LogFiles(log_dir)
        self.unconfined = unconfined
        self._slots: dict[Key, Slot] = {}

    def plugins(self) -> list[str]:
        """The running releases, as `id version`."""
        return sorted({f"{package.id} {package.version}" for (package, *_), slot in self._slots.items() if slot.host})

    async def prepare(self, package: Package) -> None:
        """Pull and verify a package; raises `PackageRefused`."""
        await self._releases.load(package)

    def children(self) -> int:
        """The number of running processes of plugins."""
        return sum(len(pids) for slot in self._slots.values() if slot.host for pids in slot.host.processes().values())

    def host(
        self,
        package: Package,
        access: Access,
        settings: bytes = b"",
        *,
        live_until: float | None = None,
        elsewhere: AskElsewhere | None = None,
    ) -> AbstractAsyncContextManager[Host]:
        """For `async with`: the host of a release, started if needed.

        Raises `PackageRefused`, and `Malformed` for settings. Processes of a new host live until the time `live_until`
        of the boot clock; gateways answer its requests if there is `elsewhere`.
        """
        return Visit(self, (package, access, settings), live_until, elsewhere)

    async def enter(self, key: Key, live_until: float | None = None, elsewhere: AskElsewhere | None = None) -> Slot:
        """One more user of a host; raises as `host`."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = Slot()
        slot.users += 1
        if slot.host is None:
            await self._make(key, slot, live_until, elsewhere)
        return slot

    async def _make(self, key: Key, slot: Slot, live_until: float | None, elsewhere: AskElsewhere | None) -> None:
        try:
            async with slot.making:
                if slot.host is None:
                    slot.host = await self._start(key, live_until, elsewhere)
        except BaseException:
            self.leave(key, slot)
            raise

    def leave(self, key: Key, slot: Slot) -> None:
        """One user less."""
        slot.users -= 1
        slot.used_at = monotonic()
        if slot.host is None and not slot.users:
            self._slots.pop(key, None)

    async def drop(self, key: Key) -> None:
        """Stop a host now."""
        slot = self._slots.pop(key, None)
        if slot is not None and slot.host is not None:
            await slot.host.stop()

    async def _start(self, key: Key, live_until: float | None, elsewhere: AskElsewhere | None) -> Host:
        package, access, settings = key
        found = await self._releases.load(package)
        host = self._make_operated(found, settings) if settings else self._make_packaged(found, access)
        host.services.elsewhere = elsewhere
        if live_until is not None:
            host.live_until(live_until)
        await host.start()
        return host

    def _make_operated(self, found: Found, settings: bytes) -> Host:
        """A host for a plugin of the operator: with its grants and its settings."""
        operated, plugin = decode_settings(settings)
        assert found.spec is not None
        return Host(
            [found],
            operated_config(self._config, found.spec.id, plugin),
            unconfined=self.unconfined,
            state_dir=self._state_dir,
            log_dir=self._log_dir,
            supervise=supervise_with(operated),
        )

    def _make_packaged(self, found: Found, access: Access) -> Host:
        """A host for a package of the control plane."""
        reach = Reach(access.domains, access.scratch)
        return Host(
            [narrow_access(found, reach, access.gateway_url)],
            package_config(self._config, access.gateway_url),
            grant_all=True,
            eager=False,
            unconfined=self.unconfined,
            state_dir=self._state_dir,
            log_dir=self._log_dir,
        )

    async def reap(self) -> None:
        """Stop idle hosts."""
        now = monotonic()
        idle = sorted((slot.used_at, key) for key, slot in self._slots.items() if not slot.users and slot.host)
        surplus = max(0, len(self._slots) - MAX_HOSTS)
        gone = [key for at, (used_at, key) in enumerate(idle) if at < surplus or now - used_at > IDLE_SECONDS]
        await self._stop([self._slots.pop(key) for key in gone])

    async def stop(self) -> None:
        """Stop all hosts."""
        slots, self._slots = list(self._slots.values()), {}
        await self._stop(slots)

    async def _stop(self, slots: list[Slot]) -> None:
        stops = [slot.host.stop() for slot in slots if slot.host is not None]
        await asyncio.gather(*stops, return_exceptions=True)
