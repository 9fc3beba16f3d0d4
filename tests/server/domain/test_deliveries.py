"""Events, deliveries and the dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.request import CallRequest
from plugbay.model.errors import Code, Failure, Origin
from plugbay.server.domain import background
from plugbay.server.domain import deliveries as module
from plugbay.server.domain.deliveries import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_ATTEMPTS,
    Dispatcher,
    Events,
    NewEvent,
    retry_pause,
)
from plugbay.server.domain.errors import GatewayError, conflict
from plugbay.store import deliveries as rows
from plugbay.store import events as event_rows
from plugbay.store.deliveries import Attempt, Delivery
from plugbay.store.failures import StoreUnavailable
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from tests.support.clocks import TurnedClock
from tests.support.conversing import CALLER, STRANGER, ScriptedWorkers, Talk, conversing, says, settled
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement


def hook(answer: Any) -> ScriptedWorkers:
    async def answers(work: CallRequest) -> Any:
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
def test_a_delivered_event_is_never_delivered_again(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=hook({"status": "ack"})) as talk:
            await talk.answered("go")
            delivery = await ended(talk)
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.deliveries.replay(CALLER, delivery.id)
            assert (refused.value.code, refused.value.status) == ("delivery.delivered", 409)
            assert len(talk.workers.received) == 1

    run(story)


def test_a_pending_delivery_cannot_be_replayed_and_a_failed_one_can(run: Run, sqlite_url: str) -> None:
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


@requirement("vai:control-delivery-backoff")
def test_pauses_double_from_one_second_to_five_minutes() -> None:
    assert [retry_pause(attempts, 1.0) for attempts in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@given(attempts=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_chance_takes_at_most_half_of_a_pause(attempts: int, chance: float) -> None:
    whole = retry_pause(attempts, 1.0)
    assert whole / 2 <= retry_pause(attempts, chance) <= whole <= LONGEST_PAUSE


@pytest.mark.parametrize(("requested", "pause"), [(0.1, 1.0), (30.0, 30.0), (9_999.0, 300.0)])
def test_a_hook_may_wish_for_a_longer_pause_but_not_for_ever(requested: float, pause: float) -> None:
    assert retry_pause(1, 1.0, requested) == pause


def new(cause: str = "run_1") -> NewEvent:
    return NewEvent(
        type="run.completed",
        subject_kind="run",
        subject_id=cause,
        cause_id=cause,
        org_id="org_1",
        project_id="proj_1",
        session_id="sess_1",
        chain_id="ch_1",
        run_id=cause,
        summary={"task": "t", "output": "o"},
        trace_id="tr_1",
        cause_depth=1,
    )


def two_hooks() -> ScriptedWorkers:
    async def never(work: object) -> None:
        raise AssertionError("nobody delivers here")

    workers = ScriptedWorkers()
    for name in ("a", "b"):
        workers.bind("hook", name, never, subscribes_to=("run.completed",))
    workers.bind("hook", "deaf", never, subscribes_to=("chain.compacted",))
    return workers


async def kept(talk: Talk) -> tuple[list[str], list[tuple[str, str]]]:
    async with talk.database.reading() as tx:
        events = (await event_rows.page(tx, Page(), ALL_TENANTS)).items
        deliveries = (await rows.page(tx, Page(), ALL_TENANTS)).items
    return [event.id for event in events], sorted((each.event_id, each.binding_id) for each in deliveries)


@requirement("vai:control-outbox")
def test_an_event_comes_with_a_delivery_for_each_hook_that_wants_it(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=two_hooks(), started=False) as talk:
            told: list[int] = []
            events = Events(talk.database, talk.workers, talk.clock, lambda: told.append(1))
            async with talk.database.transaction() as tx:
                await events.record(tx, new())
                assert told == [], "nobody is told before it is true"
            assert told == [1]
            [event], deliveries = await kept(talk)
            assert deliveries == [(event, "bind_a"), (event, "bind_b")]

    run(story)


@requirement("vai:control-outbox")
def test_a_rollback_removes_the_event_too(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=two_hooks(), started=False) as talk:
            with pytest.raises(KeyError):
                async with talk.database.transaction() as tx:
                    await talk.conversations.events.record(tx, new())
                    raise KeyError("something else went wrong")
            assert await kept(talk) == ([], [])

    run(story)


def test_a_cause_makes_an_event_of_one_type_once(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=two_hooks(), started=False) as talk:
            for _ in range(2):
                async with talk.database.transaction() as tx:
                    await talk.conversations.events.record(tx, new())
            events, deliveries = await kept(talk)
            assert (len(events), len(deliveries)) == (1, 2)

    run(story)


def test_events_are_listed_for_their_tenant(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, says("done")) as talk:
            done = await talk.answered("do it")
            events = talk.conversations.events
            [event] = (await events.page(CALLER, Page(), run_id=done.id)).items
            assert (event.type, event.subject_id, event.summary) == (
                "run.completed",
                done.id,
                {"task": "do it", "output": "done"},
            )
            assert (await events.page(CALLER, Page(), type="chain.compacted")).items == ()
            assert (await events.page(STRANGER, Page())).items == ()

    run(story)


NOT_NOW = Failure(Code.PLUGIN_ERROR, "later", origin=Origin.PLUGIN, retryable=True)
NEVER = Failure(Code.PLUGIN_ERROR, "never", origin=Origin.PLUGIN, detail={"plugin_code": "slack.gone"})
CRASHED = Failure(Code.CRASHED, "gone", retryable=True)


class Hook:
    """Answers as a test says, the last answer again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers
        self.received: list[CallRequest] = []

    async def __call__(self, work: CallRequest) -> Any:
        self.received.append(work)
        answer = self.answers[min(len(self.received), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def hooked(hook: Hook, *events: str) -> ScriptedWorkers:
    workers = ScriptedWorkers()
    workers.bind("hook", "h", hook, subscribes_to=events or ("run.completed",))
    return workers


async def deliveries(talk: Talk) -> list[Delivery]:
    async with talk.database.reading() as tx:
        return list((await rows.page(tx, Page(), ALL_TENANTS)).items)


async def the_delivery(talk: Talk, status: str) -> Delivery:
    """The one delivery there is, once it has this status."""
    found = await settled(lambda: deliveries(talk), lambda all: [each.status for each in all] == [status])
    return found[0]


def has_had(attempts: int) -> Callable[[list[Delivery]], bool]:
    """Whether the one delivery there is has come back from so many attempts."""
    return lambda all: [each.attempts for each in all if each.status != "delivering"] == [attempts]


def waits_after(attempts: int) -> Callable[[list[Delivery]], bool]:
    """The same, and it waits for the next one."""
    return lambda all: [each.attempts for each in all if each.status == "pending"] == [attempts]


async def history(talk: Talk, delivery: Delivery) -> list[Attempt]:
    async with talk.database.reading() as tx:
        return await rows.attempts(tx, delivery.id)


@requirement("vai:control-delivery-ack")
def test_a_hook_that_acknowledges_is_called_once(run: Run, database_url: str) -> None:
    async def story() -> None:
        hook = Hook({"status": "ack"})
        async with conversing(database_url, workers=hooked(hook)) as talk:
            done = await talk.answered("fix the bug")
            delivery = await the_delivery(talk, "delivered")
            assert (delivery.attempts, delivery.completed_at is not None) == (1, True)
            [work] = hook.received
            assert (work.execution_id, work.attempt, work.run_id) == (delivery.id, 1, done.id)
            assert work.input["type"] == "run.completed"
            assert work.input["subject"] == {"kind": "run", "id": done.id}
            assert work.input["summary"] == {"task": "fix the bug", "output": "ok"}
            talk.conversations.dispatcher.wake()
        async with conversing(database_url, workers=hooked(hook)) as talk:
            assert len(hook.received) == 1
            assert [attempt.outcome for attempt in await history(talk, delivery)] == ["succeeded"]

    run(story)


@requirement("vai:control-delivery-retry")
def test_attempts_share_one_delivery_id_and_come_later_and_retry_or_give_up(run: Run, database_url: str) -> None:
    async def story() -> None:
        clock, hook = TurnedClock(), Hook(NOT_NOW, CRASHED, {"status": "ack"})
        async with conversing(database_url, workers=hooked(hook), clock=clock) as talk:
            await talk.answered("go")
            for attempts in (1, 2):
                waiting = await settled(lambda: deliveries(talk), waits_after(attempts))
                pause = waiting[0].due_at - clock.now()
                assert retry_pause(attempts, 0.0) - 0.001 <= pause <= retry_pause(attempts, 1.0) + 0.001
                talk.conversations.dispatcher.wake()
                clock.turn(pause + 0.001)
                talk.conversations.dispatcher.wake()
            delivery = await the_delivery(talk, "delivered")
            assert [work.attempt for work in hook.received] == [1, 2, 3]
            assert {work.execution_id for work in hook.received} == {delivery.id}
            outcomes = [attempt.outcome for attempt in await history(talk, delivery)]
            assert outcomes == ["retryable_failure", "retryable_failure", "succeeded"]

    run(story)


@requirement("vai:control-delivery-refused")
def test_a_hook_that_answers_failed_is_not_called_again(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        hook = Hook(NEVER)
        async with conversing(sqlite_url, workers=hooked(hook)) as talk:
            await talk.answered("go")
            delivery = await the_delivery(talk, "failed")
            assert (delivery.error_code, delivery.reason) == ("slack.gone", "refused")
            assert len(hook.received) == 1

    run(story)


@requirement("vai:control-delivery-dead-letter")
def test_after_eight_attempts_it_is_a_dead_letter_and_can_be_replayed(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        clock, hook = TurnedClock(), Hook(*[NOT_NOW] * 8, {"status": "ack"})
        async with conversing(sqlite_url, workers=hooked(hook), clock=clock) as talk:
            await talk.answered("go")
            for attempts in range(1, MAX_ATTEMPTS + 1):
                await settled(lambda: deliveries(talk), has_had(attempts))
                clock.turn(LONGEST_PAUSE)
                talk.conversations.dispatcher.wake()
            dead = await the_delivery(talk, "dead_letter")
            assert (dead.attempts, dead.reason) == (8, "attempts_exhausted")
            await talk.conversations.deliveries.replay(talk.caller, dead.id)
            delivered = await the_delivery(talk, "delivered")
            assert (delivered.id, delivered.attempts) == (dead.id, 9)
            assert hook.received[-1].attempt == 9

    run(story)


@requirement("vai:control-delivery-disabled")
def test_a_disabled_binding_drops_its_pending_deliveries(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        clock, hook = TurnedClock(), Hook(NOT_NOW)
        workers = hooked(hook)
        async with conversing(sqlite_url, workers=workers, clock=clock) as talk:
            await talk.answered("go")
            await settled(lambda: deliveries(talk), waits_after(1))
            talk.conversations.dispatcher.drop_binding("bind_h")
            dropped = await the_delivery(talk, "dropped")
            assert dropped.reason == "binding_disabled"
            assert len(hook.received) == 1

    run(story)


def test_a_binding_that_is_inactive_when_due_is_not_called(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        hook = Hook(conflict("binding.not_active", "off"))
        async with conversing(sqlite_url, workers=hooked(hook)) as talk:
            await talk.answered("go")
            assert (await the_delivery(talk, "dropped")).reason == "binding_disabled"

    run(story)


def test_a_delivery_that_cannot_start_is_retried(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        clock, hook = TurnedClock(), Hook(conflict("binding.secret_not_found", "no key"), {"status": "ack"})
        async with conversing(sqlite_url, workers=hooked(hook), clock=clock) as talk:
            await talk.answered("go")
            waiting = await settled(lambda: deliveries(talk), lambda all: all[0].error_code is not None)
            assert (waiting[0].status, waiting[0].error_code) == ("pending", "binding.secret_not_found")
            clock.turn(2)
            talk.conversations.dispatcher.wake()
            await the_delivery(talk, "delivered")

    run(story)


@requirement("vai:control-delivery-survives")
def test_the_next_gateway_delivers_for_a_killed_one(run: Run, database_url: str) -> None:
    async def story() -> None:
        async def dies(work: CallRequest) -> Any:
            await asyncio.Event().wait()

        stuck, clock = ScriptedWorkers(), TurnedClock()
        stuck.bind("hook", "h", dies, subscribes_to=("run.completed",))
        async with conversing(database_url, workers=stuck, clock=clock) as talk:
            await talk.answered("go")
            held = await the_delivery(talk, "delivering")
            hook = Hook({"status": "ack"})
            async with conversing(database_url, workers=hooked(hook), clock=clock) as after:
                after.conversations.dispatcher.wake()
                assert (await the_delivery(after, "delivering")).lease_owner == held.lease_owner, "it is another's"
                clock.turn(31)
                after.conversations.dispatcher.wake()
                delivered = await the_delivery(after, "delivered")
                assert (delivered.id, delivered.attempts) == (held.id, 2)
                outcomes = [attempt.outcome for attempt in await history(after, delivered)]
                assert outcomes == ["interrupted", "succeeded"]

    run(story)


def test_a_gateway_whose_clock_is_behind_takes_no_delivery_of_another(run: Run, database_url: str) -> None:
    """Also if it only looked at its clock before the other one claimed: a connection may have taken seconds."""

    async def story() -> None:
        async def long(work: CallRequest) -> Any:
            await asyncio.Event().wait()

        workers, clock = ScriptedWorkers(), TurnedClock()
        workers.bind("hook", "h", long, subscribes_to=("run.completed",))
        async with conversing(database_url, workers=workers, clock=clock) as talk:
            await talk.answered("go")
            held = await the_delivery(talk, "delivering")
            behind = TurnedClock()
            behind.turn(-0.5)
            other = Dispatcher(talk.database, hooked(Hook({"status": "ack"})), behind)
            assert await other._begin() > 0
            assert await deliveries(talk) == [held]

    run(story)


@requirement("vai:control-delivery-one-success")
def test_an_answer_that_comes_after_its_lease_does_not_count(run: Run, database_url: str) -> None:
    async def story() -> None:
        go_on, clock = asyncio.Event(), TurnedClock()

        async def late(work: CallRequest) -> Any:
            await go_on.wait()
            return {"status": "ack"}

        workers = ScriptedWorkers()
        workers.bind("hook", "h", late, subscribes_to=("run.completed",))
        async with conversing(database_url, workers=workers, clock=clock) as talk:
            await talk.answered("go")
            await until(lambda: len(workers.received) == 1)
            hook = Hook({"status": "ack"})
            other = Dispatcher(talk.database, hooked(hook), clock)
            clock.turn(31)
            telling = asyncio.create_task(other.run())
            delivered = await the_delivery(talk, "delivered")
            go_on.set()
            await until(lambda: talk.conversations.dispatcher.in_flight == 0)
            telling.cancel()
            await asyncio.wait({telling})
            assert (await deliveries(talk)) == [delivered]
            outcomes = [attempt.outcome for attempt in await history(talk, delivered)]
            assert outcomes == ["interrupted", "succeeded"], "one success is written"

    run(story)


def test_a_running_delivery_keeps_its_lease(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async def long(work: CallRequest) -> Any:
            await asyncio.Event().wait()

        workers = ScriptedWorkers()
        workers.bind("hook", "h", long, subscribes_to=("run.completed",))
        async with conversing(sqlite_url, workers=workers, lease=0.06) as talk:
            await talk.answered("go")
            first = await the_delivery(talk, "delivering")
            assert first.lease_until is not None
            later = await settled(
                lambda: deliveries(talk), lambda all: (all[0].lease_until or 0) > (first.lease_until or 0) + 0.06
            )
            assert (later[0].attempts, len(workers.received)) == (1, 1)

    run(story)


def test_a_stopped_gateway_releases_its_leases(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async def long(work: CallRequest) -> Any:
            await asyncio.Event().wait()

        workers = ScriptedWorkers()
        workers.bind("hook", "h", long, subscribes_to=("run.completed",))
        async with conversing(sqlite_url, workers=workers) as talk:
            await talk.answered("go")
            await until(lambda: len(workers.received) == 1)
        hook = Hook({"status": "ack"})
        async with conversing(sqlite_url, workers=hooked(hook)) as talk:
            assert (await the_delivery(talk, "delivered")).attempts == 2

    run(story)


@requirement("vai:control-delivery-clock")
@pytest.mark.parametrize("seconds", [5, 300, 600, 86_400])
def test_a_clock_that_is_set_back_holds_nothing_up(run: Run, database_url: str, seconds: int) -> None:
    async def story() -> None:
        clock, hook = TurnedClock(), Hook(NOT_NOW, {"status": "ack"})
        async with conversing(database_url, workers=hooked(hook), clock=clock) as talk:
            await talk.answered("go")
            await settled(lambda: deliveries(talk), waits_after(1))
            clock.wall -= seconds
            clock.turn(FIRST_PAUSE)
            talk.conversations.dispatcher.wake()
            await the_delivery(talk, "delivered")

    run(story)


@requirement("vai:control-delivery-clock")
def test_a_pause_keeps_its_length_when_the_clock_is_set(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        clock, hook = TurnedClock(), Hook(NOT_NOW, {"status": "ack"})
        async with conversing(sqlite_url, workers=hooked(hook), clock=clock) as talk:
            await talk.answered("go")
            [waiting] = await settled(lambda: deliveries(talk), waits_after(1))
            pause = waiting.due_at - clock.now()
            clock.wall -= 600
            talk.conversations.dispatcher.wake()
            [moved] = await settled(lambda: deliveries(talk), lambda all: all[0].due_at < waiting.due_at)
            assert moved.due_at - clock.now() == pytest.approx(pause) and len(hook.received) == 1

    run(story)


class ClockSetBackInALook(TurnedClock):
    """Loses ten minutes right after the dispatcher has compared both clocks, once it is armed."""

    armed = False

    def monotonic(self) -> float:
        if self.armed:
            self.armed = False
            self.wall -= 600
        return super().monotonic()


@requirement("vai:control-delivery-clock")
def test_a_clock_that_is_set_back_in_the_middle_of_a_look_makes_nothing_due(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        clock, hook = ClockSetBackInALook(), Hook(NOT_NOW, {"status": "ack"})
        async with conversing(sqlite_url, workers=hooked(hook), clock=clock) as talk:
            await talk.answered("go")
            [waiting] = await settled(lambda: deliveries(talk), waits_after(1))
            pause = waiting.due_at - clock.now()
            clock.armed = True
            talk.conversations.dispatcher.wake()
            await until(lambda: not clock.armed)
            talk.conversations.dispatcher.wake()
            [moved] = await settled(lambda: deliveries(talk), lambda all: all[0].due_at < waiting.due_at)
            assert moved.due_at - clock.now() == pytest.approx(pause) and len(hook.received) == 1

    run(story)


@requirement("vai:control-delivery-clock")
@pytest.mark.parametrize("seconds", [300, 600, 86_400])
def test_a_clock_that_was_set_back_while_no_gateway_ran_holds_nothing_up(
    run: Run, database_url: str, seconds: int
) -> None:
    async def story() -> None:
        clock, hook = TurnedClock(), Hook(NOT_NOW, {"status": "ack"})
        async with conversing(database_url, workers=hooked(hook), clock=clock) as talk:
            await talk.answered("go")
            await settled(lambda: deliveries(talk), waits_after(1))
        clock.turn(250)
        clock.wall -= seconds
        async with conversing(database_url, workers=hooked(hook), clock=clock) as talk:
            await settled(lambda: deliveries(talk), lambda all: all[0].due_at <= clock.now() + FIRST_PAUSE)
            clock.turn(FIRST_PAUSE)
            talk.conversations.dispatcher.wake()
            await the_delivery(talk, "delivered")

    run(story)


@requirement("vai:control-delivery-interrupted")
def test_gateways_that_end_use_up_no_attempt_but_not_for_ever(
    run: Run, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_INTERRUPTIONS", 9)

    async def dies(work: CallRequest) -> Any:
        await asyncio.Event().wait()

    async def story() -> None:
        clock, stuck = TurnedClock(), ScriptedWorkers()
        stuck.bind("hook", "h", dies, subscribes_to=("run.completed",))
        async with conversing(sqlite_url, workers=stuck, clock=clock, started=False) as talk:
            await talk.answered("go")
            for attempt in range(1, 11):
                gateway = Dispatcher(talk.database, stuck, clock)
                running = asyncio.create_task(gateway.run())
                await until(lambda attempt=attempt: len(stuck.received) == attempt)  # type: ignore[misc]
                running.cancel()
                await asyncio.wait({running})
                await gateway.stop()
            assert stuck.received[-1].attempt == 10 > MAX_ATTEMPTS
            await talk.conversations.start()
            dead = await the_delivery(talk, "dead_letter")
            assert (dead.reason, dead.interruptions) == ("interrupted_too_often", 10)
            assert [each.outcome for each in await history(talk, dead)] == ["interrupted"] * 10
            stuck.bind("hook", "h", Hook(NOT_NOW), subscribes_to=("run.completed",))
            await talk.conversations.deliveries.replay(talk.caller, dead.id)
            for failures in range(1, MAX_ATTEMPTS + 1):
                await settled(lambda: deliveries(talk), has_had(10 + failures))
                clock.turn(LONGEST_PAUSE)
                talk.conversations.dispatcher.wake()
            assert (await the_delivery(talk, "dead_letter")).reason == "attempts_exhausted", "failures still count"

    run(story)


@pytest.mark.parametrize("depth", [3, 4])
@requirement("vai:control-causation-depth")
def test_events_that_follow_from_one_another_come_to_an_end(run: Run, sqlite_url: str, depth: int) -> None:
    async def story() -> None:
        hook = Hook({"status": "ack"})
        async with conversing(sqlite_url, workers=hooked(hook)) as talk:
            chain = await talk.chain()
            new = NewEvent(
                type="run.completed",
                subject_kind="run",
                subject_id="run_x",
                cause_id="run_x",
                org_id="org_1",
                project_id="proj_1",
                session_id=chain.session_id,
                chain_id=chain.id,
                run_id=None,
                summary={},
                trace_id="tr_1",
                cause_depth=depth + 1,
            )
            async with talk.database.transaction() as tx:
                await talk.conversations.events.record(tx, new)
            if depth < 4:
                await the_delivery(talk, "delivered")
            else:
                assert (await the_delivery(talk, "dropped")).reason == "causation_depth"
                assert hook.received == []

    run(story)


@pytest.mark.parametrize("seconds", [86_400, -86_400])
@requirement("vai:control-delivery-clock")
def test_a_running_delivery_is_not_repeated_when_the_clock_is_set(run: Run, database_url: str, seconds: int) -> None:
    async def story() -> None:
        go_on, clock = asyncio.Event(), TurnedClock()

        async def slow(work: CallRequest) -> Any:
            await go_on.wait()
            return {"status": "ack"}

        workers = ScriptedWorkers()
        workers.bind("hook", "h", slow, subscribes_to=("run.completed",))
        async with conversing(database_url, workers=workers, clock=clock) as talk:
            await talk.answered("go")
            await until(lambda: len(workers.received) == 1)
            clock.wall += seconds
            await talk.answered("and again")
            await until(lambda: len(workers.received) == 2)
            go_on.set()
            done = lambda all: [each.status for each in all] == ["delivered", "delivered"]  # noqa: E731
            found = await settled(lambda: deliveries(talk), done)
            assert [each.attempts for each in found] == [1, 1] and len(workers.received) == 2

    run(story)


@requirement("vai:control-delivery-ack")
def test_an_acknowledgement_is_written_when_the_database_is_back(
    run: Run, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    concluded, times = rows.conclude, []

    async def away(*given: Any, **values: Any) -> bool:
        times.append(1)
        if len(times) < 3:
            raise StoreUnavailable("away")
        return await concluded(*given, **values)

    monkeypatch.setattr(background, "PAUSES", (0.0,))
    monkeypatch.setattr(rows, "conclude", away)

    async def story() -> None:
        hook = Hook({"status": "ack"})
        async with conversing(sqlite_url, workers=hooked(hook)) as talk:
            await talk.answered("go")
            assert (await the_delivery(talk, "delivered")).attempts == 1
            assert len(hook.received) == 1, "nobody is told twice because it could not be written once"

    run(story)


@requirement("vai:control-delivery-disabled")
def test_events_after_a_binding_is_active_again_are_not_dropped(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        clock, hook = TurnedClock(), Hook(NOT_NOW)
        async with conversing(sqlite_url, workers=hooked(hook), clock=clock, started=False) as talk:
            dispatcher = talk.conversations.dispatcher
            await talk.answered("before")
            clock.turn(1)
            dispatcher.drop_binding("bind_h")
            clock.turn(1)
            await talk.answered("after")
            await dispatcher._drop()
            assert sorted(each.status for each in await deliveries(talk)) == ["dropped", "pending"]

    run(story)


def test_a_dispatcher_stops_though_the_database_is_away(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:

            def away(**_: Any) -> Any:
                raise StoreUnavailable("away")

            talk.database.transaction = away  # type: ignore[method-assign]
            await talk.conversations.dispatcher.stop()

    run(story)
