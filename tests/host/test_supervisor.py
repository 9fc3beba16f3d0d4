"""Which supervisor a plugin gets is a fact of its spec."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from plugbay.host.discovery import inspect
from plugbay.host.per_call import PerCallSupervisor
from plugbay.host.resident import ResidentSupervisor
from plugbay.host.seat import Binding, Runtime
from plugbay.host.supervisor import supervise
from plugbay.link.deadlines import Deadlines
from plugbay.model.spec import Lifetime
from plugbay.process.child import Spawner
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.loops import Run
from tests.support.plugins import write_plugin


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
