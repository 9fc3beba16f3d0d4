"""`Installer`: installs, upgrades, rolls back and removes packages in a store.

Every step leaves the store with the old or the new release, complete: files are complete before they get their name,
and the last step is one rename. A process killed in between leaves only temporary files, which the next change removes.
Also compares versions (SemVer, with a total order for other versions) and the permissions of two releases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from plugbay.host.discovery.folders import inspect
from plugbay.model.spec import PluginSpec, SandboxRequest
from plugbay.packages import signature as signatures
from plugbay.packages.archive import signature_path
from plugbay.packages.documents import MAX_BYTES
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.package import SIGNATURE_NAME, Opened, Package, open_archive
from plugbay.packages.rules import DEFAULT_LIMITS, Limits
from plugbay.packages.store import KEPT_RELEASES, Highest, Installed, Release, State, Store
from plugbay.packages.trust import TrustedKey, TrustStore

_PIECES = re.compile(r"[0-9]+|[^0-9.]+")

Key = tuple[tuple[int, int, str], ...]

STEPS = ("staged", "wrote", "unpacked", "verified", "published", "recorded", "switched", "swept")
"""Points at which an installation can be interrupted, in order. `wrote` comes once per file."""


def is_older(version: str, than: str) -> bool:
    """Whether `version` is older than `than`; build metadata (`+…`) does not count."""
    return version_key(version) < version_key(than)


def version_key(version: str) -> tuple[Key, bool, Key]:
    """Sort key: numbers as numbers, `1.0` equals `1.0.0`, `1.0.0-rc.1` comes before `1.0.0`."""
    text = version.strip().partition("+")[0].removeprefix("v")
    release, dash, pre_release = text.partition("-")
    return _release_key(release), not dash, _prerelease_key(pre_release)


def _release_key(text: str) -> Key:
    pieces = [_part(piece) for piece in _PIECES.findall(text)]
    while pieces and pieces[-1] == _part("0"):
        pieces.pop()
    return tuple(pieces)


def _prerelease_key(text: str) -> Key:
    return tuple(_part(piece) for piece in text.split(".")) if text else ()


def _part(piece: str) -> tuple[int, int, str]:
    """Numbers sort before words, as in SemVer."""
    # By number of digits first, then by text: no limit on the length of a number.
    digits = piece.lstrip("0")
    return (0, len(digits), digits) if piece.isascii() and piece.isdigit() else (1, 0, piece)


class Difference(msgspec.Struct, frozen=True):
    """Changes between two releases."""

    asked: tuple[str, ...]
    """New permissions and settings, which need consent."""
    dropped: tuple[str, ...]
    """Permissions and settings that are no longer needed."""
    added_exports: tuple[str, ...]
    removed_exports: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The JSON of `plugbay upgrade --json`."""
        return {
            "asked": list(self.asked),
            "dropped": list(self.dropped),
            "added_exports": list(self.added_exports),
            "removed_exports": list(self.removed_exports),
        }


def difference(before: PluginSpec, after: PluginSpec) -> Difference:
    """Compare what two releases ask of the operator."""
    old, new = asks(before), asks(after)
    had, has = _exports(before), _exports(after)
    asked = (*_other_contract(before, after), *_without(new, old), *_moved_permissions(before, after))
    return Difference(asked, _without(old, new), _without(has, had), _without(had, has))


def _other_contract(before: PluginSpec, after: PluginSpec) -> tuple[str, ...]:
    """The contract changed, so equal words may mean different things."""
    return () if before.contract == after.contract else (f"another contract, {after.contract}",)


def _moved_permissions(before: PluginSpec, after: PluginSpec) -> tuple[str, ...]:
    """Permissions that an export gained, although another export had them before."""
    had = {(export.kind, export.name): export.capabilities for export in before.exports}
    return tuple(
        f"{word} for {export.kind} {export.name}"
        for export in after.exports
        for word in export.capabilities
        if word in before.capabilities and word not in had.get((export.kind, export.name), (word,))
    )


def asks(spec: PluginSpec) -> tuple[str, ...]:
    """All permissions, settings and secrets that the plugin asks for."""
    secrets = (spec.settings.secrets_schema or {}).get("properties", {})
    found = [
        *spec.capabilities,
        *(f"may ask for {name}" for name in spec.optional_capabilities),
        *_sandbox_permissions(spec.sandbox),
        *(f"variable {name}" for name in spec.env_inherit),
        *(f"hears {topic}" for topic in (*spec.subscribes, *spec.snapshots)),
        *(f"publishes {topic}" for topic in spec.publishes),
        *(f"secret {name}" for name in secrets),
    ]
    return tuple(dict.fromkeys(found))


def _sandbox_permissions(sandbox: SandboxRequest | None) -> list[str]:
    """Permissions that the plugin's sandbox section asks for."""
    if sandbox is None:
        return ["no sandbox of its own"]
    return [
        *(["the host's network"] if sandbox.host_network else []),
        *(f"reads {path}" for path in sandbox.read),
        *(f"writes {path}" for path in sandbox.write),
    ]


def _exports(spec: PluginSpec) -> tuple[str, ...]:
    return tuple(f"{export.kind} {export.name}" for export in spec.exports)


def _without(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in others)


class Candidate(msgspec.Struct, frozen=True):
    """A package that may be installed: unpacked, and signed by a trusted key or accepted unsigned."""

    opened: Opened
    source: str
    key_id: str | None
    before: Installed | None
    """The installed release at the time of the comparison."""
    difference: Difference | None

    @property
    def package(self) -> Package:
        return self.opened.package

    @property
    def unchanged(self) -> bool:
        """Whether exactly this package is installed already."""
        return self.before is not None and self.before.current.digest == self.opened.digest


class Verified(NamedTuple):
    """A valid signature and its trusted key."""

    signature: signatures.Signature
    key: TrustedKey


class Look(msgspec.Struct, frozen=True):
    """A package before it is installed: the facts to decide on, and the reason if it would be refused."""

    spec: PluginSpec
    """Of files that are gone."""
    digest: str
    size: int
    files: int
    verified: Verified | None
    """None: unsigned, or the signature is refused."""
    before: Installed | None
    difference: Difference | None
    unchanged: bool
    refused: PackageRefused | None


class Rollback(NamedTuple):
    """A rollback before it is done."""

    installed: Installed
    release: Release
    """The release that becomes current."""
    difference: Difference | None
    """From the current release to that one; None if the files of one of them cannot be read."""


def verify(package: Package, data: bytes | None, trust: TrustStore, now: datetime) -> Verified:
    """Verify the signature of a package with a trusted key; raises `PackageRefused` with the reason."""
    if data is None:
        hint = "its publisher signs it with plugbay sign; plugbay install --allow-unsigned accepts it unsigned"
        raise PackageRefused(Reason.UNSIGNED, f"{package.id} {package.version} has no signature", hint=hint)
    signature = signatures.read(data)
    key = trust.judge(signature.key_id, package.id, now)
    signatures.check(signature, key.public_key, package)
    return Verified(signature, key)


def signature_of(archive: Path, opened: Opened) -> bytes | None:
    """The signature of an archive: the file beside it, or the one inside."""
    beside = signature_path(archive)
    if not beside.is_file():
        return opened.signature
    with open(beside, "rb") as file:
        return file.read(MAX_BYTES + 1)


class Installer:
    """Changes one store. `step` is called after each step; tests make it raise or kill the process."""

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
        """Unpack and verify a package in a temporary folder."""
        with self.store.staging() as folder:
            self._step("staged")
            opened = open_archive(archive, folder, self._limits, lambda name: self._step("wrote"))
            self._step("unpacked")
            signature = signature_of(archive, opened)
            verified = self._verify(opened, signature, allow_unsigned)
            if signature is not None:
                # So that the installed folder can be verified later.
                (opened.package.root / SIGNATURE_NAME).write_bytes(signature)
            self._step("verified")
            yield self._candidate(opened, source or archive.name, verified)

    def look(self, archive: Path, *, allow_unsigned: bool = False) -> Look:
        """Examine a package and change nothing. A package that cannot be read raises, as `candidate` does; any other
        reason for a refusal is part of the result.
        """
        with self.store.staging() as folder:
            opened = open_archive(archive, folder, self._limits)
            verified = refused = None
            try:
                verified = self._verify(opened, signature_of(archive, opened), allow_unsigned)
            except PackageRefused as error:
                refused = error
            candidate = self._candidate(opened, archive.name, verified)
            package = opened.package
            return Look(
                package.spec,
                opened.digest,
                opened.size,
                len(package.files),
                verified,
                candidate.before,
                candidate.difference,
                candidate.unchanged,
                refused or self._refusal(candidate),
            )

    def _verify(self, opened: Opened, signature: bytes | None, allow_unsigned: bool) -> Verified | None:
        """None for an unsigned package that is accepted; raises `PackageRefused`."""
        if signature is None and allow_unsigned:
            return None
        return verify(opened.package, signature, self._trust, self._clock())

    def _candidate(self, opened: Opened, source: str, verified: Verified | None) -> Candidate:
        before = self.store.find(opened.package.id)
        key_id = None if verified is None else verified.key.key_id
        return Candidate(opened, source, key_id, before, _compare(before, opened.package))

    def _refusal(self, candidate: Candidate) -> PackageRefused | None:
        """Why the store would refuse a candidate now."""
        if candidate.unchanged:
            return None
        try:
            _require_unpinned(candidate.before)
            _check_version(candidate, self.store.state(candidate.package.id), allow_downgrade=False)
        except PackageRefused as refused:
            return refused
        return None

    def install(self, candidate: Candidate, *, allow_downgrade: bool = False) -> Installed:
        """Install a candidate; does nothing when it is installed already."""
        package, opened = candidate.package, candidate.opened
        with self.store.locked():
            state = self.store.state(package.id)
            before = self.store.find(package.id)
            if before is not None and before.current.digest == opened.digest:
                # Perhaps another process has just installed it. `publish` restores missing files and refuses changed
                # ones.
                self.store.publish(package.root, opened.digest, package.id)
                return before
            if before != candidate.before:
                raise _changed_meanwhile(package.id)
            _require_unpinned(before)
            _check_version(candidate, state, allow_downgrade)
            self.store.publish(package.root, opened.digest, package.id)
            self._step("published")
            self.store.record(_next_state(package.id, state, before, self._release(candidate)))
            self._step("recorded")
            self.store.switch(package.id, opened.digest)
            self._step("switched")
            self.store.sweep()
            self._step("swept")
            return self._require(package.id)

    def rollback(self, plugin_id: str, to: str | None = None) -> Installed:
        """Go back to the previous release; raises if `to` is given and not its digest."""
        with self.store.locked():
            _, release = self._previous(plugin_id, to)
            self.store.switch(plugin_id, release.digest)
            return self._require(plugin_id)

    def look_back(self, plugin_id: str, to: str | None = None) -> Rollback:
        """What `rollback` would do; raises what it would raise."""
        installed, release = self._previous(plugin_id, to)
        old, new = (
            inspect(self.store.package_folder(each.digest, plugin_id)).spec for each in (installed.current, release)
        )
        return Rollback(installed, release, difference(old, new) if old and new else None)

    def _previous(self, plugin_id: str, to: str | None) -> tuple[Installed, Release]:
        installed = self._require(plugin_id)
        _require_unpinned(installed)
        if not installed.earlier:
            text = f"{plugin_id} has no release before {installed.current.version}"
            raise PackageRefused(Reason.NO_EARLIER_RELEASE, text)
        release = installed.earlier[-1]
        if to not in (None, release.digest):
            raise _changed_meanwhile(plugin_id)
        return installed, release

    def pin(self, plugin_id: str, pinned: bool) -> Installed:
        """Pin a plugin to its current release, or unpin it."""
        with self.store.locked():
            installed = self._require(plugin_id)
            self.store.record(installed.state.model_copy(update={"pinned": pinned}))
            return self._require(plugin_id)

    def uninstall(self, plugin_id: str) -> Installed:
        """Remove all releases of a plugin. Its highest version is kept, so that older versions are still refused as
        replays.
        """
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


def _compare(before: Installed | None, package: Package) -> Difference | None:
    """Compare with the installed release; None when there is none, or when it is no longer readable."""
    old = inspect(before.folder.resolve()).spec if before else None
    return difference(old, package.spec) if old else None


def _changed_meanwhile(plugin_id: str) -> PackageRefused:
    text = f"another process changed {plugin_id} at the same time"
    return PackageRefused(Reason.CHANGED_MEANWHILE, text, hint="check the package again")


def _require_unpinned(installed: Installed | None) -> None:
    if installed is not None and installed.state.pinned:
        text = f"{installed.id} is pinned to {installed.current.version}"
        raise PackageRefused(Reason.PINNED, text, hint=f"plugbay unpin {installed.id}")


def _check_version(candidate: Candidate, state: State | None, allow_downgrade: bool) -> None:
    """Refuse a known version with different contents, and an older version unless downgrades are allowed."""
    if state is None:
        return
    package, digest = candidate.package, candidate.opened.digest
    seen = {known.version: known.digest for known in state.releases} | {state.highest.version: state.highest.digest}
    expected = seen.get(package.version, digest)
    if expected != digest:
        text = f"{package.id} {package.version} was installed before with the digest {expected}; this file has {digest}"
        hint = "a version must not change; ask the publisher for a new version"
        raise PackageRefused(Reason.VERSION_CONFLICT, text, hint=hint, expected=expected, found=digest)
    before, highest = candidate.before, state.highest.version
    if allow_downgrade or not is_older(package.version, highest):
        return
    hint = "--allow-downgrade installs it anyway"
    if before is not None and is_older(package.version, before.current.version):
        text = f"{package.id} {package.version} is older than the installed {before.current.version}"
        raise PackageRefused(Reason.DOWNGRADE, text, hint=f"{hint}; plugbay rollback returns to the previous release")
    text = f"{package.id} {package.version} is older than {highest}, which was installed here before"
    raise PackageRefused(Reason.REPLAYED, text, hint=hint)


def _next_state(plugin_id: str, state: State | None, before: Installed | None, release: Release) -> State:
    """The state after `release` becomes current; releases that were rolled back are dropped."""
    kept = [] if before is None else [*before.earlier, before.current]
    releases = [*(item for item in kept if item.digest != release.digest), release][-KEPT_RELEASES:]
    highest = Highest(version=release.version, digest=release.digest)
    if state is not None and is_older(release.version, state.highest.version):
        highest = state.highest
    return State(id=plugin_id, highest=highest, releases=releases)
