"""Conversations as one area: what is left is closed before anything begins."""

from __future__ import annotations

from tests.support.conversing import CALLER, conversing, stuck
from tests.support.loops import Run
from tests.support.patience import until


def test_a_stopped_area_can_be_followed_by_another_at_once(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, stuck()) as talk:
            begun = await talk.begun("go")
            await until(lambda: bool(talk.server.seen))
        async with conversing(sqlite_url) as after:
            chain = await after.conversations.chains.get(CALLER, begun.chain_id)
            assert chain.status == "idle"
            assert (await after.answered("again", chain)).status == "completed"

    run(story)


def test_new_deliveries_wake_whoever_tells_of_them(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            made = talk.conversations
            assert made.events.told == made.dispatcher.wake
            assert made.deliveries.replayed == made.dispatcher.wake

    run(story)
