"""Operations are values with the context never missing."""

from __future__ import annotations

from plugbay.model.operations import DeliverEvent, InvokeTool, WriteLog


def test_a_tool_call_without_context_has_an_empty_one() -> None:
    assert InvokeTool("t", {"a": 1}).context == {}
    assert InvokeTool("t", 1, {"k": "v"}) == InvokeTool("t", 1, {"k": "v"})


def test_operations_of_different_kinds_are_never_equal() -> None:
    assert DeliverEvent("info", "x") != WriteLog("info", "x")
