"""What happens in a run, for whoever watches it."""

from __future__ import annotations

from plugbay.server.domain.run_feed import DEPTH, LAGGED, Feeds
from tests.support.loops import Run


def test_whoever_watches_sees_what_happens_until_the_end(run: Run) -> None:
    async def story() -> None:
        feeds = Feeds()
        feeds.tell("run_1", "response.delta", delta="before")
        with feeds.watch("run_1") as one, feeds.watch("run_1") as other:
            feeds.tell("run_1", "response.delta", delta="a")
            feeds.tell("run_2", "response.delta", delta="another run's")
            feeds.end("run_1")
            feeds.tell("run_1", "response.delta", delta="after")
            for feed in (one, other):
                assert [piece async for piece in feed] == [{"type": "response.delta", "delta": "a"}]

    run(story)


def test_a_watcher_that_does_not_keep_up_is_left_behind(run: Run) -> None:
    async def story() -> None:
        feeds = Feeds()
        with feeds.watch("run_1") as feed:
            for number in range(DEPTH + 10):
                feeds.tell("run_1", "response.delta", delta=str(number))
            feeds.end("run_1")
            seen = [piece async for piece in feed]
        assert len(seen) == DEPTH + 1
        assert seen[-1] == LAGGED

    run(story)


def test_who_leaves_is_told_nothing_more(run: Run) -> None:
    async def story() -> None:
        feeds = Feeds()
        with feeds.watch("run_1"):
            pass
        feeds.tell("run_1", "response.delta", delta="a")
        with feeds.watch("run_1") as feed:
            feeds.end("run_1")
            assert [piece async for piece in feed] == []

    run(story)
