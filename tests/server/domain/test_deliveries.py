"""Deliveries, for those who look at them and those who want them told again."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.model.errors import Code, Failure, Origin
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.workers import Job
from plugbay.store.deliveries import Delivery
from plugbay.store.pages import Page
from tests.support.conversing import CALLER, STRANGER, ScriptedWorkers, Talk, conversing, settled
from tests.support.loops import Run
from tests.support.requirements import requirement


def hook(answer: Any) -> ScriptedWorkers:
    async def answers(job: Job) -> Any:
        return answer

    workers = ScriptedWorkers()
    workers.bind("hook", "h", answers, subscribes_to=("run.completed",))
    return workers


async def ended(talk: Talk) -> Delivery:
    look = talk.conversations.deliveries.page
    part = await settled(
        lambda: look(CALLER, Page()), lambda part: [each.completed_at is not None for each in part.items] == [True]
    )
    return part.items[0]


def test_a_delivery_is_shown_with_its_event_and_its_attempts(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=hook({"status": "ack"})) as talk:
            done = await talk.answered("go")
            delivery = await ended(talk)
            shown, event, attempts = await talk.conversations.deliveries.get(CALLER, delivery.id)
            assert (shown, event.subject_id, [each.attempt for each in attempts]) == (delivery, done.id, [1])
            page = talk.conversations.deliveries.page
            assert (await page(CALLER, Page(), status="dead_letter")).items == ()
            assert (await page(CALLER, Page(), binding_id="bind_h", event_id=event.id)).items == (delivery,)

    run(story)


@requirement("vai:control-cross-tenant")
def test_another_orgs_deliveries_are_not_there(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=hook({"status": "ack"})) as talk:
            await talk.answered("go")
            delivery = await ended(talk)
            for ask in (talk.conversations.deliveries.get, talk.conversations.deliveries.replay):
                with pytest.raises(GatewayError) as refused:
                    await ask(STRANGER, delivery.id)
                assert refused.value.code == "delivery.not_found"
            assert (await talk.conversations.deliveries.page(STRANGER, Page())).items == ()

    run(story)


@requirement("vai:control-delivery-ack")
def test_what_was_delivered_is_never_delivered_again(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=hook({"status": "ack"})) as talk:
            await talk.answered("go")
            delivery = await ended(talk)
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.deliveries.replay(CALLER, delivery.id)
            assert (refused.value.code, refused.value.status) == ("delivery.delivered", 409)
            assert len(talk.workers.jobs) == 1

    run(story)


def test_what_waits_cannot_be_replayed_and_what_failed_can(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        later = Failure(Code.PLUGIN_ERROR, "later", origin=Origin.PLUGIN, retryable=True, retry_after_ms=299_000)
        never = Failure(Code.PLUGIN_ERROR, "never", origin=Origin.PLUGIN)
        async with conversing(sqlite_url, workers=hook(later)) as talk:
            await talk.answered("go")
            look = talk.conversations.deliveries.page
            part = await settled(lambda: look(CALLER, Page()), lambda part: part.items[0].error_code is not None)
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.deliveries.replay(CALLER, part.items[0].id)
            assert (refused.value.code, refused.value.retryable) == ("delivery.not_ended", True)
            talk.workers.bindings.update(hook(never).bindings)
            await talk.answered("again")
            both = await settled(lambda: look(CALLER, Page()), lambda part: part.items[0].status == "failed")
            assert len(both.items) == 2
            await talk.conversations.deliveries.replay(CALLER, both.items[0].id)
            again = await settled(lambda: look(CALLER, Page()), lambda part: part.items[0].attempts == 2)
            assert again.items[0].id == both.items[0].id

    run(story)
