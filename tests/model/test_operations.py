"""Operations are values with the context never missing."""

from __future__ import annotations

from plugbay.model.operations import DeliverEvent, InvokeTool, Shutdown, WriteLog


def test_a_tool_call_without_context_has_an_empty_one() -> None:
    assert InvokeTool("t", {"a": 1}).context == {}
    assert InvokeTool("t", 1, {"k": "v"}) == InvokeTool("t", 1, {"k": "v"})


def test_operations_of_different_kinds_are_never_equal() -> None:
    assert DeliverEvent("info", "x") != WriteLog("info", "x")


def test_a_good_bye_needs_no_reason() -> None:
    assert Shutdown() == Shutdown("")
    assert Shutdown("host requested").reason == "host requested"
