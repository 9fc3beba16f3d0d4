"""`Releases`: the files of packages, each an immutable folder named by its digest, and what their manifests say.

Owns the way from an archive to such a folder: unpacked and verified aside, put in place in one step, and held against
its hash again before anything of it is started. Blocks on the disk, so it is used from threads. Refuses to know whose a
package is and who may use it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from plugbay.host.discovery.folders import Found, inspect
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.installer import verify
from plugbay.packages.package import SIGNATURE_NAME, Opened, open_archive, read_folder
from plugbay.packages.rules import DEFAULT_LIMITS, Limits
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustStore

FOLDER = "packages"
"""Below the data directory."""

TRUST_FILE = "trust.json"

UNTRUSTED = frozenset({Reason.KEY_UNKNOWN, Reason.KEY_EXPIRED, Reason.KEY_REVOKED, Reason.KEY_OF_OTHER_PUBLISHER})
"""Reasons why a signature does not count, though nobody says that it is false."""

CONTRACT = "vai"


@dataclass(frozen=True, slots=True)
class Posture:
    """What a signature is worth here."""

    status: str
    """`verified`, `untrusted` or `missing`; an invalid one is refused altogether."""
    key_id: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Arrived:
    """An archive that was unpacked aside, and looked through."""

    opened: Opened
    manifest: dict[str, Any]
    posture: Posture

    @property
    def digest(self) -> str:
        return self.opened.digest


class Releases:
    """The package files of one gateway."""

    def __init__(self, data: Path, clock: Callable[[], datetime], limits: Limits = DEFAULT_LIMITS) -> None:
        self._store = Store(data / FOLDER)
        self.trust = TrustStore(data / TRUST_FILE)
        self.clock = clock
        self.limits = limits
        self._known: dict[str, Found] = {}

    def sweep(self) -> None:
        """Remove what uploads that were killed have left."""
        with self._store.locked():
            self._store.sweep_leftovers()

    @contextmanager
    def arriving(self, archive: Path, signature: bytes | None = None) -> Iterator[Arrived]:
        """Unpack an archive aside and judge it; `signature` is one that came beside it. Gone afterwards."""
        with self._store.staging() as folder:
            opened = open_archive(archive, folder, self.limits)
            spec = opened.package.spec
            if spec.contract != CONTRACT:
                text = f"{spec.id} is a plugin of {spec.contract}; packages here are of {CONTRACT}"
                raise PackageRefused(Reason.INVALID_MANIFEST, text)
            said = signature if signature is not None else opened.signature
            posture = self._posture(opened, said)
            if said is not None:
                (opened.package.root / SIGNATURE_NAME).write_bytes(said)
            text = (opened.package.root / opened.package.manifest).read_text("utf-8")
            yield Arrived(opened, tomllib.loads(text), posture)

    def keep(self, arrived: Arrived) -> None:
        """Give an unpacked release its place for good; nothing happens when it is there."""
        package = arrived.opened.package
        with self._store.locked():
            self._store.publish(package.root, arrived.digest, package.id)

    def _posture(self, opened: Opened, signature: bytes | None) -> Posture:
        """Raises `PackageRefused` for a signature that is false: somebody has changed something."""
        if signature is None:
            return Posture("missing", why="it has no signature")
        try:
            return Posture("verified", verify(opened.package, signature, self.trust, self.clock()).key.key_id)
        except PackageRefused as refused:
            if refused.reason not in UNTRUSTED:
                raise
            return Posture("untrusted", why=refused.message)

    def folder(self, digest: str, package_id: str) -> Path:
        """Where the files of a release are."""
        return self._store.package_folder(digest, package_id)

    def known(self, digest: str) -> Found | None:
        """What the manifest of a release says, if that was read before."""
        return self._known.get(digest)

    def found(self, digest: str, package_id: str) -> Found:
        """What the manifest of a release says; read once. Raises `PackageRefused` when its files are gone."""
        known = self.known(digest)
        if known is None:
            root = self.folder(digest, package_id)
            known = inspect(root)
            if known.spec is None:
                raise PackageRefused(Reason.MISSING_FILE, f"the files of {package_id} are gone from {root}")
            self._known[digest] = known
        return known

    def intact(self, digest: str, package_id: str, tree_sha256: str) -> Found:
        """The same, once every file was seen to be what was verified; raises `PackageRefused`."""
        root = self.folder(digest, package_id)
        try:
            package = read_folder(root, to_pack=False)
        except OSError as error:
            raise PackageRefused(Reason.MISSING_FILE, f"the files of {package_id} are gone from {root}") from error
        if package.tree_sha256 != tree_sha256:
            raise PackageRefused(Reason.TAMPERED, f"the files of {package_id} are not those that were verified")
        return self.found(digest, package_id)
