"""Plugins with unknown exports are started when a name is not found. Real servers."""

from __future__ import annotations

from pathlib import Path

from plugbay import Host
from plugbay.host.discovery.folders import discover
from plugbay.model.errors import Code
from tests.support.loops import Run
from tests.support.mcp_servers import write_server
from tests.support.patience import PATIENCE
from tests.support.plugins import write_plugin


def test_a_full_name_starts_nobody_but_its_own_plugin(run: Run, tmp_path: Path) -> None:
    write_server(tmp_path, "one")
    write_server(tmp_path, "two")

    async def main() -> None:
        async with Host(discover([tmp_path]), grant_all=True, state_dir=tmp_path / "s") as host:
            await host.call("two/echo", timeout=PATIENCE)
            assert {status.spec.id: status.generation for status in host.plugins()} == {"one": 0, "two": 1}

    run(main)


def test_what_a_plugin_that_is_known_does_not_have_is_looked_for_nowhere_else(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, "known")
    write_server(tmp_path, "stranger")

    async def main() -> None:
        async with Host(discover([tmp_path]), grant_all=True, state_dir=tmp_path / "s") as host:
            failure = (await host.attempt("known/nothing", timeout=PATIENCE)).failure
            assert failure is not None and failure.code == Code.NOT_FOUND and "hint" not in failure.detail
            assert {status.spec.id: status.generation for status in host.plugins()}["stranger"] == 0
            assert (await host.attempt("nothing", timeout=PATIENCE)).failure is not None
            assert {status.spec.id: status.generation for status in host.plugins()}["stranger"] == 1

    run(main)


def test_a_name_is_looked_for_within_the_time_of_the_call(run: Run, tmp_path: Path) -> None:
    write_server(tmp_path, "mute", "def initialize(m): pass")

    async def main() -> None:
        async with Host(discover([tmp_path]), grant_all=True, state_dir=tmp_path / "s") as host:
            failure = (await host.attempt("mute/echo", timeout=0.5)).failure
            assert failure is not None and (failure.code, failure.plugin) == (Code.TIMEOUT, "mute")

    run(main)


def test_one_that_is_away_hides_nobody(run: Run, tmp_path: Path) -> None:
    write_server(tmp_path, "away", "sys.exit(1)")
    write_server(tmp_path, "here")

    async def main() -> None:
        async with Host(discover([tmp_path]), grant_all=True, state_dir=tmp_path / "s") as host:
            assert await host.call("echo", {"n": 1}, timeout=PATIENCE)
            failure = (await host.attempt("nothing", timeout=PATIENCE)).failure
            assert failure is not None and failure.code == Code.NOT_FOUND
            assert "away: " in failure.detail["hint"]

    run(main)


def test_who_may_not_run_is_not_started_by_being_named(run: Run, tmp_path: Path) -> None:
    write_server(tmp_path, "pending", f"open({str(tmp_path / 'started')!r}, 'w')")

    async def main() -> None:
        async with Host(discover([tmp_path]), state_dir=tmp_path / "s") as host:
            failures = await host.meet("pending", "nobody")
            assert {name: failure.code for name, failure in failures.items()} == {
                "pending": Code.CAPABILITY_NOT_ALLOWED,
                "nobody": Code.NOT_FOUND,
            }
            assert host.exports() == {}
        assert not (tmp_path / "started").exists()
        async with Host(discover([tmp_path]), state_dir=tmp_path / "s", grant_all=True) as host:
            assert await host.meet("pending") == {}
        assert (tmp_path / "started").exists()

    run(main)
