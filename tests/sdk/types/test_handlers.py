"""What a function wants to be called with. How a tool's input becomes arguments is told in test_plugin.py."""

from __future__ import annotations

import datetime
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from plugbay.model.errors import Code, Failure, Origin
from plugbay.sdk.results import ToolResult
from plugbay.sdk.types.handlers import Export, Handler, Harness, Pieces, Terms, Tool, join_pieces
from tests.support.requirements import requirement


def plain(event: Any) -> None: ...
def with_ctx(event: Any, *, ctx: Any) -> None: ...
async def later(event: Any, ctx: Any) -> None: ...
async def pieces(event: Any) -> AsyncIterator[str]:
    yield ""


def only_a_local() -> None:
    ctx = 1
    print(ctx)


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


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
        (wrapped(with_ctx), True, False),
        (wrapped(plain), False, False),
    ],
)
def test_a_handler_is_asked_once_what_it_wants(function: Callable[..., Any], takes_ctx: bool, is_async: bool) -> None:
    handler = Handler(function)
    assert (handler.takes_ctx, handler.is_async) == (takes_ctx, is_async)


def test_a_tool_whose_function_says_nothing_has_a_schema_that_takes_any_object() -> None:
    assert Tool("t", "", lambda event: event).input_schema == {"type": "object"}
    assert Tool("t", "", lambda: 1).output_schema is None


def test_a_schema_that_is_given_wins_for_what_is_published_and_annotations_still_convert() -> None:
    def tool(when: datetime.date) -> dict[str, int]:
        return {"year": when.year}

    given = Tool("t", "", tool, {"type": "object"}, output_schema={"type": "array"})
    assert (given.input_schema, given.output_schema) == ({"type": "object"}, {"type": "array"})
    assert given.arguments({"when": "2026-05-17"}, {}) == {"when": datetime.date(2026, 5, 17)}


def test_the_schema_of_results_is_found_out_once() -> None:
    def tool() -> dict[str, int]:
        return {}

    found = Tool("t", "", tool)
    assert found.output_schema == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert found.output_schema is found.output_schema


def test_a_parameter_with_a_default_may_be_missing_and_another_one_may_not() -> None:
    def tool(city: str, days: int = 1) -> None: ...

    found = Tool("t", "", tool)
    good: list[dict[str, Any]] = [{"city": "Lima"}, {"city": "Lima", "days": 2}]
    bad: list[dict[str, Any]] = [{}, {"days": 2}, {"days": 2, "town": "Lima"}, {"city": "Lima", "days": "2"}]
    assert all(found.plainly.takes(given) for given in good)
    assert not any(found.plainly.takes(given) for given in bad)


def test_everything_wrong_with_an_input_is_said_at_once_with_its_place() -> None:
    def tool(city: str, days: list[int], *, loud: bool = False) -> None: ...

    failure = Tool("t", "", tool).arguments({"days": [1, "2", 3.5], "loud": 0, "town": "Lima"}, {})
    assert isinstance(failure, Failure)
    assert (failure.code, failure.origin) == (Code.INVALID_INPUT, Origin.PLUGIN)
    assert failure.detail["details"] == [
        {"path": "days[1]", "rule": "must be a whole number, not a string"},
        {"path": "days[2]", "rule": "must be a whole number, not a number"},
        {"path": "loud", "rule": "must be true or false, not a number"},
        {"path": "city", "rule": "is required"},
        {"path": "town", "rule": "is unknown; there is city, days, loud"},
    ]
    assert failure.message.startswith("days[1]: must be a whole number, not a string; days[2]: ")


def test_nothing_is_found_out_about_the_types_of_a_tool_that_takes_plain_values() -> None:
    def tool(city: str, days: int = 1, *, more: Any = None) -> dict[str, Any]:
        return {"city": city}

    obvious = Tool("t", "", tool)
    assert obvious.arguments({"city": "Lima", "days": 2}, {}) == {"city": "Lima", "days": 2}
    assert obvious.written({"city": "Lima"}) == {"city": "Lima"}
    assert obvious._signature is None
    refused: list[Any] = [{"city": 1}, {"days": 1}, {"city": "Lima", "days": True}, {"city": "Lima", "x": 1}, []]
    for given in refused:
        assert isinstance(obvious.arguments(given, {}), Failure)
    assert obvious.arguments({"city": "Lima", "days": 2.0}, {}) == {"city": "Lima", "days": 2}
    assert obvious._signature is not None


def test_a_parameter_called_input_takes_everything_beside_a_context_too() -> None:
    both = Tool("t", "", lambda input, ctx: input)
    assert both.arguments({"input": 1}, {}) == {"input": {"input": 1}}
    assert Tool("t", "", lambda input, ctx, more=0: input).arguments({"input": 1}, {}) == {"input": 1}


def test_a_result_is_json_where_the_annotation_says_what_it_is() -> None:
    def tool() -> set[str]:
        return {"b", "a"}

    assert Tool("t", "", tool).written({"b", "a"}) == ["a", "b"]
    assert Tool("t", "", lambda: 1).written({"a"}) == {"a"}


# What is declared with it.


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"execution_class": "inside"}, "execution_class is one of inline, worker, isolated, not 'inside'"),
        ({"max_concurrency": 0}, "max_concurrency is a number of calls, not 0"),
        ({"max_concurrency": True}, "max_concurrency is a number of calls, not True"),
        ({"timeout": 0}, "timeout is a number of seconds above 0 .*, not 0"),
    ],
)
def test_terms_that_make_no_sense_are_refused_at_once(facts: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Terms(**facts)


def test_a_time_in_quotes_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"timeout is a number of seconds, such as 5 or 0\.5, not '5'"):
        Terms(timeout="5")  # type: ignore[arg-type]


def test_a_word_that_no_contract_has_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"effect is one of read_only, .*, not 'none'"):
        Tool("x", "", plain, effect="none")
    with pytest.raises(ValueError, match=r"fidelity is one of lossless, .*, not 'some'"):
        Harness("x", "", plain, Terms(), mode="composite", fidelity="some", supports=())


def test_an_export_is_described_by_its_docstring_unless_it_says_more() -> None:
    def documented() -> None:
        """First line,
        and its end.

        Second.
        """

    assert Export("x", "", documented).description == "First line, and its end."
    assert Export("x", "given", documented).description == "given"
    assert Export("x", "", functools.partial(print)).description != ""
    assert Export("x", "", lambda: 1).description == ""


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
    assert join_pieces(value) == whole


def test_a_tool_that_yields_is_streaming_unless_it_says_otherwise() -> None:
    assert Tool("x", "", texts).streaming
    assert Tool("x", "", pieces).streaming
    assert not Tool("x", "", texts, streaming=False).streaming
    assert not Tool("x", "", plain).streaming
    assert Tool("x", "", wrapped(texts)).streaming


def test_pieces_are_put_together_one_by_one() -> None:
    put = Pieces()
    for piece in ("a", "b"):
        put.add(piece)
    assert put.end() == "ab"
