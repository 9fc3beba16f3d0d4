"""The pool: greeted children kept ready, replaced when they die, given up when they never start."""

from __future__ import annotations

import os
from pathlib import Path

from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.per_call import PerCallLease
from plugbay.model.errors import Code
from plugbay.model.lifecycle import State
from plugbay.model.spec import RestartPolicy
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import write_plugin
from tests.support.supervision import Bench, answer


def test_a_pool_holds_greeted_children_and_fills_up_again(run: Run, tmp_path: Path) -> None:
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


def test_a_pooled_child_that_dies_is_replaced_and_never_leased(run: Run, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)

    async def main() -> None:
        async with Bench(folder, pool=1) as supervisor:
            supervisor.pool.fill()
            await until(lambda: len(supervisor.pool) == 1)
            victim = supervisor.pool._seats[0].child
            os.kill(victim.pid, 9)
            await until(lambda: len(supervisor.pool) == 1 and supervisor.pool._seats[0].child is not victim)
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
