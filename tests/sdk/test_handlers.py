"""What a function wants to be called with. How a tool's input becomes arguments is told in test_plugin.py."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from plugbay.model.errors import Code
from plugbay.sdk.handlers import Handler, Tool


def plain(event: Any) -> None: ...
def with_ctx(event: Any, *, ctx: Any) -> None: ...
async def later(event: Any, ctx: Any) -> None: ...
async def pieces(event: Any) -> AsyncIterator[str]:
    yield ""


def only_a_local() -> None:
    ctx = 1
    print(ctx)


class Listener:
    async def __call__(self, event: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "takes_ctx", "is_async"),
    [
        (plain, False, False),
        (with_ctx, True, False),
        (later, True, True),
        (pieces, False, True),
        (only_a_local, False, False),
        (Listener(), True, True),
        (Listener().__call__, True, True),
        (functools.partial(plain), False, False),
        (print, False, False),
    ],
)
def test_a_handler_is_asked_once_what_it_wants(function: Callable[..., Any], takes_ctx: bool, is_async: bool) -> None:
    handler = Handler(function)
    assert (handler.takes_ctx, handler.is_async) == (takes_ctx, is_async)


def test_a_tool_has_a_schema_that_takes_any_object() -> None:
    assert Tool("t", "", plain).input_schema == {"type": "object"}
    assert Tool("t", "", plain, {"type": "array"}).input_schema == {"type": "array"}


def test_no_input_is_an_empty_object_and_ctx_is_never_input() -> None:
    def tool(city: str = "Lima", *, ctx: Any = None, **more: Any) -> Any:
        return city, more

    assert Tool("t", "", tool).invoke(None, {}) == ("Lima", {})
    assert Tool("t", "", tool).invoke({"city": "Rome", "x": 1}, {}) == ("Rome", {"x": 1})
    assert Tool("t", "", tool).invoke({"ctx": 1}, {}).code == Code.INVALID_INPUT


def test_without_a_host_ctx_refuses_every_service() -> None:
    def recall(ctx: Any) -> Any:
        return ctx.memory.recall("a", "q")

    async def publish(ctx: Any) -> Any:
        await ctx.events.publish("t", 1)

    def stored(ctx: Any) -> Any:
        return ctx.storage.get("k")

    for function in (recall, publish, stored):
        failure = Tool("t", "", function).invoke({}, {})
        assert (failure.code, "this host has no" in failure.message) == (Code.UNAVAILABLE, True)


def test_without_a_host_ctx_still_says_who_the_call_is_for() -> None:
    def who(ctx: Any) -> Any:
        return ctx.session_id, dict(ctx.config)

    assert Tool("t", "", who).invoke({}, {"session_id": "s"}) == ("s", {})
