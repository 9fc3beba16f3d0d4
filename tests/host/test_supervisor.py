"""Leases, judgement of exits, the pool of greeted children. Real processes, both loops."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from plugbay.host.discovery import inspect
from plugbay.host.restart import RestartPolicy
from plugbay.host.supervisor import Binding, Deadline, Lease, Runtime, Supervisor
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import Code, Failure
from plugbay.model.lifecycle import State
from plugbay.model.operations import InvokeTool
from plugbay.process.child import Spawner
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.loops import Run, until
from tests.support.plugins import write_plugin

CODEC = MsgspecCodec()


class Bench:
    """A supervisor with everything around it."""

    def __init__(self, folder: Path, pool: int = 0, policy: RestartPolicy | None = None) -> None:
        spec = inspect(folder).spec
        assert spec is not None
        self.spawner = Spawner()
        self.runtime = Runtime(self.spawner, Deadlines(asyncio.get_running_loop()), CODEC)
        self.supervisor = Supervisor(Binding(spec, pool=pool), self.runtime, policy)

    async def __aenter__(self) -> Supervisor:
        return self.supervisor

    async def __aexit__(self, *error: object) -> None:
        await self.supervisor.stop()
        await self.spawner.close()
        assert not self.spawner.children


async def answer(supervisor: Supervisor, value: object) -> object:
    deadline = Deadline(5)
    lease = await supervisor.lease(deadline)
    if isinstance(lease, Failure):
        return lease.code
    try:
        finished = await lease.link.call(InvokeTool("t", CODEC.dump(value)), deadline.left())
        finished = await lease.conclude(finished, deadline)
        return finished.failure.code if finished.failure else CODEC.load(finished.value)
    finally:
        lease.release()


def test_a_lease_is_one_child_for_one_call_and_state_follows(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder) as supervisor:
            assert supervisor.state is State.IDLE
            lease = await supervisor.lease(Deadline(5))
            assert isinstance(lease, Lease)
            assert (supervisor.state, supervisor.busy, supervisor.generation) == (State.RUNNING, 1, 1)
            lease.release()
            assert (supervisor.state, supervisor.busy) == (State.IDLE, 0)
            assert await answer(supervisor, {"a": 1}) == {"a": 1}
            assert supervisor.generation == 2

    run(main)


def test_calls_at_the_same_time_have_children_of_their_own(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder) as supervisor:
            answers = await asyncio.gather(*(answer(supervisor, number) for number in range(12)))
            assert answers == list(range(12))
            assert supervisor.generation == 12

    run(main)


def test_a_failed_start_leaves_the_plugin_idle_and_no_child(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, script="exit 3\n")

    async def main() -> None:
        async with Bench(folder) as supervisor:
            failure = await supervisor.lease(Deadline(5))
            assert isinstance(failure, Failure)
            assert failure.code == Code.CRASHED
            assert failure.detail["exit_code"] == 3
            assert supervisor.state is State.IDLE

    run(main)


def test_a_stopped_supervisor_leases_nothing(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder) as supervisor:
            await supervisor.stop()
            assert await answer(supervisor, 1) == Code.UNAVAILABLE

    run(main)


def test_a_pool_holds_greeted_children_and_fills_up_again(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder, pool=3) as supervisor:
            supervisor.fill()
            await until(lambda: supervisor.ready == 3)
            assert supervisor.state is State.IDLE
            before = supervisor.generation
            lease = await supervisor.lease(Deadline(5))
            assert isinstance(lease, Lease)
            assert supervisor.generation == before
            lease.release()
            await until(lambda: supervisor.ready == 3)
            assert await answer(supervisor, "x") == "x"

    run(main)


def test_a_pooled_child_that_dies_is_replaced_and_never_leased(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder, pool=1) as supervisor:
            supervisor.fill()
            await until(lambda: supervisor.ready == 1)
            victim = supervisor._pool[0].child
            os.kill(victim.pid, 9)
            await until(lambda: supervisor.ready == 1 and supervisor._pool[0].child is not victim)
            assert await answer(supervisor, "x") == "x"

    run(main)


def test_a_pool_whose_plugin_never_starts_gives_up_and_calls_still_say_why(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, script="exit 1\n")
    policy = RestartPolicy(first_delay=0.001, failures=2)

    async def main() -> None:
        async with Bench(folder, pool=2, policy=policy) as supervisor:
            supervisor.fill()
            await until(lambda: supervisor._filler is not None and supervisor._filler.done())
            assert supervisor.generation == 3
            assert await answer(supervisor, 1) == Code.CRASHED

    run(main)


def test_a_lease_abandoned_by_cancellation_leaves_no_child(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, script="sleep 60\n")

    async def main() -> None:
        bench = Bench(folder)
        async with bench as supervisor:
            task = asyncio.ensure_future(supervisor.lease(Deadline(30)))
            await until(lambda: bool(bench.spawner.children))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: not bench.spawner.children)

    run(main)
