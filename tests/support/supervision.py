"""A supervisor with everything around it, for tests of the host's insides."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from plugbay.host.config.config import TimeoutOverrides
from plugbay.host.discovery.folders import inspect
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline, Runtime
from plugbay.host.supervision.per_call import PerCallSupervisor
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import Failure
from plugbay.model.operations import InvokeTool
from plugbay.model.spec import RestartPolicy
from plugbay.process.child import Spawner
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.patience import PATIENCE

CODEC = MsgspecCodec()


class Bench:
    """A supervisor with everything around it."""

    def __init__(self, folder: Path, pool: int = 0, policy: RestartPolicy | None = None, concurrency: int = 32) -> None:
        spec = inspect(folder).spec
        assert spec is not None
        spec = replace(spec, timeouts=TimeoutOverrides().over(spec.timeouts))
        self.spawner = Spawner()
        self.runtime = Runtime(self.spawner, Deadlines(asyncio.get_running_loop()), CODEC)
        self.supervisor = PerCallSupervisor(Binding(spec, pool=pool, concurrency=concurrency), self.runtime, policy)

    async def __aenter__(self) -> PerCallSupervisor:
        return self.supervisor

    async def __aexit__(self, *error: object) -> None:
        await self.supervisor.stop()
        await self.spawner.close()
        assert not self.spawner.children


async def answer(supervisor: PerCallSupervisor, value: object) -> object:
    deadline = Deadline(PATIENCE)
    lease = await supervisor.lease(deadline)
    if isinstance(lease, Failure):
        return lease.code
    try:
        finished = await lease.link.call(InvokeTool("t", CODEC.dump(value)), deadline.left())
        finished = await lease.conclude(finished, deadline)
        return finished.failure.code if finished.failure else CODEC.load(finished.value)
    finally:
        lease.release()
