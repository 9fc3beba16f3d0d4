"""Which supervisor a plugin gets is a fact of its spec."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from plugbay.host.discovery.folders import inspect
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Runtime
from plugbay.host.supervision.per_call import PerCallSupervisor
from plugbay.host.supervision.per_org import PerOrgSupervisor
from plugbay.host.supervision.resident import ResidentSupervisor
from plugbay.host.supervision.supervisor import supervise
from plugbay.link.deadlines import Deadlines
from plugbay.model.spec import Lifetime
from plugbay.process.child import Spawner
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.loops import Run
from tests.support.plugins import write_plugin
from tests.support.vai import write_vai_plugin


@pytest.mark.parametrize(
    ("lifetime", "kind"), [(Lifetime.PER_CALL, PerCallSupervisor), (Lifetime.RESIDENT, ResidentSupervisor)]
)
def test_the_lifetime_decides(run: Run, tmp_path: Path, lifetime: Lifetime, kind: type) -> None:
    spec = inspect(write_plugin(tmp_path)).spec
    assert spec is not None

    async def main() -> None:
        runtime = Runtime(Spawner(), Deadlines(asyncio.get_running_loop()), MsgspecCodec())
        supervisor = supervise(Binding(replace(spec, lifetime=lifetime)), runtime)
        assert type(supervisor) is kind
        await supervisor.stop()
        await runtime.spawner.close()

    run(main)


def test_exports_with_execution_classes_have_a_per_org_supervisor_and_all_others_a_single_one(
    run: Run, tmp_path: Path
) -> None:
    plain, classed = inspect(write_plugin(tmp_path)).spec, inspect(write_vai_plugin(tmp_path)).spec
    assert plain is not None and classed is not None

    async def main() -> None:
        runtime = Runtime(Spawner(), Deadlines(asyncio.get_running_loop()), MsgspecCodec())
        fleet = supervise(Binding(classed), runtime)
        [export] = classed.exports
        assert type(fleet) is PerOrgSupervisor
        assert fleet.for_export("worker", "a", export) is not fleet.for_export("worker", "b", export)
        for lifetime in Lifetime:
            one = supervise(Binding(replace(plain, lifetime=lifetime)), runtime)
            assert one.for_export("worker", "a", export) is one
            await one.stop()
        await fleet.stop()
        await runtime.spawner.close()

    run(main)
