"""Hosts of packages: one for each release and reach, made when needed, gone when idle."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugbay.host.confinement.reach import Reach
from plugbay.server.domain import runner as runners
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.runner import IDLE_SECONDS
from tests.support.clocks import TurnedClock
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.packaged import Publisher, remove_release


def test_versions_run_side_by_side_and_hosts_that_nobody_needs_go(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway:
            publisher, runner = Publisher(tmp_path, tmp_path), gateway.runner
            one = await publisher.bring(gateway)
            two = await publisher.bring(gateway, version="2.0.0")
            async with runner.host(one, Reach()) as host, runner.host(two, Reach()) as other:
                assert host is not other and runner.running == 2
                async with runner.host(one, Reach()) as again, runner.host(one, Reach(())) as apart:
                    assert again is host and apart is not host
                bound = frozenset({one.digest, two.digest})
                assert await runner.reap_now(bound) == 0  # the one that is idle was just used
                clock.turn(IDLE_SECONDS)
                assert await runner.reap_now(bound) == 1 and runner.running == 2
                assert await runner.reap_now(frozenset()) == 0  # who is used stays
            assert await runner.reap_now(bound) == 0
            monkeypatch.setattr(runners, "MAX_HOSTS", 1)
            assert await runner.reap_now(bound) == 1 and runner.running == 1
            assert await runner.reap_now(frozenset()) == 1 and runner.running == 0  # nobody has bound it
            assert not runner.cancel("inv_none", "user_cancelled")
            await runner.stop()
            with pytest.raises(GatewayError, match="is stopping"):
                async with runner.host(one, Reach()):
                    pass

    run(main)


def test_a_release_reaches_its_own_files_and_nothing_else_of_the_server(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            publisher = Publisher(tmp_path, tmp_path)
            one = await publisher.bring(gateway)
            two = await publisher.bring(gateway, version="2.0.0")
            mine, other = (str(gateway.releases.folder(each.digest, each.package_id)) for each in (one, two))
            async with gateway.runner.host(one, Reach()) as host:
                (status,) = host.plugins()
                known = host.protection.of(status.spec)
                assert known.around(f"{mine}/bin/plugin") is None
                for path in (other, f"{other}/bin/plugin", f"{gateway.settings.data}/operator.token"):
                    entry = known.around(path)
                    assert entry is not None and entry.what == "the server's data folder"
                assert gateway.database.file is not None
                assert known.around(f"{gateway.database.file}-wal") is not None

    run(main)


def test_files_that_are_not_what_was_verified_start_nothing(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            package = await Publisher(tmp_path, tmp_path).bring(gateway)
            root = gateway.releases.folder(package.digest, package.package_id)
            os.chmod(root / "bin" / "plugin", 0o755)
            (root / "bin" / "plugin").write_text("#!/bin/sh\n")
            with pytest.raises(GatewayError) as caught:
                async with gateway.runner.host(package, Reach()):
                    pass
            assert caught.value.code == "package.tampered"
            assert gateway.runner.running == 0

    run(main)


def test_hosts_that_were_used_at_the_same_moment_go_and_failed_starts_leave_nothing(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            package, runner = await Publisher(tmp_path, tmp_path).bring(gateway), gateway.runner
            for reach in (Reach(), Reach(("api.example",))):
                async with runner.host(package, reach):
                    pass
            assert await runner.reap_now(frozenset()) == 2 and runner.running == 0
            remove_release(gateway.releases.folder(package.digest, package.package_id))
            with pytest.raises(GatewayError, match="are missing"):
                async with runner.host(package, Reach()):
                    raise AssertionError("there is nothing to start")
            assert not runner._slots

    run(main)
