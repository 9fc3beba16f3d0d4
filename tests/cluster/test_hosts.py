"""The hosts of a node start with the first call and end when they are idle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.cluster import hosts as module
from plugbay.cluster.envelope import Access
from plugbay.cluster.hosts import NodeHosts
from plugbay.cluster.releases import NodeReleases
from plugbay.host.config.config import Config
from plugbay.packages.errors import PackageRefused
from plugbay.packages.trust import TrustStore
from tests.support.loops import Run, run  # noqa: F401
from tests.support.nodes import Cell
from tests.support.packaged import SIGNED_AT


def test_calls_share_a_host_until_it_is_idle(
    shared_cell: Cell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,  # noqa: F811
) -> None:
    package, _ = shared_cell.push(shared_cell.publisher.pack())

    async def main() -> None:
        releases = NodeReleases(tmp_path / "packages", TrustStore(shared_cell.trust), lambda: SIGNED_AT)
        hosts = NodeHosts(releases, Config.default(), tmp_path / "state", None, unconfined=True)
        async with hosts.host(package, Access()) as first, hosts.host(package, Access()) as second:
            assert first is second and hosts.plugins() == ["acme/p 1.0.0"]
            monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
            await hosts.reap()
            assert hosts.plugins() == ["acme/p 1.0.0"], "it is in use"
            async with hosts.host(package, Access(domains=())) as third:
                assert third is not first, "another access needs another sandbox"
        await asyncio.sleep(0.01)
        await hosts.reap()
        assert hosts.plugins() == []
        await hosts.stop()

    run(main)


def test_a_package_that_is_refused_leaves_nothing(shared_cell: Cell, tmp_path: Path, run: Run) -> None:  # noqa: F811
    package, _ = shared_cell.push(shared_cell.publisher.pack())

    async def main() -> None:
        releases = NodeReleases(tmp_path / "packages", TrustStore(tmp_path / "none.json"), lambda: SIGNED_AT)
        hosts = NodeHosts(releases, Config.default(), tmp_path / "state", None, unconfined=True)
        with pytest.raises(PackageRefused):
            async with hosts.host(package, Access()):
                pass
        assert not hosts._slots

    run(main)
