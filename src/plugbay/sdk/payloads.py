"""Bytes that travel under a topic or with an action, and the values they stand for.

An author gives bytes, a text or a JSON value and reads any of these back, or MessagePack, which other plugins write.
Refuses to know how bytes travel.
"""

from __future__ import annotations

from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def as_bytes(value: Any) -> bytes:
    """Bytes as they are, a text as UTF-8, nothing as nothing, and everything else as JSON."""
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return to_json(value)


def to_json(value: Any) -> bytes:
    """Raises ValueError for what JSON cannot hold."""
    return stdlib_codec().encode(value)


def from_json(data: bytes) -> Any:
    """Raises ValueError for what is no JSON."""
    return stdlib_codec().decode(data)


def to_msgpack(value: Any) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(value)


def from_msgpack(data: bytes) -> Any:
    """Raises ValueError for what is no MessagePack."""
    import msgspec

    return msgspec.msgpack.decode(data)


def written_msgpack(data: bytes) -> Any:
    """MessagePack to be spliced into more of it as it is."""
    import msgspec

    return msgspec.Raw(data)


def decoded(data: bytes) -> Any:
    """JSON or MessagePack, whichever it is: an object of JSON begins with a brace, and no object of the other does."""
    return from_json(data) if data.lstrip()[:1] == b"{" else from_msgpack(data)
