"""What is wrong with a declaration is said where it stands."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

import pytest

from plugbay.sdk import Plugin
from plugbay.sdk.declarations import defaults, function_name, parameters, refuse_unfit, seconds, table, texts, unwrap


class Colour(enum.StrEnum):
    RED = "red"


UNSET = object()


def declared(function: Callable[..., Any], what: str = "tool") -> str:
    """Why it cannot be one; nothing when it can."""
    try:
        refuse_unfit(what, function)
    except TypeError as error:
        return str(error)
    return ""


# Parameters.


def test_a_tool_that_would_never_get_its_rest_is_refused_and_told_what_to_write() -> None:
    def rest(city: str, *towns: str) -> None: ...

    assert declared(rest) == (
        "the tool rest takes *towns, which never gets a value: the keys of an input are its parameters, so "
        "name them, or take **towns for any; the wrapper of a decorator needs @functools.wraps"
    )
    assert declared(rest, "method").startswith("the method rest takes *towns")
    plugin = Plugin("p")
    with pytest.raises(TypeError, match=r"the tool rest takes \*towns"):
        plugin.tool()(rest)
    with pytest.raises(TypeError, match=r"the method rest takes \*towns"):
        plugin.method("a.b")(rest)


def test_a_tool_that_takes_a_parameter_by_position_only_is_refused() -> None:
    def positional(city: str, /, days: int) -> None: ...

    assert declared(positional) == (
        "the tool positional takes city by position only, but inputs are passed by name: remove the /"
    )


def test_a_tool_may_take_any_keywords() -> None:
    def keywords(city: str, **more: Any) -> dict[str, Any]:
        return {"city": city, **more}

    plugin = Plugin("p")
    plugin.tool()(keywords)
    assert plugin.invoke("keywords", {"city": "Lima", "days": 2}, {}) == {"city": "Lima", "days": 2}


def test_only_a_plain_function_can_be_a_tool() -> None:
    assert declared(print) == "a tool must be a plain function, not <built-in function print>; wrap it in one"
    assert "wrap it in one" in declared(functools.partial(print))
    assert "wrap it in one" in declared([].append)


# Decorators.


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def logged_without_wraps(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def with_a_context(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        return [ctx.plugin_id, function(*args, **kwargs)]

    return wrapper


def test_a_wrapper_that_passes_everything_on_is_what_it_wraps() -> None:
    plugin = Plugin("p")

    @plugin.tool()
    @logged
    @logged
    def greet(name: str, ctx: Any, loud: bool = False) -> str:
        """Greet somebody."""
        return f"{ctx.plugin_id} greets {name}{'!' * loud}"

    assert plugin.tools["greet"].input_schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "loud": {"type": "boolean", "default": False}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert plugin.invoke("greet", {"name": "Ada"}, {}) == "p greets Ada"
    assert plugin.invoke("greet", {"nam": "Ada"}, {}).code == "invalid_input"


def test_a_wrapper_may_want_a_context_that_its_function_does_not() -> None:
    plugin = Plugin("p")
    plugin.tool("greet")(with_a_context(lambda name: name))
    assert plugin.invoke("greet", {"name": "Ada"}, {}) == ["p", "Ada"]


def test_a_wrapper_without_functools_wraps_is_refused() -> None:
    assert "needs @functools.wraps" in declared(logged_without_wraps(lambda name: name))


def test_a_wrapper_of_what_is_no_function_is_taken_for_itself() -> None:
    wrapper = logged(functools.partial(print))
    assert unwrap(wrapper) is wrapper
    assert "takes *args" in declared(wrapper)


def test_a_wrapper_that_names_what_it_takes_is_itself() -> None:
    @functools.wraps(parameters)
    def wrapper(city: str) -> None: ...

    assert unwrap(wrapper) is wrapper
    assert parameters(wrapper) == ("city",)


# Defaults.


def test_a_default_that_is_not_what_its_annotation_says_is_refused() -> None:
    def wrong(city: str, days: int = "three") -> None: ...  # type: ignore[assignment]

    assert declared(wrong) == (
        "the tool wrong declares days: int with the default 'three', which does not match: change one of them"
    )


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        ("int", "x"),
        ("int", 1.5),
        ("int", True),
        ("str", 1),
        ("bool", 0),
        ("float", "1"),
        ("list[int]", {}),
        ("dict[str, int]", []),
        ("int | None", "x"),
        (int, "x"),
        (int | None, "x"),
        (list[int], "x"),
    ],
)
def test_every_plain_annotation_is_looked_at(annotation: Any, default: Any) -> None:
    assert "which does not match" in declared(function_with(annotation, default))


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        ("int", 1),
        ("int", 1.0),
        ("int", None),
        ("int", UNSET),
        ("float", 1),
        ("str", Colour.RED),
        ("list[int]", ()),
        ("list[int]", []),
        ("dict[str, int]", {}),
        ("int | str", "x"),
        ("int | None", None),
        ("Literal['x']", "y"),
        ("dict[str, int | None]", "only shapes can tell"),
        ("Colour", "red"),
        (Colour, "red"),
        (int, 1),
        (float, 2),
        (int | None, 1),
    ],
)
def test_a_default_that_may_fit_is_left_alone(annotation: Any, default: Any) -> None:
    assert declared(function_with(annotation, default)) == ""


def test_a_default_of_a_keyword_is_looked_at_and_a_parameter_without_annotation_is_not() -> None:
    def wrong(*, days: int = "three", more="x") -> None: ...  # type: ignore[assignment, no-untyped-def]

    assert "days: int" in declared(wrong)
    assert defaults(wrong) == {"days": "three", "more": "x"}


def test_a_type_of_the_authors_own_is_not_taken_for_pythons() -> None:
    names: dict[str, Any] = {"int": str}
    exec("def own(days: 'int' = 'three'): ...", names)
    assert declared(names["own"]) == ""


def test_annotations_that_cannot_be_had_are_no_reason_to_refuse_a_default() -> None:
    class Late:
        __name__, __defaults__, __kwdefaults__ = "late", ("x",), None
        __globals__: dict[str, Any] = {}
        __code__ = (lambda a: a).__code__

        @property
        def __annotations__(self) -> Any:  # type: ignore[override]
            raise NameError("Nowhere")

    assert declared(Late()) == ""  # type: ignore[arg-type]


def function_with(annotation: Any, default: Any) -> Callable[..., Any]:
    def tool(value: Any = default) -> None: ...

    tool.__annotations__["value"] = annotation
    return tool


# What stands in the parentheses.


@pytest.mark.parametrize("value", ["5", None, True, [5]])
def test_a_time_is_a_number(value: Any) -> None:
    with pytest.raises(TypeError, match=r"timeout is a number of seconds, such as 5 or 0\.5, not "):
        seconds("timeout", value)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e10])
def test_a_time_can_be_waited_for(value: float) -> None:
    with pytest.raises(ValueError, match="timeout is a number of seconds above 0 and up to 1,000,000,000, not "):
        seconds("timeout", value)


def test_a_time_that_makes_sense_is_as_it_was_given() -> None:
    assert (seconds("timeout", 5), seconds("timeout", 0.5)) == (5, 0.5)


def test_one_text_is_no_list_of_texts() -> None:
    assert texts("capabilities", ["network"]) == ("network",)
    with pytest.raises(TypeError, match=r"capabilities is a list of texts, such as \['network'\], not 'network'"):
        Plugin("p", capabilities="network")
    with pytest.raises(TypeError, match="capabilities is a list"):
        Plugin("p").tool(capabilities="network")


def test_a_schema_is_an_object() -> None:
    assert (table("config_schema", None), table("config_schema", {"a": 1})) == (None, {"a": 1})
    with pytest.raises(TypeError, match=r"config_schema is an object, such as \{'type': 'object'\}, not 'config.json'"):
        Plugin("p", config_schema="config.json")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="input_schema is an object"):
        Plugin("p").tool(input_schema="x")(lambda: 1)  # type: ignore[arg-type]


def test_a_function_without_a_name_is_called_after_what_it_is() -> None:
    assert function_name(declared, "hook") == "declared"
    assert function_name(lambda: 1, "hook") == "hook"
    assert function_name(functools.partial(declared), "hook") == "hook"
