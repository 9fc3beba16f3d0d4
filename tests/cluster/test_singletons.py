"""A gateway sees to it that its plugins run somewhere."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest
from msgspec.structs import asdict

from plugbay.cluster import singletons as module
from plugbay.cluster.roster import Roster
from plugbay.cluster.singletons import Singletons, lease_name
from plugbay.model.errors import Code, Failure
from tests.cluster.test_envelope import beat
from tests.support.loops import Run, run  # noqa: F401
from tests.support.patience import until


class Plugin:
    """A plugin that is started by its first node."""

    lease_name = lease_name("p")

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.starts = 0
        self.is_stopped = False
        self.failure: Failure | None = None
        self.bug = False

    async def start_somewhere(self) -> Failure | None:
        self.starts += 1
        if self.bug:
            raise RuntimeError("a bug")
        if self.failure is None:
            self.hold(self.starts)
        return self.failure

    def hold(self, epoch: int | None) -> None:
        self.roster.note_holder(self.lease_name, "n1", epoch)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)


def test_a_plugin_without_a_holder_is_started(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        roster = Roster()
        singletons, plugin = Singletons(roster), Plugin(roster)
        singletons.want(plugin)
        singletons.want(plugin)
        await asyncio.sleep(0.02)
        assert plugin.starts == 0, "there is no node"
        roster.hear(beat(), monotonic())
        await until(lambda: plugin.starts == 1)
        await asyncio.sleep(0.02)
        assert plugin.starts == 1, "it has a holder"
        plugin.hold(None)
        await until(lambda: plugin.starts == 2)
        plugin.is_stopped = True
        await until(lambda: not singletons._keeping)
        await singletons.stop()

    run(main)


def test_a_node_is_asked_again_until_it_can(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        roster = Roster()
        roster.hear(beat(), monotonic())
        singletons, plugin = Singletons(roster), Plugin(roster)
        plugin.failure = Failure(Code.UNAVAILABLE, "another one holds it")
        plugin.bug = True
        singletons.want(plugin)
        await until(lambda: plugin.starts > 2)
        plugin.bug = False
        plugin.failure = None
        await until(lambda: bool(roster.nodes["n1"].beat.held))
        await singletons.stop()
        assert not singletons._keeping
        assert asdict(roster.nodes["n1"].beat)["held"] == {"plugin/p": plugin.starts}

    run(main)
