"""Runs one tool on the calling thread: in a process that serves one call, or in a test.

The call is stopped by its own deadline only, as no input is read meanwhile. `ctx` and an event loop are loaded for
tools that need them.
"""

from __future__ import annotations

from plugbay.model.errors import Failure
from plugbay.sdk.types.handlers import join_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugbay.sdk.services.cancellation import Cancellation
    from plugbay.sdk.types.handlers import Tool


def invoke(tool: Tool, given: Any, context: Mapping[str, Any], plugin_id: str = "", contract: str = "") -> Any:
    """The tool's value to the last piece, or a `Failure`; `contract` is that of the host, if there is one."""
    arguments = tool.arguments(given, context)
    if isinstance(arguments, Failure):
        return arguments
    stop = _deadline_of(tool) if tool.takes_ctx or tool.is_async else None
    try:
        if tool.takes_ctx:
            from plugbay.sdk.context import unconnected

            arguments = {**arguments, "ctx": unconnected(plugin_id, context, contract, stop)}
        value = tool.function(**arguments)
        if hasattr(value, "__await__") or hasattr(value, "__aiter__"):
            import asyncio

            value = asyncio.run(_await_value(value, stop or _deadline_of(tool)))
        return join_pieces(value, tool.written)
    except BaseException as error:  # SystemExit too: argparse in a tool must not look like a crash
        from plugbay.sdk.errors import failure_of

        return failure_of(error if stop is None else stop.meant(error))


def _deadline_of(tool: Tool) -> Cancellation:
    from time import monotonic

    from plugbay.sdk.services.cancellation import Cancellation

    seconds = tool.terms.timeout
    return Cancellation(None if seconds is None else monotonic() + seconds)


async def _await_value(value: Any, stop: Cancellation) -> Any:
    from plugbay.sdk.runtime.async_bridge import CancelledBy

    with CancelledBy(stop):
        if hasattr(value, "__await__"):
            value = await value
        return iter([piece async for piece in value]) if hasattr(value, "__aiter__") else value
