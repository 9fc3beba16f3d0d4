"""For plugin authors: one `Plugin`, plain functions, `plugin.run()`.

Import-light on purpose: a plugin pays for every import before its first answer. What not every plugin names is loaded
when it is named.
"""

from __future__ import annotations

from plugbay.sdk.plugin import Plugin
from plugbay.sdk.stdio import claim_early

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plugbay.sdk.context import Completion, Context
    from plugbay.sdk.errors import (
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
        UnsupportedFeature,
        WriteFailed,
    )
    from plugbay.sdk.events import Event
    from plugbay.sdk.hooks import block, inject, override, transform

__all__ = [
    "ChannelAuthenticationFailed",
    "ChannelConnectionFailed",
    "CollectionNotFound",
    "Completion",
    "Context",
    "ContextOverflow",
    "DimensionMismatch",
    "Event",
    "HandlerError",
    "LlmAuthenticationFailed",
    "LlmConnectionFailed",
    "MethodMissing",
    "ModelNotFound",
    "Plugin",
    "RateLimited",
    "RecipientInvalid",
    "ServiceError",
    "ToolArgumentInvalid",
    "ToolDenied",
    "ToolError",
    "ToolExecutionFailed",
    "ToolNotFound",
    "ToolUnavailable",
    "UnsupportedFeature",
    "WriteFailed",
    "block",
    "inject",
    "override",
    "transform",
]

_ELSEWHERE = {
    "Completion": "context",
    "Context": "context",
    "Event": "events",
    "block": "hooks",
    "inject": "hooks",
    "override": "hooks",
    "transform": "hooks",
}
"""Where what is not an error is to be found."""


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
