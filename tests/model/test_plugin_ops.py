"""What the host asks is a value, with the context never missing."""

from __future__ import annotations

from plugbay.model.plugin_ops import Compact, InvokeAction, InvokeTool, Render, RunHarness, Shutdown


def test_a_tool_call_without_context_has_an_empty_one() -> None:
    assert InvokeTool("t", {"a": 1}).context == {}
    assert Compact("c", {}).context == RunHarness("h", {}).context == {}
    assert InvokeTool("t", 1, {"k": "v"}) == InvokeTool("t", 1, {"k": "v"})


def test_a_good_bye_needs_no_reason() -> None:
    assert Shutdown() == Shutdown("")
    assert Shutdown("host requested").reason == "host requested"


def test_a_picture_and_an_action_need_no_more_than_their_names() -> None:
    assert Render("usage", 80, 24) == Render("usage", 80, 24, 0)
    assert InvokeAction("refresh") == InvokeAction("refresh", b"", 0)
