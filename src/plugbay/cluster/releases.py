"""`NodeReleases`: the packages that a node runs, pulled from a registry by digest and verified by the node itself.

Neither a gateway nor a registry is trusted: the files must be signed by a key in the node's own trust.json, and must be
those that the call names. The folder is a cache: it may be lost.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from plugbay.cluster.envelope import Package
from plugbay.host.discovery.folders import Found, inspect
from plugbay.packages.connection import NO_EXCEPTIONS, Connection
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.installer import signature_of, verify
from plugbay.packages.package import SIGNATURE_NAME, open_archive, read_folder, read_signature
from plugbay.packages.reference import Registries, parse
from plugbay.packages.registry import pull
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustStore

PULL_SECONDS = 600.0

FINAL = frozenset(
    {
        Reason.BAD_SIGNATURE_FILE,
        Reason.SIGNATURE_INVALID,
        Reason.IDENTITY_MISMATCH,
        Reason.TAMPERED,
        Reason.EXTRA_FILE,
        Reason.MISSING_FILE,
        Reason.DIGEST_MISMATCH,
    }
)
"""Reasons that every node would give: the package is not the one that was signed."""


class NodeReleases:
    """The packages of one node."""

    def __init__(
        self,
        folder: Path,
        trust: TrustStore,
        clock: Callable[[], datetime],
        *,
        require_signature: bool = True,
        registries: Registries = NO_EXCEPTIONS,
    ) -> None:
        self._store = Store(folder)
        self._trust = trust
        self._require_signature = require_signature
        self._registries = registries
        self._clock = clock
        self._pulling: dict[str, asyncio.Lock] = {}

    async def load(self, package: Package) -> Found:
        """The plugin of a package, pulled if it is not here; raises `PackageRefused`. One pull for all that wait."""
        lock = self._pulling.setdefault(package.tree, asyncio.Lock())
        async with lock:
            return await asyncio.to_thread(self._load, package)

    def _load(self, package: Package) -> Found:
        digest = f"sha256:{package.tree}"
        root = self._store.package_folder(digest, package.id)
        if not root.is_dir():
            self._pull(package, digest)
        self._verify(package, root)
        found = inspect(root)
        if found.spec is None:
            raise PackageRefused(Reason.INVALID_MANIFEST, f"{package.id} has no manifest that can be used")
        return found

    def _verify(self, package: Package, root: Path) -> None:
        """Check files and signature of an unpacked release; a key may have been revoked since it was pulled."""
        read = read_folder(root, to_pack=False)
        if read.tree_sha256 != package.tree or (read.id, read.version) != (package.id, package.version):
            text = f"the files of {package.id} {package.version} are not those that the gateway names"
            raise PackageRefused(Reason.TAMPERED, text)
        signature = read_signature(root)
        if signature is not None or self._require_signature:
            verify(read, signature, self._trust, self._clock())

    def _pull(self, package: Package, digest: str) -> None:
        reference = parse(package.source)
        if reference.digest is None:
            raise PackageRefused(Reason.NOT_FOUND, f"{package.source} has no digest")
        plain = reference.is_local
        with (
            tempfile.TemporaryDirectory(prefix="plugbay-node-") as folder,
            Connection(reference, plain_http=plain, registries=self._registries, seconds=PULL_SECONDS) as connection,
            self._store.staging() as staged,
        ):
            pulled = pull(connection, reference, Path(folder))
            opened = open_archive(pulled.archive, staged)
            signature = signature_of(pulled.archive, opened)
            if signature is not None:
                (opened.package.root / SIGNATURE_NAME).write_bytes(signature)
            self._verify(package, opened.package.root)
            with self._store.locked():
                self._store.publish(opened.package.root, digest, package.id)
