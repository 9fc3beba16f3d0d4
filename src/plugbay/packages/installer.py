"""Installs, upgrades and rolls back: what is let into a store, and in which steps.

Every step leaves the store with the release it had or with the new one, and either works: files are complete before
they have a name, and the last step, one rename, is the one that counts. Whoever is killed between two steps leaves
rubbish at most, which the next change removes. How a store looks on disk is `store`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from plugbay.host.discovery.folders import inspect
from plugbay.packages import signature as signatures
from plugbay.packages.archive import signature_path
from plugbay.packages.difference import Difference, difference
from plugbay.packages.documents import MAX_BYTES
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.folder import SIGNATURE_NAME
from plugbay.packages.package import Opened, Package, open_archive
from plugbay.packages.rules import DEFAULT_LIMITS, Limits
from plugbay.packages.store import KEPT_RELEASES, Highest, Installed, Release, State, Store
from plugbay.packages.trust import TrustedKey, TrustStore
from plugbay.packages.versions import is_older

STEPS = ("staged", "wrote", "unpacked", "verified", "published", "recorded", "switched", "swept")
"""Where an installation can be interrupted, in their order. `wrote` comes once for each file."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A package that may be installed: unpacked, read, and signed by somebody trusted or let in unsigned."""

    opened: Opened
    source: str
    key_id: str | None
    before: Installed | None
    """What would be replaced, as it was when this package was compared with it."""
    difference: Difference | None

    @property
    def package(self) -> Package:
        return self.opened.package

    @property
    def unchanged(self) -> bool:
        """Whether it is exactly what is installed."""
        return self.before is not None and self.before.current.digest == self.opened.digest


class Verified(NamedTuple):
    """A signature that holds, and the key that made it."""

    signature: signatures.Signature
    key: TrustedKey


def verify(package: Package, data: bytes | None, trust: TrustStore, now: datetime) -> Verified:
    """Whose a package is, if a key that counts has signed it; else `PackageRefused`, each with its own reason."""
    if data is None:
        hint = "its publisher signs it with plugbay sign; plugbay install --allow-unsigned takes it without"
        raise PackageRefused(Reason.UNSIGNED, f"{package.id} {package.version} has no signature", hint=hint)
    signature = signatures.read(data)
    key = trust.judge(signature.key_id, package.id, now)
    signatures.check(signature, key.public_key, package)
    return Verified(signature, key)


def signature_of(archive: Path, opened: Opened) -> bytes | None:
    """The signature that came with an archive: beside it, or inside."""
    beside = signature_path(archive)
    if not beside.is_file():
        return opened.signature
    with open(beside, "rb") as file:
        return file.read(MAX_BYTES + 1)


class Installer:
    """Changes one store. `step` is told each step as it is done; it may raise, and it may never return."""

    def __init__(
        self,
        store: Store,
        trust: TrustStore,
        clock: Callable[[], datetime],
        *,
        limits: Limits = DEFAULT_LIMITS,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.store = store
        self._trust = trust
        self._clock = clock
        self._limits = limits
        self._step = step

    @contextmanager
    def candidate(self, archive: Path, source: str = "", *, allow_unsigned: bool = False) -> Iterator[Candidate]:
        """Unpack and verify a package, in a folder that is gone afterwards."""
        with self.store.staging() as folder:
            self._step("staged")
            opened = open_archive(archive, folder, self._limits, lambda name: self._step("wrote"))
            self._step("unpacked")
            signature = signature_of(archive, opened)
            key_id = None
            if signature is not None or not allow_unsigned:
                key_id = verify(opened.package, signature, self._trust, self._clock()).key.key_id
            if signature is not None:
                # So that the installed folder can be verified where it is.
                (opened.package.root / SIGNATURE_NAME).write_bytes(signature)
            self._step("verified")
            before = self.store.find(opened.package.id)
            yield Candidate(opened, source or archive.name, key_id, before, _compared(before, opened.package))

    def install(self, candidate: Candidate, *, allow_downgrade: bool = False) -> Installed:
        """Put a candidate where hosts find it; nothing happens when it is there already."""
        package, opened = candidate.package, candidate.opened
        with self.store.locked():
            state = self.store.state(package.id)
            before = self.store.find(package.id)
            if before is not None and before.current.digest == opened.digest:
                # Perhaps since a moment ago, by somebody else. What is missing is put back, what was changed is told.
                self.store.publish(package.root, opened.digest, package.id)
                return before
            if before != candidate.before:
                text = f"{package.id} was changed by somebody else meanwhile"
                raise PackageRefused(Reason.CHANGED_MEANWHILE, text, hint="look at it again")
            _require_unpinned(before)
            _check_version(candidate, state, allow_downgrade)
            self.store.publish(package.root, opened.digest, package.id)
            self._step("published")
            self.store.record(_following(package.id, state, before, self._release(candidate)))
            self._step("recorded")
            self.store.switch(package.id, opened.digest)
            self._step("switched")
            self.store.sweep()
            self._step("swept")
            return self._require(package.id)

    def rollback(self, plugin_id: str) -> Installed:
        """Go back to the release before the current one."""
        with self.store.locked():
            installed = self._require(plugin_id)
            _require_unpinned(installed)
            if not installed.earlier:
                text = f"{plugin_id} has no release before {installed.current.version}"
                raise PackageRefused(Reason.NO_EARLIER_RELEASE, text)
            self.store.switch(plugin_id, installed.earlier[-1].digest)
            return self._require(plugin_id)

    def pin(self, plugin_id: str, pinned: bool) -> Installed:
        """Keep a plugin at its current release, or let go of it."""
        with self.store.locked():
            installed = self._require(plugin_id)
            self.store.record(installed.state.model_copy(update={"pinned": pinned}))
            return self._require(plugin_id)

    def uninstall(self, plugin_id: str) -> Installed:
        """Remove every release of a plugin. Its highest version is remembered: an older one stays a replay."""
        with self.store.locked():
            installed = self._require(plugin_id)
            self.store.unlink(plugin_id)
            self.store.record(State(id=plugin_id, highest=installed.state.highest))
            self.store.sweep()
            return installed

    def _require(self, plugin_id: str) -> Installed:
        installed = self.store.find(plugin_id)
        if installed is None:
            known = ", ".join(item.id for item in self.store.installed()) or "nothing"
            text = f"{plugin_id} is not installed; installed is {known}"
            raise PackageRefused(Reason.NOT_INSTALLED, text)
        return installed

    def _release(self, candidate: Candidate) -> Release:
        return Release(
            digest=candidate.opened.digest,
            version=candidate.package.version,
            contract=candidate.package.spec.contract,
            source=candidate.source,
            key_id=candidate.key_id,
            installed_at=signatures.timestamp(self._clock()),
        )


def _compared(before: Installed | None, package: Package) -> Difference | None:
    """With the installed release; None when there is none, or when it is no plugin any more."""
    old = inspect(before.folder.resolve()).spec if before else None
    return difference(old, package.spec) if old else None


def _require_unpinned(installed: Installed | None) -> None:
    if installed is not None and installed.state.pinned:
        text = f"{installed.id} is pinned to {installed.current.version}"
        raise PackageRefused(Reason.PINNED, text, hint=f"plugbay unpin {installed.id}")


def _check_version(candidate: Candidate, state: State | None, allow_downgrade: bool) -> None:
    """Never other contents for a known version; never an older one unless the operator says so."""
    if state is None:
        return
    package, digest = candidate.package, candidate.opened.digest
    seen = {known.version: known.digest for known in state.releases} | {state.highest.version: state.highest.digest}
    expected = seen.get(package.version, digest)
    if expected != digest:
        text = f"{package.id} {package.version} is known as {expected}; this is {digest}"
        hint = "a version is released once; ask for a new one"
        raise PackageRefused(Reason.VERSION_CONFLICT, text, hint=hint, expected=expected, found=digest)
    before, highest = candidate.before, state.highest.version
    if allow_downgrade or not is_older(package.version, highest):
        return
    hint = "--allow-downgrade installs it all the same"
    if before is not None and is_older(package.version, before.current.version):
        text = f"{package.id} {package.version} is older than the installed {before.current.version}"
        raise PackageRefused(Reason.DOWNGRADE, text, hint=f"{hint}; plugbay rollback goes back to what was there")
    text = f"{package.id} {package.version} is older than {highest}, which was installed here before"
    raise PackageRefused(Reason.REPLAYED, text, hint=hint)


def _following(plugin_id: str, state: State | None, before: Installed | None, release: Release) -> State:
    """What is remembered once `release` follows the current one; what was rolled back is forgotten."""
    kept = [] if before is None else [*before.earlier, before.current]
    releases = [*(item for item in kept if item.digest != release.digest), release][-KEPT_RELEASES:]
    highest = Highest(version=release.version, digest=release.digest)
    if state is not None and is_older(release.version, state.highest.version):
        highest = state.highest
    return State(id=plugin_id, highest=highest, releases=releases)
