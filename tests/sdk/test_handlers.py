"""What a function wants to be called with. How a tool's input becomes arguments is told in test_plugin.py."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from plugbay.model.errors import Code
from plugbay.sdk.handlers import Export, Handler, Harness, Pieces, Terms, Tool, gathered, named_after
from plugbay.sdk.results import ToolResult
from tests.support.requirements import requirement


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


# What is declared with it.


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"execution_class": "inside"}, "execution_class is one of inline, worker, isolated, not 'inside'"),
        ({"max_concurrency": 0}, "max_concurrency is a number of calls, not 0"),
        ({"max_concurrency": True}, "max_concurrency is a number of calls, not True"),
        ({"timeout": 0}, "timeout is a number of seconds, not 0"),
        ({"timeout": float("nan")}, "timeout is a number of seconds, not nan"),
    ],
)
def test_terms_that_make_no_sense_are_refused_at_once(facts: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Terms(**facts)


def test_a_word_that_no_contract_has_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"effect is one of read_only, .*, not 'none'"):
        Tool("x", "", plain, effect="none")
    with pytest.raises(ValueError, match=r"fidelity is one of lossless, .*, not 'some'"):
        Harness("x", "", plain, Terms(), mode="composite", fidelity="some", supports=())


def test_an_export_is_described_by_its_docstring_unless_it_says_more() -> None:
    def documented() -> None:
        """First line.

        Second.
        """

    assert Export("x", "", documented).description == "First line."
    assert Export("x", "given", documented).description == "given"
    assert Export("x", "", functools.partial(print)).description != ""
    assert Export("x", "", lambda: 1).description == ""


def test_a_function_without_a_name_is_called_after_what_it_is() -> None:
    assert named_after(plain, "hook") == "plain"
    assert named_after(lambda: 1, "hook") == "hook"
    assert named_after(functools.partial(plain), "hook") == "hook"


# What a tool gives back.


def texts() -> Iterator[str]:
    yield "a"
    yield "b"


def mixed() -> Iterator[Any]:
    yield "a"
    yield 1


def ends_with_result() -> Iterator[Any]:
    yield "a"
    yield ToolResult(structured_output={"n": 1})


def nothing() -> Iterator[Any]:
    yield from ()


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        (7, 7),
        ([1, "a"], [1, "a"]),
        (texts(), "ab"),
        (mixed(), ["a", 1]),
        (ends_with_result(), {"n": 1}),
        (nothing(), ""),
        (ToolResult("a"), "a"),
    ],
)
@requirement("vai:sdk-one-source")
def test_what_a_tool_yields_is_one_value_to_hosts_that_know_values(value: Any, whole: Any) -> None:
    assert gathered(value) == whole


def test_a_tool_that_yields_is_streaming_unless_it_says_otherwise() -> None:
    assert Tool("x", "", texts).streaming
    assert Tool("x", "", pieces).streaming
    assert not Tool("x", "", texts, streaming=False).streaming
    assert not Tool("x", "", plain).streaming


def test_a_tool_that_yields_answers_here_and_now() -> None:
    async def later_pieces() -> AsyncIterator[str]:
        yield "a"
        yield "b"

    async def awaited_pieces() -> AsyncIterator[str]:
        return later_pieces()

    assert Tool("x", "", texts).invoke({}, {}) == "ab"
    assert Tool("x", "", later_pieces).invoke({}, {}) == "ab"
    assert Tool("x", "", awaited_pieces).invoke({}, {}) == "ab"
    failed = Tool("x", "", lambda: ToolResult("no", is_error=True)).invoke({}, {})
    assert (failed.code, failed.message) == (Code.PLUGIN_ERROR, "no")


def test_pieces_are_put_together_one_by_one() -> None:
    put = Pieces()
    for piece in ("a", "b"):
        put.add(piece)
    assert put.end() == "ab"
