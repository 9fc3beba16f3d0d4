"""`InstalledPlugins`: the operator installs, upgrades, rolls back, pins and removes plugins of a running server.

The store is the one whose `plugins` folder the server serves; `plugbay install` changes the same store. Signatures are
verified with the server's trusted publishers. A package is kept between the look at it and the consent, in a bounded
folder, and verified again with the consent: the digest that was shown is the digest that is installed. Installing
grants nothing. After a change the host loads the current release at once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from plugbay.host.discovery.folders import Found
from plugbay.host.disk import tree
from plugbay.host.host import Host
from plugbay.model.errors import ConfigInvalid
from plugbay.model.lifecycle import State
from plugbay.packages.archive import SUFFIX, signature_path
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.installer import Installer, Look, Rollback
from plugbay.packages.store import Installed, Store, store_of
from plugbay.packages.trust import TrustedKey
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock, moment
from plugbay.server.domain.errors import NOT_FOUND, GatewayError, conflict, full_disk, not_found, unavailable
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.operator_plugins import OperatorPlugins
from plugbay.server.domain.packages import UPLOAD, Packages, Releases, parse_source, translate_refusals
from plugbay.server.domain.principal import Principal, require_operator_of_all
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.database import Database
from plugbay.store.pages import Page, Part, cut

FOLDER = "installing"
"""Below the data directory: packages between look and consent."""

MAX_KEPT = 8
"""Packages that wait for a consent; the oldest gives way."""

MAX_KEPT_BYTES = 200 << 20
"""Their archives and signatures together: the largest package fits three times."""

KEPT_SECONDS = 3600.0
"""Time to read the permissions of a package, and to ask its publisher about them."""

WRITABLE_SECONDS = 10.0
"""For the database to be free, before the store is changed: every change has its entry in the audit log."""

T = TypeVar("T")


class KeptPackage(msgspec.Struct, frozen=True):
    """A package that waits for a consent."""

    id: str
    archive: Path
    source: str
    size: int
    """Bytes of archive and signature."""
    until: float
    """On the monotonic clock."""


class KeptPackages:
    """The packages that wait for a consent: few, small and not for long. They do not survive a restart."""

    def __init__(self, folder: Path, clock: Clock, ids: Ids = new_id) -> None:
        self._folder = folder
        self._clock = clock
        self._ids = ids
        self._kept: OrderedDict[str, KeptPackage] = OrderedDict()

    def sweep(self) -> None:
        """Remove the packages of a gateway that has ended. Blocks."""
        if self._folder.is_dir():
            tree.remove(self._folder)

    async def keep(self, archive: Path, signature: bytes | None, source: str) -> KeptPackage:
        """Copy a package; the oldest ones give way to it."""
        size = (await asyncio.to_thread(archive.stat)).st_size + len(signature or b"")
        id, until = self._ids("look_"), self._clock.monotonic() + KEPT_SECONDS
        kept = self._kept[id] = KeptPackage(id, self._folder / id / f"package{SUFFIX}", source, size, until)
        await self._drop_surplus()
        try:
            await _in_thread(lambda: _copy(archive, signature, kept.archive))
        except BaseException:
            await self.remove(id)
            raise
        return kept

    async def find(self, id: str) -> KeptPackage:
        """Raises `package.not_kept` if it has expired, gave way, or was used."""
        await self._drop_surplus()
        if id not in self._kept:
            text = "this package is no longer stored: it was installed, discarded or replaced by newer uploads"
            raise GatewayError(NOT_FOUND, "package.not_kept", 404, f"{text}; upload or pull it again")
        return self._kept[id]

    async def remove(self, id: str) -> None:
        """Idempotent."""
        if self._kept.pop(id, None) is not None:
            await asyncio.to_thread(_remove, self._folder / id)

    async def _drop_surplus(self) -> None:
        """Remove what has expired, and the oldest ones until the limits hold; the newest one always stays."""
        now = self._clock.monotonic()
        surplus = [each.id for each in self._kept.values() if each.until <= now]
        left = [each for each in self._kept.values() if each.id not in surplus]
        while len(left) > MAX_KEPT or (len(left) > 1 and sum(each.size for each in left) > MAX_KEPT_BYTES):
            surplus.append(left.pop(0).id)
        for id in surplus:
            await self.remove(id)


def _copy(archive: Path, signature: bytes | None, to: Path) -> None:
    to.parent.mkdir(0o700, parents=True)
    shutil.copyfile(archive, to)
    if signature is not None:
        signature_path(to).write_bytes(signature)


def _remove(folder: Path) -> None:
    if folder.is_dir():
        tree.remove(folder)


class Hosted(msgspec.Struct, frozen=True):
    """An installed plugin in the running host."""

    version: str
    is_current: bool
    """Whether it is the installed release. Another one runs until the plugin is reloaded or started."""
    missing: tuple[str, ...] = ()
    """Capabilities that it asks for and does not have."""


class Changed(msgspec.Struct, frozen=True):
    """The result of a change."""

    installed: Installed
    before: Installed | None
    """As it was; None if it was not installed."""
    problem: str = ""
    """Why the host did not load the release; the change itself is done."""

    @property
    def is_same(self) -> bool:
        """Whether nothing changed."""
        return self.before == self.installed


class InstalledPlugins:
    """The installed plugins of one server; the operator of all orgs alone sees and changes them."""

    def __init__(
        self,
        database: Database,
        host: Host,
        operator_plugins: OperatorPlugins,
        packages: Packages,
        releases: Releases,
        audit: Audit,
        clock: Clock,
        settings: GatewaySettings,
        rescan: Callable[[], Awaitable[object]],
    ) -> None:
        """`rescan` makes the host follow its folders at once."""
        self._database = database
        self._host = host
        self._operator_plugins = operator_plugins
        self._packages = packages
        self._releases = releases
        self._audit = audit
        self._settings = settings
        self._rescan = rescan
        self._kept = KeptPackages(settings.data / FOLDER, clock)
        self._unpacking = asyncio.Lock()
        """One at a time: an unpacked package may have 200 MiB."""
        self._changing = asyncio.Lock()

    def sweep(self) -> None:
        """Remove packages that waited for a consent when the last gateway ended. Blocks."""
        self._kept.sweep()

    @property
    def allows_unsigned(self) -> bool:
        return not self._settings.require_signature

    # Reading.

    async def store(self) -> Store | None:
        """The first store among the folders of the server; None if it serves none."""
        found = await asyncio.to_thread(lambda: [store_of(folder) for folder in self._settings.folders])
        return next((store for store in found if store is not None), None)

    async def page(self, caller: Principal, page: Page, search: str = "") -> Part[Installed]:
        """The installed plugins, the last change first; `search` is part of an id, a version or an origin."""
        store = await self._open(caller, "sees the installed plugins")
        words = search.lower()
        found = [
            item
            for item in await _in_thread(store.installed)
            if words in f"{item.id} {item.current.version} {item.current.source}".lower()
        ]
        return cut(sorted(found, key=_place, reverse=True), page, _place)

    async def get(self, caller: Principal, plugin_id: str) -> Installed:
        """One plugin; raises `not_found`."""
        store = await self._open(caller, "sees the installed plugins")
        found = await _in_thread(lambda: store.find(plugin_id))
        if found is None:
            raise not_found("installed_plugin", plugin_id)
        return found

    async def find(self, plugin_id: str) -> Installed | None:
        """One plugin, for its other pages; None also if the store cannot be read."""
        store = await self.store()
        try:
            return None if store is None else await _in_thread(lambda: store.find(plugin_id))
        except GatewayError:
            return None

    async def keys(self, caller: Principal) -> dict[str, TrustedKey]:
        """The keys of the trusted publishers by id, including revoked ones."""
        require_operator_of_all(caller, "sees the trusted keys")
        found = await translate_refusals(asyncio.to_thread(self._releases.trust.keys))
        return {key.key_id: key for key in found}

    def hosted(self, installed: Installed) -> Hosted | None:
        """The plugin in the running host; None if the host does not have it from this store."""
        found = self._find_hosted(installed)
        if found is None or found.spec is None:
            return None
        status = next((each for each in self._host.plugins() if each.spec.id == found.spec.id), None)
        missing = () if status is None else tuple(status.missing)
        return Hosted(found.spec.version, _is_current(found, installed), missing)

    # Look, then consent.

    async def offer(
        self, caller: Principal, archive: Path, signature: bytes | None = None, source: str = UPLOAD
    ) -> KeptPackage:
        """Keep a package until the consent; raises if it cannot be read. `signature` is a detached one."""
        await self._open(caller, "installs plugins")
        kept = await self._kept.keep(archive, signature, source)
        try:
            await self.look(caller, kept.id)
        except BaseException:
            await self._kept.remove(kept.id)
            raise
        return kept

    async def pull(self, caller: Principal, source: str) -> KeptPackage:
        """The same for a package of a registry. A tag may move: the look shows the digest that it has now."""
        await self._open(caller, "installs plugins")
        reference = parse_source(source)
        async with self._packages.download(caller, reference) as pulled:
            return await self.offer(caller, pulled.archive, pulled.signature, str(pulled.reference))

    async def look(self, caller: Principal, kept_id: str) -> tuple[KeptPackage, Look]:
        """Everything to decide on about a kept package."""
        store = await self._open(caller, "installs plugins")
        kept = await self._kept.find(kept_id)
        async with self._unpacking:
            look = self._installer(store).look
            return kept, await _in_thread(lambda: look(kept.archive, allow_unsigned=self.allows_unsigned))

    async def discard(self, caller: Principal, kept_id: str) -> None:
        """Remove a kept package; idempotent."""
        require_operator_of_all(caller, "installs plugins")
        await self._kept.remove(kept_id)

    async def install(self, caller: Principal, kept_id: str, digest: str, before: str) -> Changed:
        """Install a kept package as it was shown: `digest` is its digest, `before` that of the installed release (empty
        if there was none). Raises if one of them is another.
        """
        store = await self._open(caller, "installs plugins")
        kept = await self._kept.find(kept_id)
        async with self._changing:
            await self._database.check_writable(WRITABLE_SECONDS)
            async with self._unpacking:
                installer = self._installer(store)
                found = await _in_thread(lambda: self._install(installer, kept, digest, before))
            await self._kept.remove(kept_id)
            if found.is_same:
                return found
            release = found.installed.current
            facts = {"version": release.version, "digest": release.digest, "key_id": release.key_id}
            action = "plugin.install" if found.before is None else "plugin.upgrade"
            if found.before is not None:
                facts["before"] = found.before.current.version
            return await self._finish(caller, action, found, source=release.source, **facts)

    def _install(self, installer: Installer, kept: KeptPackage, digest: str, before: str) -> Changed:
        with installer.candidate(kept.archive, kept.source, allow_unsigned=self.allows_unsigned) as candidate:
            current = "" if candidate.before is None else candidate.before.current.digest
            if digest != candidate.opened.digest or (before != current and not candidate.unchanged):
                text = f"{candidate.package.id} changed since the page showed it"
                raise PackageRefused(Reason.CHANGED_MEANWHILE, text, hint="check the package again")
            return Changed(installer.install(candidate), candidate.before)

    # Changes of an installed plugin.

    async def look_back(self, caller: Principal, plugin_id: str, to: str) -> Rollback:
        """The release that a rollback returns to, which must have the digest `to`; raises if it would be refused."""
        store = await self._open(caller, "rolls plugins back")
        return await _in_thread(lambda: self._installer(store).look_back(plugin_id, to))

    async def rollback(self, caller: Principal, plugin_id: str, to: str) -> Changed:
        """Return to the previous release, which must have the digest `to`."""
        changed = await self._change(caller, plugin_id, lambda installer: installer.rollback(plugin_id, to))
        assert changed.before is not None
        facts = {"version": changed.installed.current.version, "before": changed.before.current.version}
        return await self._finish(caller, "plugin.rollback", changed, digest=to, **facts)

    async def pin(self, caller: Principal, plugin_id: str, pinned: bool) -> Changed:
        """Keep the plugin at its current release, or allow other releases again."""
        changed = await self._change(caller, plugin_id, lambda installer: installer.pin(plugin_id, pinned))
        version = changed.installed.current.version
        await self._record(caller, "plugin.pin" if pinned else "plugin.unpin", plugin_id, version=version)
        return changed

    async def uninstall(self, caller: Principal, plugin_id: str) -> Changed:
        """Remove the plugin with all its releases. Its settings, secrets and grants stay."""
        changed = await self._change(caller, plugin_id, lambda installer: installer.uninstall(plugin_id))
        await self._record(caller, "plugin.uninstall", plugin_id, version=changed.installed.current.version)
        await self._rescan()
        return changed

    async def _change(self, caller: Principal, plugin_id: str, change: Callable[[Installer], Installed]) -> Changed:
        store = await self._open(caller, "changes installed plugins")
        async with self._changing:
            await self._database.check_writable(WRITABLE_SECONDS)
            before = await self.get(caller, plugin_id)
            return Changed(await _in_thread(lambda: change(self._installer(store))), before)

    # After a change.

    async def _finish(self, caller: Principal, action: str, changed: Changed, **facts: Any) -> Changed:
        """Record a change, and make the host load the release."""
        await self._record(caller, action, changed.installed.id, **facts)
        problem = await self._load(caller, changed.installed)
        return Changed(changed.installed, changed.before, problem)

    async def _load(self, caller: Principal, installed: Installed) -> str:
        """Make the host use the current release; returns the problem. What it asks for more waits for its grants."""
        await self._rescan()
        found = self._find_hosted(installed)
        if found is None:
            return "the server does not host it from this store"
        if found.spec is None:
            return "; ".join(map(str, found.errors))
        if _is_current(found, installed) or self._is_stopped(installed.id):
            return ""  # a start reads the folder again
        try:
            await self._operator_plugins.operate(caller, installed.id, "reload")
        except GatewayError as error:
            return error.message
        return ""

    def _is_stopped(self, plugin_id: str) -> bool:
        found = self._host.supervisor(plugin_id)
        return found is not None and found.state is State.STOPPED

    def _find_hosted(self, installed: Installed) -> Found | None:
        place = os.path.realpath(installed.folder)
        return next((item for item in self._host.found if item.key[0] == place), None)

    async def _record(self, caller: Principal, action: str, plugin_id: str, **facts: Any) -> None:
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, action, "plugin", plugin_id, **facts)

    async def _open(self, caller: Principal, act: str) -> Store:
        require_operator_of_all(caller, act)
        store = await self.store()
        if store is None:
            raise conflict("plugin.no_store", "this server has no store of installed plugins")
        return store

    def _installer(self, store: Store) -> Installer:
        return Installer(store, self._releases.trust, self._releases.clock, limits=self._releases.limits)


def _place(installed: Installed) -> tuple[float, str]:
    """The sort key: the time of the current release, and the id. A time that was edited by hand may be none."""
    try:
        return moment(installed.current.installed_at), installed.id
    except ValueError:
        return 0.0, installed.id


def _is_current(found: Found, installed: Installed) -> bool:
    """Whether the host has the release that is installed: it keeps the folder of the release that it has read."""
    return found.spec is not None and os.path.realpath(found.spec.root) == os.path.realpath(installed.folder)


async def _in_thread(work: Callable[[], T]) -> T:
    """Use the store in a thread, and translate its errors."""

    def run() -> T:
        try:
            return work()
        except ConfigInvalid as error:
            text = f"{error}; correct the file, or delete it and lose its contents"
            raise unavailable("package.invalid_config", text) from None
        except OSError as error:
            text = f"the store cannot be changed: {error}; the user of the server needs write access"
            raise full_disk(error) or unavailable("plugin.store_unwritable", text) from None

    return await translate_refusals(asyncio.to_thread(run))
