"""Every plugin of the ainb catalogue that misbehaves, against the real host: what is expected comes, and nothing else.

The plugins and what must come of each are the kit's catalogue; the host is plugbay's, the processes are real.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from plugbay import CallFailed, Host
from plugbay.conformance.bad_plugins.catalogue import FOLDER, Entry, prepare
from plugbay.conformance.bad_plugins.host_runner import verdict
from plugbay.host.discovery.folders import discover
from tests.e2e.ainb_port import AinbPort, ainb_entries, good_ainb_folder, hurried
from tests.e2e.conftest import eventually, sampled
from tests.support.canaries import load_canaries, prepare_canary
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement


@requirement("ainb:kit-bad-plugins", "ainb:kit-framing", "ainb:kit-envelope", "ainb:kit-identity", "ainb:kit-errors")
@requirement("ainb:kit-pictures", "ainb:kit-gates", "ainb:kit-publishing", "ainb:kit-farewell", "ainb:kit-crash")
@pytest.mark.parametrize("entry", sampled(ainb_entries()), ids=lambda entry: entry.name)
def test_row(entry: Entry, tmp_path: Path) -> None:
    port = AinbPort(good_ainb_folder(tmp_path))
    observed = asyncio.run(port.visit(prepare(entry, tmp_path, FOLDER / "ainb"), entry))
    assert verdict(entry.expect, observed) == ""
    assert port.next_output == b"hello\n"


def canary_host(axis: str, tmp: Path) -> Host:
    canary = next(each for each in load_canaries() if each.axis == axis)
    found = [hurried(item) for item in discover([prepare_canary(canary, tmp)])]
    return Host(found)


async def crash(host: Host) -> None:
    """Kill the plugin, and wait until the host knows."""
    (status,) = host.plugins()
    assert status.pid is not None
    os.kill(status.pid, signal.SIGKILL)
    assert await eventually(lambda: host.plugins()[0].pid is None)


@requirement("ainb:kit-crash")
def test_a_canary_that_was_killed_draws_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with canary_host("crash_recovery", tmp_path) as host:
            before = await host.screens.render("canary/main", 80, 24, timeout=PATIENCE)
            await crash(host)
            assert await host.screens.render("canary/main", 80, 24, timeout=PATIENCE) == before

    asyncio.run(story())


@requirement("ainb:kit-crash")
def test_a_canary_that_was_killed_three_times_is_quarantined_and_draws_after_a_reload(tmp_path: Path) -> None:
    async def story() -> None:
        async with canary_host("render_determinism", tmp_path) as host:
            for _ in range(3):
                await host.screens.render("canary/main", 80, 24, timeout=PATIENCE)
                await crash(host)
            with pytest.raises(CallFailed) as refused:
                await host.screens.render("canary/main", 80, 24, timeout=PATIENCE)
            assert refused.value.failure.code == "quarantined"
            await host.reload("canary")
            frame = await host.screens.render("canary/main", 80, 24, timeout=PATIENCE)
            assert frame.lines()[0] == "hello, canary"

    asyncio.run(story())
