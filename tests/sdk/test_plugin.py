"""What an author declares, and how an input becomes arguments."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.model.errors import Code, Failure
from plugbay.sdk import Plugin, ToolError

plugin = Plugin("p", "1.0", capabilities=["c"])


@plugin.tool()
def add(a: int, b: int = 1, *, c: int = 0) -> int:
    """Add numbers.

    More words nobody needs in a list.
    """
    return a + b + c


@plugin.tool("renamed", description="Takes anything.")
def whole(input: Any) -> Any:
    return input


@plugin.tool()
def with_context(name: str, context: dict[str, Any]) -> str:
    return f"{name} in {context.get('workspace_id')}"


@plugin.tool()
def open_ended(**values: Any) -> dict[str, Any]:
    return values


@plugin.tool()
async def later(n: int) -> int:
    return n + 1


@plugin.tool()
def broken(kind: str) -> None:
    if kind == "refuse":
        raise ToolError("no", code="quota")
    if kind == "invalid":
        raise ToolError("bad", code="invalid_input")
    raise KeyError(kind)


@pytest.mark.parametrize(
    ("tool", "given", "value"),
    [
        ("add", {"a": 1}, 2),
        ("add", {"a": 1, "b": 2, "c": 3}, 6),
        ("renamed", [1, 2], [1, 2]),
        ("renamed", None, None),
        ("with_context", {"name": "x"}, "x in ws"),
        ("open_ended", {"any": 1}, {"any": 1}),
        ("later", {"n": 1}, 2),
    ],
)
def test_an_input_object_becomes_keyword_arguments(tool: str, given: Any, value: Any) -> None:
    assert plugin.invoke(tool, given, {"workspace_id": "ws"}) == value


@pytest.mark.parametrize(
    ("tool", "given", "code", "message"),
    [
        ("add", {}, Code.INVALID_INPUT, "a is required"),
        ("add", {"a": 1, "d": 2}, Code.INVALID_INPUT, "unknown: d; this tool takes a, b, c"),
        ("add", [1], Code.INVALID_INPUT, "the input must be an object with a, b, c"),
        (
            "with_context",
            {"name": "x", "context": {}},
            Code.INVALID_INPUT,
            "unknown: context; this tool takes name",
        ),
        ("nope", {}, Code.NOT_FOUND, "there is no tool 'nope'"),
        ("broken", {"kind": "refuse"}, Code.PLUGIN_ERROR, "no"),
        ("broken", {"kind": "invalid"}, Code.INVALID_INPUT, "bad"),
        ("broken", {"kind": "bug"}, Code.PLUGIN_ERROR, "KeyError: 'bug'"),
    ],
)
def test_what_goes_wrong_is_a_failure_with_a_short_message(tool: str, given: Any, code: str, message: str) -> None:
    failure = plugin.invoke(tool, given, {})
    assert isinstance(failure, Failure)
    assert (failure.code, failure.message) == (code, message)


def test_an_authors_own_code_survives() -> None:
    assert plugin.invoke("broken", {"kind": "refuse"}, {}).detail == {"plugin_code": "quota"}


def test_an_unexpected_exception_leaves_its_traceback_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    plugin.invoke("broken", {"kind": "bug"}, {})
    assert "KeyError: 'bug'" in capsys.readouterr().err


def test_names_and_descriptions_come_from_the_function_unless_given() -> None:
    assert plugin.tools["add"].description == "Add numbers."
    assert plugin.tools["renamed"].description == "Takes anything."
    assert (plugin.id, plugin.version, plugin.capabilities) == ("p", "1.0", ("c",))


def test_what_can_never_answer_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="with parentheses"):
        plugin.tool(add)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="plain function"):
        plugin.tool("method")(plugin.invoke)


def test_two_tools_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are called 'add'"):
        plugin.tool("add")(whole)
