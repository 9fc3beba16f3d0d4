"""What plugins on nodes ask of their host, as messages to a gateway, and the answers. Pure.

Requests are written by the slots of their classes. Bytes are Base64: an action has bytes as input and as result.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from plugbay.model import operations
from plugbay.model.values import Value
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

_NAMES = ("GetStored", "SetStored", "DeleteStored", "ListStored", "RecallMemory", "CompleteChat", "InvokeAction")
REQUESTS: dict[str, type[Value]] = {name: getattr(operations, name) for name in _NAMES}

BYTES = frozenset({"data"})
"""Slots with bytes."""


def encode_request(op: Any, codec: MsgspecCodec) -> bytes:
    """The body of a question; raises `Malformed` for a request that gateways do not answer."""
    name = type(op).__name__
    if REQUESTS.get(name) is not type(op):
        raise Malformed(f"{name} is not answered by gateways")
    values = {slot: getattr(op, slot) for slot in type(op).__slots__}
    written = {slot: _to_text(value) if slot in BYTES else value for slot, value in values.items()}
    return codec.encode({"kind": name, **written})


def decode_request(body: bytes, codec: MsgspecCodec) -> Value:
    """The request in a question; raises `Malformed`."""
    decoded = codec.decode(body)
    kind = REQUESTS.get(str(decoded.pop("kind", ""))) if isinstance(decoded, dict) else None
    if kind is None:
        raise Malformed("no request that gateways answer")
    if set(decoded) != set(kind.__slots__):
        raise Malformed(f"{kind.__name__} has {', '.join(sorted(kind.__slots__))}, and no other fields")
    return kind(**{slot: _to_bytes(value) if slot in BYTES else value for slot, value in decoded.items()})


def encode_answer(value: Any, codec: MsgspecCodec) -> bytes:
    """The body of an answer."""
    is_bytes = isinstance(value, bytes | bytearray | memoryview)
    return codec.encode({"bytes": _to_text(value)} if is_bytes else {"value": value})


def decode_answer(body: bytes, codec: MsgspecCodec) -> Any:
    """The answer of a gateway; raises `Malformed`."""
    decoded = codec.decode(body)
    if not isinstance(decoded, dict) or len(decoded) != 1:
        raise Malformed("no answer")
    return _to_bytes(decoded["bytes"]) if "bytes" in decoded else decoded.get("value")


def _to_text(data: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(data).decode()


def _to_bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Malformed("no Base64") from None
