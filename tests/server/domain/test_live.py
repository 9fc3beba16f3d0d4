"""What is going on, for whoever watches."""

from __future__ import annotations

import asyncio

import pytest

from plugbay.server.domain import live
from plugbay.server.domain.live import DEPTH, ENDED, EVENT, LOST, Live, LiveEvent
from tests.store.test_invocations import record
from tests.support.loops import Run


def test_a_watcher_hears_what_it_wants_in_order_until_nothing_happens_any_more(run: Run) -> None:
    async def main() -> None:
        all_of_it = Live()
        watch = all_of_it.watch(lambda event: event.type == EVENT)
        assert watch is not None
        for number in range(3):
            all_of_it.tell(LiveEvent(EVENT, record(), number))
            all_of_it.tell(LiveEvent(ENDED, record()))
        heard = [await anext(watch) for _ in range(3)]
        assert [event.data for event in heard] == [0, 1, 2]
        waiting = asyncio.ensure_future(anext(watch, None))
        await asyncio.sleep(0)
        all_of_it.close()
        assert await waiting is None
        all_of_it.tell(LiveEvent(EVENT, record(), "to nobody"))

    run(main)


def test_who_is_too_slow_loses_the_oldest_and_is_told_how_many(run: Run) -> None:
    async def main() -> None:
        all_of_it = Live()
        watch = all_of_it.watch(lambda event: True)
        assert watch is not None
        for number in range(DEPTH + 2):
            all_of_it.tell(LiveEvent(EVENT, record(), number))
        assert await anext(watch) == LiveEvent(LOST, None, 2)
        assert (await anext(watch)).data == 2
        watch.close()

    run(main)


def test_there_are_only_so_many_watchers_and_one_that_leaves_makes_room(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_WATCHERS", 1)

    async def main() -> None:
        all_of_it = Live()
        first = all_of_it.watch(lambda event: True)
        assert first is not None and all_of_it.watch(lambda event: True) is None
        first.close()
        assert all_of_it.watch(lambda event: True) is not None

    run(main)
