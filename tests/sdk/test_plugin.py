"""What an author declares, and how an input becomes arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plugbay.model.errors import Code, Failure
from plugbay.sdk import Plugin, ServiceError, ToolError
from tests.architecture import SOURCE
from tests.architecture.test_light_imports import modules_loaded_by
from tests.support.requirements import requirement

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
        ("add", {}, Code.INVALID_INPUT, "a: is required"),
        ("add", {"a": 1, "d": 2}, Code.INVALID_INPUT, "d: is unknown; there is a, b, c"),
        ("add", [1], Code.INVALID_INPUT, "input: must be an object, not a list"),
        (
            "with_context",
            {"name": "x", "context": {}},
            Code.INVALID_INPUT,
            "context: is unknown; there is name",
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
    with pytest.raises(TypeError, match="a tool must be a plain function"):
        plugin.tool("method")(plugin.invoke)
    with pytest.raises(TypeError, match="a method must be a plain function"):
        plugin.method("a.b")(plugin.invoke)
    with pytest.raises(TypeError, match=r"@plugin\.method\(\) with parentheses"):
        plugin.method(add)  # type: ignore[arg-type]


MANIFEST = """
[plugin]
id = "slackish"
version = "1.2.3"
name = "Slackish"
description = "Talks."

[plugin.extends]
tools = ["slackish_forecast"]
"""


@requirement("nexo:sdk-declared-tools")
def test_a_plugin_can_be_what_its_manifest_says() -> None:
    made = Plugin.from_manifest(MANIFEST, capabilities=["c"], server_version="x")
    assert (made.id, made.version, made.name, made.description) == ("slackish", "1.2.3", "Slackish", "Talks.")
    assert (made.capabilities, made.server_version) == (("c",), "x")
    made.tool("forecast")(whole)
    with pytest.raises(ValueError, match="does not declare 'slackish_other'"):
        made.tool("other")(whole)
    with pytest.raises(ValueError, match="does not declare"):
        Plugin("p", manifest={"plugin": {"id": "p"}}).tool()(whole)


def test_everything_else_is_declared_by_name_once() -> None:
    class Thing: ...

    made, thing = Plugin("p"), Thing()
    assert made.hook("before_message")(whole) is whole
    assert made.llm_provider("cohere")(whole) is whole
    assert made.channel("slack")(Thing) is Thing
    assert isinstance(made.channels["slack"], Thing)
    assert made.vector_backend("qdrant")(thing) is thing
    assert made.vector_backends == {"qdrant": thing}
    assert made.on_event()(whole) is made.on_event("a.>")(whole)
    assert [pattern for pattern, _ in made.events] == [None, "a.>"]
    assert made.on_ready(whole) is made.on_shutdown(whole)
    assert len(made.ready_handlers) == len(made.shutdown_handlers) == 1
    with pytest.raises(ValueError, match="two hooks are called 'before_message'"):
        made.hook("before_message")(whole)
    with pytest.raises(ValueError, match="two channels are called 'slack'"):
        made.channel("slack")(thing)
    with pytest.raises(TypeError, match=r"@plugin\.on_event\(\) with parentheses"):
        made.on_event(whole)  # type: ignore[arg-type]


@requirement("kaged:sdk-declarations")
def test_what_only_some_contracts_carry_is_declared_all_the_same() -> None:
    made = Plugin("p", config_schema={"type": "object"}, secrets_schema={"type": "object"})
    assert (made.config_schema, made.secrets_schema) == ({"type": "object"}, {"type": "object"})
    assert made.method("index.rebuild")(whole) is whole
    assert made.compactor(whole) is whole
    made.notifies("changed", "gone", "changed")
    made.notifies("changed")
    made.knob("depth", type="int_range", label="Depth", min=1, max=9)
    made.knob("deep", type="boolean", label="Deep", binds_to="config.deeper", default=False)
    assert list(made.methods) == ["index.rebuild"]
    assert made.notifications == ["changed", "gone"]
    assert made.knobs == {
        "depth": {"type": "int_range", "label": "Depth", "binds_to": "depth", "min": 1, "max": 9},
        "deep": {"type": "boolean", "label": "Deep", "binds_to": "config.deeper", "default": False},
    }
    with pytest.raises(ValueError, match="two methods are called"):
        made.method("index.rebuild")(whole)
    with pytest.raises(ValueError, match="one compactor"):
        made.compactor(whole)
    with pytest.raises(ValueError, match="two knobs are called 'depth'"):
        made.knob("depth", type="boolean", label="Again")


def test_without_a_host_there_are_no_settings() -> None:
    assert (dict(Plugin("p").config), dict(Plugin("p").secrets)) == ({}, {})


def test_without_a_host_there_are_no_services() -> None:
    with pytest.raises(ServiceError, match=r"does not offer ctx\.events"):
        Plugin("p").host.events.publish("t", 1)


def test_two_tools_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are called 'add'"):
        plugin.tool("add")(whole)


# What vai has words for.


@requirement("vai:sdk-declarations")
def test_a_hook_may_be_there_for_several_things_and_has_a_name() -> None:
    plugin = Plugin("p")

    @plugin.hook("run.completed", "chain.compacted", export="notify", timeout=5)
    def on_it(event: Any) -> None: ...

    @plugin.hook("run.started")
    def started(event: Any) -> None:
        """Says so."""

    assert {event: hook.name for event, hook in plugin.hooks.items()} == {
        "run.completed": "notify",
        "chain.compacted": "notify",
        "run.started": "started",
    }
    assert plugin.hooks["run.completed"].terms.timeout == 5
    assert plugin.hooks["run.started"].description == "Says so."
    with pytest.raises(ValueError, match=r"two hooks are called 'run\.started'"):
        plugin.hook("run.paused", "run.started")(on_it)


@requirement("vai:sdk-declarations")
def test_a_compactor_is_declared_with_or_without_parentheses() -> None:
    bare, full = Plugin("p"), Plugin("p")

    def window(messages: Any) -> Any: ...

    assert bare.compactor(window) is window
    assert full.compactor(export="coder", target_context="coding", supports_pinned_items=True)(window) is window
    assert bare.compaction is not None
    assert full.compaction is not None
    assert (bare.compaction.name, bare.compaction.target_context) == ("window", "general")
    assert (full.compaction.name, full.compaction.target_context) == ("coder", "coding")
    with pytest.raises(ValueError, match="a plugin has one compactor"):
        full.compactor(window)


@requirement("vai:sdk-declarations")
def test_a_harness_is_called_after_its_function_unless_it_has_a_name() -> None:
    plugin = Plugin("p")

    @plugin.harness()
    def triage(run: Any) -> None:
        """Finds out."""

    plugin.harness("other", fidelity="lossless", supports=["tool"], max_concurrency=4)(triage)
    assert list(plugin.harnesses) == ["triage", "other"]
    assert (plugin.harnesses["triage"].description, plugin.harnesses["triage"].fidelity) == ("Finds out.", "checkpoint")
    assert (plugin.harnesses["other"].supports, plugin.harnesses["other"].terms.max_concurrency) == (("tool",), 4)
    with pytest.raises(ValueError, match="two harnesses are called 'triage'"):
        plugin.harness()(triage)
    with pytest.raises(TypeError, match="with parentheses"):
        plugin.harness(triage)  # type: ignore[arg-type]


@requirement("vai:sdk-declarations")
def test_an_unknown_fact_is_refused() -> None:
    with pytest.raises(TypeError, match="has an argument tiemout"):
        Plugin("p").tool(tiemout=3)  # type: ignore[call-arg]


DECORATORS: list[Callable[[Plugin, Any], Any]] = [
    lambda plugin, name: plugin.screen(name),
    lambda plugin, name: plugin.on_key(name),
    lambda plugin, name: plugin.on_mouse(name),
    lambda plugin, name: plugin.on_action(name),
    lambda plugin, name: plugin.cli(name),
    lambda plugin, name: plugin.action(name),
    lambda plugin, name: plugin.on_snapshot(name),
]


def function(*_: object) -> None:
    """A handler."""


@pytest.mark.parametrize("decorate", DECORATORS)
def test_a_decorator_returns_the_function_and_wants_parentheses(decorate: Callable[[Plugin, Any], Any]) -> None:
    assert decorate(Plugin("p"), "x")(function) is function
    with pytest.raises(TypeError, match="with parentheses"):
        decorate(Plugin("p"), function)


@requirement("ainb:sdk-declarations")
@pytest.mark.parametrize(
    ("what", "decorate"),
    [
        ("screens", lambda plugin: plugin.screen("x")),
        ("commands", lambda plugin: plugin.on_action("x")),
        ("command lines", lambda plugin: plugin.cli("x")),
        ("actions", lambda plugin: plugin.action("x")),
    ],
)
def test_a_name_is_declared_once(what: str, decorate: Callable[[Plugin], Any]) -> None:
    plugin = Plugin("p")
    decorate(plugin)(function)
    with pytest.raises(ValueError, match=f"two {what} are called 'x'"):
        decorate(plugin)(function)


@requirement("ainb:sdk-declarations")
def test_keys_snapshots_and_the_mouse_may_have_several_handlers() -> None:
    plugin = Plugin("p")
    for decorate in (plugin.on_key("s", "q", "esc"), plugin.on_key("s", releases=True), plugin.on_mouse("s")):
        decorate(function)
        decorate(function)
    plugin.on_snapshot("t", latest=True)(function)
    plugin.on_snapshot("t", latest=True)(function)
    plugin.on_snapshot()(function)
    assert [(key.names, key.releases) for key in plugin.keys] == [(("q", "esc"), False)] * 2 + [((), True)] * 2
    assert len(plugin.mice) == 2
    assert [topic for topic, _ in plugin.snapshots] == ["t", "t", None]
    assert plugin.latest == ["t"]


@requirement("ainb:sdk-declarations")
def test_what_is_published_is_said_once() -> None:
    plugin = Plugin("p", eager=True, idle_seconds=0)
    plugin.publishes("a", "b", "a")
    plugin.publishes("b", "c")
    assert (plugin.topics, plugin.eager, plugin.idle_seconds) == (["a", "b", "c"], True, 0)


def test_what_may_run_beside_others_says_so() -> None:
    plugin = Plugin("p")
    plugin.cli("slow", concurrent=True)(function)
    plugin.action("quick")(function)
    assert (plugin.clis["slow"].concurrent, plugin.actions["quick"].concurrent) == (True, False)


@requirement("ainb:sdk-light")
def test_declaring_loads_nothing_that_only_a_host_with_screens_needs() -> None:
    loaded = {name.removeprefix("plugbay.sdk.") for name in modules_loaded_by("plugbay.sdk", SOURCE.parent)}
    assert "plugin" in loaded
    assert not any(name.startswith(("contracts", "screens", "services")) for name in loaded)
