"""What can be asked across a link. Two closed unions, told apart by direction.

`PluginOp`: the host asks the plugin. `HostOp`: the plugin asks the host. A machine says which of them its contract can
carry (`supports`); everything else in the host is written against these, never against a contract's method names.
Payload fields hold what the machine's codec treats as one JSON value: raw bytes in the host, Python values in a plugin.
"""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


_NO_CONTEXT: dict[str, Any] = {}


class InvokeTool(Value):
    """Run one tool with one input and answer with its output."""

    __slots__ = ("context", "input", "tool")

    def __init__(self, tool: str, input: Any, context: Mapping[str, Any] | None = None) -> None:
        self.tool = tool
        self.input = input
        self.context: Mapping[str, Any] = _NO_CONTEXT if context is None else context


class DeliverEvent(Value):
    """Tell the plugin that something happened; no answer is expected."""

    __slots__ = ("payload", "topic")

    def __init__(self, topic: str, payload: Any) -> None:
        self.topic = topic
        self.payload = payload


class WriteLog(Value):
    """The plugin wants a line in the host's log."""

    __slots__ = ("level", "message")

    def __init__(self, level: str, message: str) -> None:
        self.level = level
        self.message = message


if TYPE_CHECKING:
    PluginOp = InvokeTool | DeliverEvent
    HostOp = WriteLog
    Operation = PluginOp | HostOp
