"""Leases, exit checks and the pool. Real processes, both loops."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from plugbay.host.supervision import per_call
from plugbay.host.supervision.instance import Deadline, Instance
from plugbay.host.supervision.per_call import PerCallLease
from plugbay.model.errors import Code, Failure
from plugbay.model.lifecycle import State
from plugbay.model.operations import DeliverEvent
from plugbay.model.spec import RestartPolicy
from tests.support.descriptors import no_free_descriptors
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.supervision import Bench, answer


def test_a_lease_is_one_instance_for_one_call_and_state_follows(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder) as supervisor:
            assert supervisor.state is State.IDLE
            lease = await supervisor.lease(Deadline(5))
            assert isinstance(lease, PerCallLease)
            assert (supervisor.state, supervisor.busy, supervisor.generation) == (State.RUNNING, 1, 1)
            lease.release()
            assert (supervisor.state, supervisor.busy) == (State.IDLE, 0)
            assert await answer(supervisor, {"a": 1}) == {"a": 1}
            assert supervisor.generation == 2

    run(main)


def test_an_instance_that_serves_one_call_gets_no_notifications(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder) as supervisor:
            lease = await supervisor.lease(Deadline(5))
            assert isinstance(lease, PerCallLease)
            assert not supervisor.notify(DeliverEvent("t", {}))
            supervisor.mark_shown()
            assert supervisor.state is State.RUNNING
            lease.release()

    run(main)


def test_concurrent_calls_have_instances_of_their_own(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder) as supervisor:
            answers = await asyncio.gather(*(answer(supervisor, number) for number in range(12)))
            assert answers == list(range(12))
            assert supervisor.generation == 12

    run(main)


def test_a_failed_start_leaves_the_plugin_idle_and_no_process(run: Run, tmp_path: Path) -> None:
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


def test_a_lease_abandoned_by_cancellation_leaves_no_process(run: Run, tmp_path: Path) -> None:
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


def test_calls_beyond_the_limit_queue_and_never_run_at_the_same_time(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        bench = Bench(folder, concurrency=3)
        async with bench as supervisor:
            peak = 0

            async def watch() -> None:
                nonlocal peak
                while True:
                    peak = max(peak, len(bench.spawner.children))
                    await asyncio.sleep(0.001)

            watcher = asyncio.ensure_future(watch())
            assert await asyncio.gather(*(answer(supervisor, number) for number in range(20))) == list(range(20))
            watcher.cancel()
            assert 0 < peak <= 3 + 1, "a child that is being collected may still be listed"

    run(main)


def test_a_call_without_a_slot_in_time_is_overloaded_and_retryable(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder, concurrency=1) as supervisor:
            lease = await supervisor.lease(Deadline(5))
            assert isinstance(lease, PerCallLease)
            failure = await supervisor.lease(Deadline(0.05))
            assert isinstance(failure, Failure)
            assert (failure.code, failure.retryable) == (Code.OVERLOADED, True)
            lease.release()
            assert await answer(supervisor, "next") == "next"

    run(main)


def test_a_pool_holds_greeted_instances_and_refills(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder, pool=3) as supervisor:
            supervisor.pool.fill()
            await until(lambda: len(supervisor.pool) == 3)
            assert supervisor.state is State.IDLE
            before = supervisor.generation
            lease = await supervisor.lease(Deadline(5))
            assert isinstance(lease, PerCallLease)
            assert supervisor.generation == before
            lease.release()
            await until(lambda: len(supervisor.pool) == 3)
            assert await answer(supervisor, "x") == "x"

    run(main)


def test_a_pooled_instance_that_dies_is_replaced_and_never_leased(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder, pool=1) as supervisor:
            supervisor.pool.fill()
            await until(lambda: len(supervisor.pool) == 1)
            victim = supervisor.pool._instances[0].child
            os.kill(victim.pid, 9)
            await until(lambda: len(supervisor.pool) == 1 and supervisor.pool._instances[0].child is not victim)
            assert await answer(supervisor, "x") == "x"

    run(main)


def test_a_pool_whose_plugin_never_starts_gives_up_and_calls_still_say_why(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, script="exit 1\n")
    policy = RestartPolicy(first_delay=0.001, failures=2)

    async def main() -> None:
        async with Bench(folder, pool=2, policy=policy) as supervisor:
            supervisor.pool.fill()
            await until(lambda: not supervisor.pool.filling)
            assert len(supervisor.pool._failures) == 3
            assert await answer(supervisor, 1) == Code.CRASHED

    run(main)


@requirement("host:shortage")
def test_a_pool_is_filled_as_soon_as_the_host_has_descriptors_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_call, "SHORTAGE_SECONDS", 0.01)

    async def main() -> None:
        bench = Bench(write_plugin(tmp_path), pool=2, policy=RestartPolicy(failures=0))
        starts: list[bool] = []
        start = bench.supervisor.pool._open_one

        async def counted() -> Instance | Failure:
            started = await start()
            starts.append(isinstance(started, Instance))
            return started

        bench.supervisor.pool._open_one = counted
        async with bench as supervisor:
            with no_free_descriptors():
                supervisor.begin()
                await until(lambda: len(starts) >= 3 or not supervisor.pool.filling)
            await until(lambda: supervisor.ready == 2 or not supervisor.pool.filling)
            assert (starts[:3], supervisor.ready) == ([False] * 3, 2)

    run(main)


def test_a_plugin_that_dies_right_after_its_greeting_is_given_up_too(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, script="read -r _; printf '%s\\n' '{hello}'; exit 1\n")
    policy = RestartPolicy(first_delay=0.001, failures=3)

    async def main() -> None:
        async with Bench(folder, pool=1, policy=policy) as supervisor:
            supervisor.pool.fill()
            await until(lambda: len(supervisor.pool._failures) == 4 and not supervisor.pool.filling)
            born = supervisor.generation
            supervisor.pool.fill()
            await until(lambda: not supervisor.pool.filling)
            assert supervisor.generation == born

    run(main)
