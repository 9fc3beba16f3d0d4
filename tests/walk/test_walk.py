"""The walk of a call: each step once going down, once coming up, in the operator's own vocabulary."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plugbay import Host
from plugbay.host.supervision.per_call import PerCallSupervisor
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until
from tests.support.plugins import write_plugin

COLD = """
host.call catalog.resolve policy.authorize supervisor.lease process.spawn
stream.write stream.read machine.receive link.ready
link.call machine.call stream.write stream.read machine.receive link.settle
supervisor.conclude host.call.finished
""".split()

WARM = """
host.call catalog.resolve policy.authorize supervisor.lease
link.call machine.call stream.write stream.read machine.receive link.settle
supervisor.conclude host.call.finished
""".split()


def test_a_call_on_a_cold_plugin_walks_every_layer_in_order(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    steps: list[str] = []

    async def main() -> None:
        async with Host.load(tmp_path, trace=steps.append) as host:
            assert await host.call("t", 1) == 1

    asyncio.run(main())
    assert steps == COLD


def test_a_warm_child_skips_the_spawn_and_the_greeting(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    (tmp_path / "c.toml").write_text("[plugins.p]\npool = 1\n")
    steps: list[str] = []

    async def main() -> None:
        async with Host.load(tmp_path / "p", config=tmp_path / "c.toml", trace=steps.append) as host:
            await until(lambda: host.plugins()[0].ready == 1)
            steps.clear()
            supervisor = host.calls.supervisors["p"]
            assert isinstance(supervisor, PerCallSupervisor)
            supervisor.pool.fill = lambda: None  # type: ignore[method-assign]
            assert await host.call("t", 1) == 1

    asyncio.run(main())
    assert steps == WARM


def test_a_call_that_is_denied_never_reaches_the_supervisor(tmp_path: Path) -> None:
    write_plugin(tmp_path, capabilities=["a"])
    steps: list[str] = []

    async def main() -> None:
        async with Host.load(tmp_path, trace=steps.append) as host:
            await host.attempt("t")

    asyncio.run(main())
    assert steps == ["host.call", "catalog.resolve", "policy.authorize", "host.call.finished"]


RESIDENT = """
host.call catalog.resolve policy.authorize supervisor.lease
link.call machine.call stream.write stream.read machine.receive link.settle
host.call.finished
""".split()


def test_a_call_on_a_resident_child_only_asks_and_settles(tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, tools=["t"])
    steps: list[str] = []

    async def main() -> None:
        async with Host.load(tmp_path, trace=steps.append) as host:
            await host.settled()
            steps.clear()
            assert await host.call("p_t", {"a": 1}) == {"a": 1}
            walked = list(steps)
        assert walked == RESIDENT

    asyncio.run(main())
