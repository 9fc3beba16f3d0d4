"""A node takes a lease with a call, renews it, and stops its plugin in time when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from plugbay.cluster import keeper as module
from plugbay.cluster import outcomes
from plugbay.cluster.keeper import Keeper, LeaseRefused
from plugbay.cluster.times import Times
from plugbay.model.errors import Code, Failure
from tests.cluster.test_envelope import call
from tests.support.loops import Run, run  # noqa: F401
from tests.support.patience import until

LEASE = "plugin/p"


class Gateways:
    """Answers as gateways do; `free` decides who gets the lease."""

    def __init__(self) -> None:
        self.free = True
        self.away = False
        self.lost = False
        self.epoch = 0
        self.on_take: Callable[[], object] = lambda: None
        self.log: list[str] = []

    async def ask(self, kind: str, seconds: float, leases: Mapping[str, int], *_: Any) -> bytes | Failure:
        self.log.append(kind)
        if self.away:
            return Failure(Code.UNAVAILABLE, "away")
        if kind == "take":
            self.on_take()
            self.epoch += self.free
            found = {"taken": self.free, "node": "n1" if self.free else "n2", "epoch": self.epoch, "seconds": 30.0}
            return msgspec.json.encode(found)
        return msgspec.json.encode({"kept": [] if self.lost else list(leases), "seconds": 30.0})

    async def request(self, *_: Any) -> None: ...


class OneHost:
    """The host of a plugin."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.until = 0.0

    def live_until(self, moment: float) -> None:
        self.until = moment


class Hosts:
    """The hosts of a node, without processes."""

    def __init__(self) -> None:
        self.running: list[OneHost] = []
        self.broken = False

    async def prepare(self, package: Any) -> None: ...

    @asynccontextmanager
    async def host(self, *key: Any, live_until: float, elsewhere: Any) -> AsyncIterator[OneHost]:
        if self.broken:
            raise RuntimeError("it cannot be started")
        host = OneHost(key)
        host.live_until(live_until)
        self.running.append(host)
        yield host

    async def drop(self, key: Any) -> None:
        self.running = [host for host in self.running if host.key != key]


class Stage:
    """A keeper with a clock of its own."""

    def __init__(self, times: Times | None = None) -> None:
        self.now = 1_000.0
        self.gateways, self.hosts = Gateways(), Hosts()
        self.keeper = Keeper(
            "n1",
            self.gateways,  # type: ignore[arg-type]
            self.hosts,  # type: ignore[arg-type]
            lambda: None,
            times or Times(),
            lambda: self.now,
        )

    async def serve(self, settings: bytes = b"{}", epoch: int = 0) -> None:
        asked = replace(call(), lease=LEASE, epoch=epoch, settings=True)
        async with self.keeper.host(asked, settings):
            pass

    async def refusal(self, **how: Any) -> Mapping[str, Any]:
        with pytest.raises(LeaseRefused) as caught:
            await self.serve(**how)
        assert caught.value.failure.code == Code.UNAVAILABLE
        return caught.value.failure.detail

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.keeper.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_a_lease_is_taken_with_the_first_call_and_kept(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        stage = Stage()
        await asyncio.gather(stage.serve(), stage.serve(), stage.serve(epoch=1))
        assert stage.gateways.log == ["take"] and stage.keeper.epochs() == {LEASE: 1}
        (host,) = stage.hosts.running
        assert host.until == 1_025.0, "the warden kills its processes at five sixths of the lease"
        await stage.serve(b'{"other":1}')
        (other,) = stage.hosts.running
        assert other is not host and stage.gateways.log == ["take"], "one copy, with the newest settings"

    run(main)


def test_a_call_of_another_epoch_is_refused(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        stage = Stage()
        assert (await stage.refusal(epoch=1))["reason"] == outcomes.OLD_EPOCH
        assert stage.gateways.log == []
        await stage.serve()
        assert (await stage.refusal(epoch=2))["reason"] == outcomes.OLD_EPOCH
        await stage.serve(epoch=1)

    run(main)


def test_another_holder_is_named(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        stage = Stage()
        stage.gateways.free, stage.gateways.epoch = False, 4
        detail = await stage.refusal()
        assert (detail["reason"], detail["holder"], detail["epoch"]) == (outcomes.HELD_ELSEWHERE, "n2", 4)
        stage.gateways.away = True
        assert (await stage.refusal())["reason"] == outcomes.NOT_HELD
        stage.keeper.draining = True
        assert (await stage.refusal())["reason"] == "draining"
        stage.keeper.draining = False
        stage.keeper._held = dict.fromkeys(map(str, range(module.MAX_HELD)))  # type: ignore[assignment]
        assert (await stage.refusal())["reason"] == "overloaded"
        assert stage.hosts.running == []

    run(main)


def test_a_renewal_counts_from_before_it_was_asked(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        stage = Stage()
        await stage.serve()
        async with stage.running():
            stage.now += 6.0
            await until(lambda: stage.hosts.running[0].until == 1_031.0)
            assert stage.keeper.epochs() == {LEASE: 1}

    run(main)


@pytest.mark.parametrize("why", ["the gateways are away", "another node has it", "the clock has run on"])
def test_without_a_renewal_the_plugin_is_stopped(why: str, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        stage = Stage()
        await stage.serve()
        stage.gateways.away = why == "the gateways are away"
        stage.gateways.lost = why == "another node has it"
        stage.now += 6.0 if stage.gateways.lost else 20.0
        if not stage.gateways.lost:
            assert stage.keeper.epochs() == {}, "at once"
            assert (await stage.refusal())["reason"] == outcomes.NOT_HELD
        async with stage.running():
            await until(lambda: stage.hosts.running == [])
            stage.gateways.away = stage.gateways.lost = False
            await until(lambda: not stage.keeper._held)
            await stage.serve()
            assert stage.keeper.epochs() == {LEASE: 2}, "it takes the lease like any other"

    run(main)


def test_a_node_that_stood_still_while_it_took_a_lease_starts_nothing(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        stage = Stage()
        stage.gateways.on_take = lambda: setattr(stage, "now", stage.now + 20.0)
        assert (await stage.refusal())["reason"] == outcomes.NOT_HELD
        assert stage.hosts.running == [] and stage.keeper.epochs() == {}
        stage.gateways.on_take = lambda: None
        async with stage.running():
            await until(lambda: not stage.keeper._held)
            assert stage.gateways.log[0] == "take" and stage.gateways.log[-1] == "release"
            await stage.serve()

    run(main)


def test_a_drain_gives_leases_back_after_their_calls(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        stage = Stage()
        asked = replace(call(), lease=LEASE, settings=True)
        async with stage.running():
            async with stage.keeper.host(asked, b"{}"):
                stage.keeper.draining = True
                await asyncio.sleep(3 * module.TICK_SECONDS)
                assert stage.keeper.epochs() == {LEASE: 1}
            await until(lambda: stage.keeper.epochs() == {} and not stage.keeper._held)
            assert stage.hosts.running == [] and stage.gateways.log[-1] == "release"

    run(main)


def test_a_plugin_that_no_gateway_needs_is_stopped(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        stage = Stage(Times(unwanted=0.01))
        await stage.serve()
        async with stage.running():
            await until(lambda: not stage.keeper._held)
        assert stage.hosts.running == [] and "release" in stage.gateways.log

    run(main)


def test_a_plugin_that_cannot_be_started_keeps_no_lease(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        stage = Stage()
        stage.hosts.broken = True
        with pytest.raises(RuntimeError):
            await stage.serve()
        assert stage.gateways.log == ["take", "release"] and not stage.keeper._held
        stage.hosts.broken = False
        await stage.serve()
        await stage.keeper.stop()
        assert stage.hosts.running == [] and stage.gateways.log[-1] == "release"

    run(main)
