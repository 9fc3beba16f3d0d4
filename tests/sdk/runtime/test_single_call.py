"""A tool that is run here and now, with nobody to ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from plugbay.model.errors import Code, Failure
from plugbay.sdk.results import ToolResult
from plugbay.sdk.runtime.single_call import invoke
from plugbay.sdk.types.handlers import Terms, Tool


def texts() -> Iterator[str]:
    yield "a"
    yield "b"


def test_no_input_is_an_empty_object_and_ctx_is_never_input() -> None:
    def tool(city: str = "Lima", *, ctx: Any = None, **more: Any) -> Any:
        return city, more

    assert invoke(Tool("t", "", tool), None, {}) == ("Lima", {})
    assert invoke(Tool("t", "", tool), {"city": "Rome", "x": 1}, {}) == ("Rome", {"x": 1})
    assert invoke(Tool("t", "", tool), {"ctx": 1}, {}).code == Code.INVALID_INPUT


def test_the_input_stays_as_the_caller_has_it() -> None:
    def tool(city: str, ctx: Any) -> str:
        return city

    given = {"city": "Lima"}
    assert invoke(Tool("t", "", tool), given, {}) == "Lima"
    assert given == {"city": "Lima"}


def test_without_a_host_ctx_refuses_every_service() -> None:
    def recall(ctx: Any) -> Any:
        return ctx.memory.recall("a", "q")

    async def publish(ctx: Any) -> Any:
        await ctx.events.publish("t", 1)

    def stored(ctx: Any) -> Any:
        return ctx.storage.get("k")

    for function in (recall, publish, stored):
        failure = invoke(Tool("t", "", function), {}, {})
        assert (failure.code, "does not offer ctx." in failure.message) == (Code.UNAVAILABLE, True)


def test_without_a_host_ctx_still_has_the_context_of_the_call() -> None:
    def who(ctx: Any) -> Any:
        return ctx.session_id, dict(ctx.config)

    assert invoke(Tool("t", "", who), {}, {"session_id": "s"}) == ("s", {})


def test_a_tool_that_yields_answers_here_and_now() -> None:
    async def later_pieces() -> AsyncIterator[str]:
        yield "a"
        yield "b"

    async def awaited_pieces() -> AsyncIterator[str]:
        return later_pieces()

    assert invoke(Tool("x", "", texts), {}, {}) == "ab"
    assert invoke(Tool("x", "", later_pieces), {}, {}) == "ab"
    assert invoke(Tool("x", "", awaited_pieces), {}, {}) == "ab"
    failed = invoke(Tool("x", "", lambda: ToolResult("no", is_error=True)), {}, {})
    assert (failed.code, failed.message) == (Code.PLUGIN_ERROR, "no")


def test_a_plain_function_may_return_something_to_await() -> None:
    async def later() -> int:
        return 7

    assert invoke(Tool("x", "", lambda: later()), {}, {}) == 7


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), RuntimeError("no"), asyncio.CancelledError()])
def test_every_exception_is_a_failure(error: BaseException, capfd: pytest.CaptureFixture[str]) -> None:
    def raises() -> None:
        raise error

    async def raises_later(ctx: Any) -> None:
        raise error

    for function in (raises, raises_later):
        failure = invoke(Tool("x", "", function), {}, {})
        assert (failure.code, type(error).__name__ in failure.message) == (Code.PLUGIN_ERROR, True)
    assert type(error).__name__ in capfd.readouterr().err


def test_the_deadline_of_the_author_stops_both_kinds_of_handlers() -> None:
    def waits(ctx: Any) -> None:
        ctx.sleep(60)

    async def waits_later(ctx: Any) -> None:
        await asyncio.sleep(60)

    for function in (waits, waits_later):
        failure = invoke(Tool("x", "", function, terms=Terms(timeout=0.05)), {}, {})
        assert isinstance(failure, Failure)
        assert (failure.code, failure.message) == (Code.CANCELLED, "the deadline has passed")


def test_ctx_says_how_much_time_is_left_and_which_plugin_it_is() -> None:
    def left(ctx: Any) -> Any:
        return ctx.remaining, ctx.cancelled, ctx.plugin_id

    remaining, cancelled, plugin_id = invoke(Tool("x", "", left, terms=Terms(timeout=60)), {}, {}, "a.p")
    assert (0 < remaining <= 60, cancelled, plugin_id) == (True, False, "a.p")
    assert invoke(Tool("x", "", left), {}, {})[0] is None
