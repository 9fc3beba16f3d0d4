"""The SDK for plugin authors: one `Plugin`, plain functions, `plugin.run()`.

Import-light: a plugin pays for every import before its first answer. Names that not every plugin uses are loaded on
first access.
"""

from __future__ import annotations

from plugbay.sdk.io.stdio import claim_early
from plugbay.sdk.plugin import Plugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plugbay.sdk.context import Completion, Context
    from plugbay.sdk.contracts.ainb_sessions import WIRE_VERSION, UsageDataEvent
    from plugbay.sdk.errors import (
        Cancelled,
        ChannelAuthenticationFailed,
        ChannelConnectionFailed,
        CollectionNotFound,
        ContextOverflow,
        DimensionMismatch,
        HandlerError,
        LlmAuthenticationFailed,
        LlmConnectionFailed,
        MethodMissing,
        ModelNotFound,
        RateLimited,
        RecipientInvalid,
        ServiceError,
        ToolArgumentInvalid,
        ToolDenied,
        ToolError,
        ToolExecutionFailed,
        ToolNotFound,
        ToolUnavailable,
        Unsupported,
        UnsupportedFeature,
        WriteFailed,
    )
    from plugbay.sdk.events import Event
    from plugbay.sdk.results import Compaction, HarnessResult, Run, Seed, ToolResult, block, inject, override, transform
    from plugbay.sdk.screens.canvas import Canvas
    from plugbay.sdk.screens.command_lines import CliResult
    from plugbay.sdk.screens.inputs import Key, Mouse
    from plugbay.sdk.services.brokered import ChunkCollector, Snapshot, from_json, split_chunks
    from plugbay.sdk.services.gateway import (
        Gateway,
        GatewayConflict,
        GatewayDenied,
        GatewayError,
        GatewayNotFound,
        GatewayUnavailable,
    )
    from plugbay.sdk.types.shapes import Field

__all__ = [
    "WIRE_VERSION",
    "Cancelled",
    "Canvas",
    "ChannelAuthenticationFailed",
    "ChannelConnectionFailed",
    "ChunkCollector",
    "CliResult",
    "CollectionNotFound",
    "Compaction",
    "Completion",
    "Context",
    "ContextOverflow",
    "DimensionMismatch",
    "Event",
    "Field",
    "Gateway",
    "GatewayConflict",
    "GatewayDenied",
    "GatewayError",
    "GatewayNotFound",
    "GatewayUnavailable",
    "HandlerError",
    "HarnessResult",
    "Key",
    "LlmAuthenticationFailed",
    "LlmConnectionFailed",
    "MethodMissing",
    "ModelNotFound",
    "Mouse",
    "Plugin",
    "RateLimited",
    "RecipientInvalid",
    "Run",
    "Seed",
    "ServiceError",
    "Snapshot",
    "ToolArgumentInvalid",
    "ToolDenied",
    "ToolError",
    "ToolExecutionFailed",
    "ToolNotFound",
    "ToolResult",
    "ToolUnavailable",
    "Unsupported",
    "UnsupportedFeature",
    "UsageDataEvent",
    "WriteFailed",
    "block",
    "from_json",
    "inject",
    "override",
    "split_chunks",
    "transform",
]

_ELSEWHERE = {
    "Canvas": "screens.canvas",
    "ChunkCollector": "services.brokered",
    "CliResult": "screens.command_lines",
    "Compaction": "results",
    "Completion": "context",
    "Context": "context",
    "Event": "events",
    "Field": "types.shapes",
    "Gateway": "services.gateway",
    "GatewayConflict": "services.gateway",
    "GatewayDenied": "services.gateway",
    "GatewayError": "services.gateway",
    "GatewayNotFound": "services.gateway",
    "GatewayUnavailable": "services.gateway",
    "HarnessResult": "results",
    "Key": "screens.inputs",
    "Mouse": "screens.inputs",
    "Run": "results",
    "Seed": "results",
    "Snapshot": "services.brokered",
    "ToolResult": "results",
    "block": "results",
    "from_json": "services.brokered",
    "inject": "results",
    "override": "results",
    "split_chunks": "services.brokered",
    "transform": "results",
    "UsageDataEvent": "contracts.ainb_sessions",
    "WIRE_VERSION": "contracts.ainb_sessions",
}
"""Modules of the names that are loaded on first access and are no errors."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_ELSEWHERE.get(name, 'errors')}"
    __import__(module)
    import sys

    value = getattr(sys.modules[module], name)
    globals()[name] = value
    return value


claim_early()
