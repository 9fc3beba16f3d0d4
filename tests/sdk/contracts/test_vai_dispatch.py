"""What each kind of export is called with, apart from any process. What a host sees is told in test_vai.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plugbay.model.errors import Code, Failure
from plugbay.model.operations import RunHook
from plugbay.sdk import Cancelled, Plugin, RateLimited, ToolNotFound, ToolUnavailable
from plugbay.sdk.context import unconnected
from plugbay.sdk.contracts.vai_dispatch import Invocation, Order, of_hook, of_tool
from plugbay.sdk.invocation import Setting
from plugbay.sdk.services.cancellation import Cancellation
from tests.support.requirements import requirement


def order(released: list[int] | None = None) -> Order:
    return Order("a/p", Setting({}), Cancellation(), lambda: (released if released is not None else []).append(1))


def invocation(function: Any, given: Order | None = None) -> Invocation:
    plugin = Plugin("p")
    plugin.tool("x")(function)
    duty = of_tool(given or order(), plugin.tools["x"], {})
    assert isinstance(duty, Invocation)
    return duty


@requirement("vai:sdk-failures")
@pytest.mark.parametrize(
    ("error", "code", "word", "retryable"),
    [
        (RateLimited(1), Code.PLUGIN_ERROR, "rate_limited", True),
        (ToolNotFound("x"), Code.PLUGIN_ERROR, "tool_not_found", False),
        (ToolUnavailable("x"), Code.UNAVAILABLE, "tool_unavailable", True),
        (Cancelled(), Code.CANCELLED, "cancelled", False),
        (ValueError("x"), Code.PLUGIN_ERROR, "internal", False),
        (asyncio.CancelledError(), Code.PLUGIN_ERROR, "internal", False),
    ],
)
def test_no_handler_can_refuse_a_request_whatever_it_raises(
    error: BaseException, code: str, word: str, retryable: bool
) -> None:
    failure = invocation(lambda: 1).failure(error)
    assert (failure.code, failure.detail["plugin_code"], failure.retryable) == (code, word, retryable)


@requirement("vai:sdk-cancel")
def test_the_end_of_a_task_that_was_asked_for_is_a_cancellation() -> None:
    duty = invocation(lambda: 1)
    duty.cancel("enough")
    failure = duty.failure(asyncio.CancelledError())
    assert (failure.code, failure.message) == (Code.CANCELLED, "enough")
    assert duty.failure(ValueError("x")).code == Code.PLUGIN_ERROR


@requirement("vai:sdk-cancel")
def test_what_was_cancelled_before_its_turn_is_not_begun() -> None:
    begun: list[int] = []
    duty = invocation(lambda: begun.append(1))
    duty.cancel("enough")
    with pytest.raises(Cancelled, match="enough"):
        duty.call(lambda said, stop: unconnected(), print)
    assert begun == []


def test_what_is_over_frees_its_place_and_cannot_be_cancelled() -> None:
    released: list[int] = []
    given = order(released)
    duty = invocation(lambda: 1, given)
    duty.over()
    duty.cancel("too late")
    assert (released, given.cancellation.why) == ([1], "")


@requirement("vai:sdk-hook")
def test_an_event_that_no_handler_is_for_is_a_failure_for_good() -> None:
    plugin = Plugin("p")
    plugin.hook("run.completed")(print)
    for event in ({"type": "run.started"}, {"type": ["run.completed"]}, {}):
        failure = of_hook(order(), plugin.hooks, RunHook("h", event))
        assert isinstance(failure, Failure)
        assert (failure.detail["plugin_code"], failure.retryable) == ("hook.unknown_event", False)
