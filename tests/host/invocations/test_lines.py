"""Lines in which work waits for its turn."""

from __future__ import annotations

import asyncio

from plugbay.host.invocations import lines as module
from plugbay.host.invocations.lines import Lines
from plugbay.host.limits import ConcurrencyLimit
from plugbay.model.errors import Code, Failure
from tests.support.loops import Run
from tests.support.patience import until


async def entered(lines: Lines, *key: str, limit: int = 1, seconds: float = 5) -> ConcurrencyLimit:
    turn = await lines.enter(key, limit, seconds)
    assert isinstance(turn, ConcurrencyLimit)
    return turn


def test_only_the_same_kind_of_work_waits_for_each_other(run: Run) -> None:
    async def main() -> None:
        lines = Lines()
        first = await entered(lines, "t", "org_1")
        await entered(lines, "t", "org_2")
        await entered(lines, "u", "org_1")
        waiting = asyncio.ensure_future(entered(lines, "t", "org_1"))
        await asyncio.sleep(0)
        assert not waiting.done()
        first.release()
        assert await waiting is first

    run(main)


def test_who_waits_too_long_goes_without(run: Run) -> None:
    async def main() -> None:
        lines = Lines()
        await entered(lines, "t")
        refused = await lines.enter(("t",), 1, 0.01)
        assert isinstance(refused, Failure) and refused.code == Code.OVERLOADED

    run(main)


def test_a_limit_changes_when_the_line_is_free(run: Run) -> None:
    async def main() -> None:
        lines = Lines()
        turn = await entered(lines, "t", limit=1)
        assert isinstance(await lines.enter(("t",), 2, 0.01), Failure)
        turn.release()
        assert (await entered(lines, "t", limit=2)).limit == 2
        await entered(lines, "t", limit=2)

    run(main)


def test_lines_that_nobody_needs_are_forgotten(run: Run) -> None:
    async def main() -> None:
        lines = Lines()
        busy = await entered(lines, "busy")
        for number in range(2 * module.MAX_FREE):
            (await entered(lines, str(number))).release()
        assert len(lines._lines) <= module.MAX_FREE
        waiting = asyncio.ensure_future(entered(lines, "busy"))
        await asyncio.sleep(0)
        busy.release()
        await until(waiting.done)

    run(main)
