"""Every operation is found in one place, and none is mistaken for another."""

from __future__ import annotations

from plugbay.model import host_ops, operations, plugin_ops
from plugbay.model.operations import DeliverEvent, WriteLog
from plugbay.model.values import Value


def test_every_operation_is_found_here() -> None:
    kinds = {
        name
        for module in (plugin_ops, host_ops)
        for name, thing in vars(module).items()
        if isinstance(thing, type) and issubclass(thing, Value) and thing is not Value
    }
    assert set(operations.__all__) == kinds


def test_operations_of_different_kinds_are_never_equal() -> None:
    assert DeliverEvent("info", "x") != WriteLog("info", "x")
