"""What is asked and told: operations into parameters, and parameters into operations.

Owns the two places where an operation is not simply its parameters. Refuses to know frames, ids and states.
"""

from __future__ import annotations

from plugbay.contracts.ainb import fields
from plugbay.model.operations import FetchUrl, Render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.contracts.ainb.messages import Method
    from plugbay.model.errors import Failure
    from plugbay.model.operations import Operation
    from plugbay.wire.strict_json import Codec


def written(method: Method, op: Any, codec: Codec) -> bytes | Failure:
    """The parameters that ask for `op`, or which of them no peer would read."""
    values = {field.attribute: getattr(op, field.attribute, None) for field in method.fields}
    if isinstance(op, Render):
        values["viewport"] = {"width": op.width, "height": op.height}
    return fields.written(method.fields, values, codec)


def read(method: Method, params: Any) -> Operation | str:
    """The operation that `method` asks for, or what is wrong with its parameters."""
    values = fields.read(method.fields, params)
    if isinstance(values, str):
        return values
    make: Callable[..., Operation] = _MADE.get(method.op, method.op)
    return make(**values)


def _render(screen: str, viewport: dict[str, int], generation: int) -> Render:
    """Without a screen, the plugin draws its first."""
    return Render(screen, viewport["width"], viewport["height"], generation)


def _fetch(url: str, method: str, body: bytes | None, headers: list[list[str]]) -> FetchUrl:
    return FetchUrl(url, method or "GET", body, tuple((name, value) for name, value in headers))


_MADE: dict[type, Callable[..., Operation]] = {Render: _render, FetchUrl: _fetch}
