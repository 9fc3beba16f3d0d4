"""`Nodes`: packages of this gateway on the nodes of its cluster.

A node pulls a package from a registry by digest. A package that was uploaded is pushed to `[cluster] registry` before
its first call; one that came from a registry keeps its source.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from plugbay.cluster.calling import Cluster
from plugbay.cluster.envelope import Access, Package
from plugbay.cluster.remote import Placed, supervise_on_nodes
from plugbay.cluster.times import Times
from plugbay.host.config.config import Config
from plugbay.host.config.sections import ClusterConfig
from plugbay.host.confinement.reach import Reach
from plugbay.host.supervision.supervisor import Supervise
from plugbay.model.errors import CallFailed, Code, Failure, Origin, PlugbayError
from plugbay.model.spec import PluginSpec
from plugbay.packages.archive import pack
from plugbay.packages.connection import PUSH, Connection
from plugbay.packages.errors import PackageRefused
from plugbay.packages.package import read_folder
from plugbay.packages.reference import SCHEME, Registries, parse, tag_of
from plugbay.packages.registry import push
from plugbay.packages.store import Release as StoredRelease
from plugbay.packages.store import store_of
from plugbay.server.domain.errors import GatewayError, unavailable
from plugbay.server.domain.packages import Releases
from plugbay.store.packages import PackageRow

PUSH_SECONDS = 600.0

SHORT = 12
"""Digits of a hash in a tag."""

NOT_PUBLISHED = "package.not_published"


class Release(NamedTuple):
    """A release that nodes run."""

    id: str
    version: str
    tree: str
    digest: str
    source: str
    folder: Path


def find_release(spec: PluginSpec) -> tuple[StoredRelease, str]:
    """The installed release that a plugin is, and the hash over its files. Blocks; raises `PlugbayError`."""
    folder = spec.root.resolve()
    store = store_of(folder.parent.parent.parent / "plugins")
    state = None if store is None else store.state(spec.id)
    named = f"sha256:{folder.parent.name}"
    release = next((each for each in (state.releases if state else ()) if each.digest == named), None)
    if release is None:
        raise PlugbayError("nodes run only installed packages; pack it, then plugbay install")
    return release, read_folder(folder, to_pack=False).tree_sha256


class Nodes:
    """The nodes of one gateway's cluster."""

    def __init__(
        self,
        settings: ClusterConfig,
        environ: Mapping[str, str],
        releases: Releases,
        config: Config,
        *,
        unconfined: bool = False,
    ) -> None:
        """Raises `ConfigInvalid` when the credentials for NATS cannot be used."""
        self.cluster = Cluster(settings, environ, Times.of(settings.beat_seconds, settings.lost_seconds))
        self.cell = settings.name
        self._settings = settings
        self._releases = releases
        self._config = config
        self._unconfined = unconfined
        self._sources: dict[str, str] = {}
        """By digest: where nodes get a release."""
        self._pushing = asyncio.Lock()

    async def start(self) -> None:
        await self.cluster.start()

    async def stop(self) -> None:
        await self.cluster.stop()

    @property
    def problem(self) -> str | None:
        """Why no node is reached."""
        wire = self.cluster.wire
        return None if wire.is_up else f"NATS cannot be reached: {wire.problem}"

    async def supervise(self, row: PackageRow, reach: Reach, gateway_url: str | None) -> Supervise:
        """Makes the supervisor of a release on nodes; raises `GatewayError` when nodes cannot get the release."""
        package = Package(row.package_id, row.version, row.tree_sha256, await self._source(row))
        access = Access(reach.domains, reach.scratch, gateway_url)
        labels = self._config.plugin(row.package_id).on
        return supervise_on_nodes(self.cluster, Placed(package, access, labels, confined=not self._unconfined))

    async def installed(self, spec: PluginSpec) -> Package:
        """The release of a plugin that the operator installed; raises `CallFailed` when nodes cannot get it."""
        try:
            release, tree = await asyncio.to_thread(find_release, spec)
            one = Release(spec.id, spec.version, tree, release.digest, release.source, spec.root.resolve())
            return Package(spec.id, spec.version, tree, await self._source_of(one))
        except (GatewayError, PackageRefused, PlugbayError) as error:
            text = f"nodes cannot run {spec.id}: {error}"
            raise CallFailed(Failure(Code.UNAVAILABLE, text, origin=Origin.SYSTEM, plugin=spec.id)) from None

    async def _source(self, row: PackageRow) -> str:
        folder = self._releases.folder(row.digest, row.package_id)
        one = Release(row.package_id, row.version, row.tree_sha256, row.digest, row.source, folder)
        return await self._source_of(one)

    async def _source_of(self, release: Release) -> str:
        if release.source.startswith(SCHEME) and "@sha256:" in release.source:
            return release.source
        async with self._pushing:
            known = self._sources.get(release.digest)
            if known is None:
                known = self._sources[release.digest] = await self._publish(release)
        return known

    async def _publish(self, release: Release) -> str:
        if self._settings.registry is None:
            text = f"nodes cannot get {release.id}: it was uploaded, and [cluster] of plugbay.toml has no registry"
            raise unavailable(NOT_PUBLISHED, text)
        try:
            return await asyncio.to_thread(self._push, release, self._settings.registry)
        except PackageRefused as refused:
            text = f"nodes cannot get {release.id}: {refused.message}"
            raise unavailable(NOT_PUBLISHED, text) from None

    def _push(self, release: Release, registry: str) -> str:
        """Push a release under a tag of its version and its hash; returns the reference with its digest."""
        tag = f"{tag_of(release.version)[:64]}-{release.tree[:SHORT]}"
        repository = re.sub(r"[^a-z0-9]+", "-", release.id.lower()).strip("-")
        reference = parse(f"{registry.rstrip('/')}/{repository}:{tag}")
        registries = Registries.of(self._config.registries)
        with (
            tempfile.TemporaryDirectory(prefix="plugbay-push-") as folder,
            Connection(
                reference,
                plain_http=reference.is_local,
                actions=PUSH,
                registries=registries,
                seconds=PUSH_SECONDS,
            ) as connection,
        ):
            packed = pack(release.folder, Path(folder), self._releases.limits)
            return str(push(connection, reference, packed.path, {}).reference)
