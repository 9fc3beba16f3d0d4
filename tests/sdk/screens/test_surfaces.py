"""Screens, keys, commands, snapshots and actions as an author declares them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plugbay.sdk import Plugin
from tests.architecture import SOURCE
from tests.architecture.test_light_imports import modules_loaded_by
from tests.support.requirements import requirement

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
    assert "screens.surfaces" in loaded
    assert not any(name.startswith(("contracts", "services")) for name in loaded)
    assert not loaded & {"screens.canvas", "screens.command_lines", "screens.inputs"}
