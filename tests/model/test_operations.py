"""Every operation is found in one place, and none is mistaken for another."""

from __future__ import annotations

from plugbay.model.operations import (
    Compact,
    DeliverEvent,
    FetchUrl,
    InvokeAction,
    InvokeTool,
    ListStored,
    RecallMemory,
    Render,
    RunHarness,
    Shutdown,
    WriteLog,
)


def test_operations_of_different_kinds_are_never_equal() -> None:
    assert DeliverEvent("info", "x") != WriteLog("info", "x")


def test_what_is_not_said_has_a_default() -> None:
    assert WriteLog("info", "hello") == WriteLog("info", "hello", None)
    assert FetchUrl("https://a.example/") == FetchUrl("https://a.example/", "GET", None, ())
    assert ListStored() == ListStored("", 1000)
    assert RecallMemory("agent", "words").limit == 10


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
