"""The kinds of values in ainb's objects: how each is read, and how it is written.

What we send is held to the same kinds as what we read, so nothing leaves that a peer would have to refuse. Bytes are
base64 on the wire; the array of numbers that old peers write is read as well. Unknown fields are ignored. Refuses to
know methods.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64

from plugbay.model.errors import Code, Failure
from plugbay.model.values import Value
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from plugbay.wire.strict_json import Codec

LEVELS = ("trace", "debug", "info", "warn", "error")
"""Of a line in the log, the least important first."""


class Field(Value):
    """One field of an object: its name, its kind, what it is called here, and what it is when it is not there."""

    __slots__ = ("attribute", "default", "kind", "name")

    def __init__(self, name: str, kind: str, attribute: str = "", default: Any = ABSENT) -> None:
        self.name = name
        self.kind = kind
        self.attribute = attribute or name
        self.default = default


def read(fields: Iterable[Field], given: Any, what: str = "params") -> dict[str, Any] | str:
    """The values of an object by the names they have here, or what is wrong with it."""
    if not isinstance(given, dict):
        return f"{what} must be an object"
    values: dict[str, Any] = {}
    for field in fields:
        value = given.get(field.name, field.default)
        if value is ABSENT:
            return f"{field.name} is missing"
        if value is not field.default:
            try:
                value = _READERS[field.kind](value)
            except ValueError:
                return f"{field.name} must be {WANTED[field.kind]}"
        values[field.attribute] = value
    return values


def written(fields: Iterable[Field], values: Mapping[str, Any], codec: Codec) -> bytes | Failure:
    """An object with these values, or which of them it cannot have. What has a default may be missing."""
    parts: list[bytes] = []
    for field in fields:
        value = values.get(field.attribute, field.default)
        try:
            encoded = _encoded(_WRITERS[field.kind](value), codec)
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"{field.name} cannot be sent as JSON: {error}")
        except ValueError:
            return Failure(Code.INVALID_INPUT, f"{field.name} must be {WANTED[field.kind]}")
        parts.append(b'"%b":%b' % (field.name.encode(), encoded))
    return b"{%b}" % b",".join(parts)


def base64(data: bytes) -> str:
    """Bytes as they stand in JSON."""
    return b2a_base64(data, newline=False).decode("ascii")


def _encoded(value: Any, codec: Codec) -> bytes:
    """JSON. Base64 has nothing to escape, so megabytes of it are spliced in and not looked through again."""
    return b'"%b"' % b2a_base64(value, newline=False) if type(value) is bytes else codec.encode(value)


# Each reader takes a value that came from JSON or is about to be written, and raises ValueError when it does not fit.


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError


def _text(value: Any) -> Any:
    _check(isinstance(value, str))
    return value


def _texts(value: Any) -> tuple[str, ...]:
    _check(isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value))
    return tuple(value)


def _level(value: Any) -> Any:
    _check(isinstance(value, str) and value in LEVELS)
    return value


def _integer(value: Any, least: int, most: int) -> Any:
    _check(type(value) is int and least <= value <= most)
    return value


def _count(value: Any) -> Any:
    return _integer(value, 0, 2**64 - 1)


def _small(value: Any) -> Any:
    return _integer(value, 0, 2**16 - 1)


def _flag(value: Any) -> Any:
    _check(isinstance(value, bool))
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, list):
        _check(set(map(type, value)) <= {int})
        return bytes(value)
    return a2b_base64(_text(value), strict_mode=True)


def _plain_bytes(value: Any) -> Any:
    """Bytes that are to be written; a text is none, even where it could be read as base64."""
    _check(type(value) is bytes)
    return value


def _object(value: Any) -> Any:
    _check(isinstance(value, dict))
    return value


def _pairs(value: Any) -> list[list[str]]:
    _check(isinstance(value, (list, tuple)))
    pairs = [list(_texts(pair)) for pair in value]
    _check(all(len(pair) == 2 for pair in pairs))
    return pairs


def _viewport(value: Any) -> dict[str, int]:
    return {side: _small(_object(value).get(side)) for side in ("width", "height")}


def _entries(value: Any) -> list[dict[str, Any]]:
    _check(isinstance(value, list))
    return [
        {"name": _text(entry.get("name")), "is_dir": _flag(entry.get("is_dir")), "size": _count(entry.get("size"))}
        for entry in map(_object, value)
    ]


def _key(value: Any) -> dict[str, Any]:
    """A key whose code has a type; which types there are, a plugin knows best."""
    code, kind = _object(_object(value).get("code")), value.get("kind", "press")
    _check(isinstance(code.get("type"), str) and isinstance(kind, str))
    return {"code": code, "mods": _integer(value.get("mods", 0), 0, 255), "kind": kind}


def _mouse(value: Any) -> dict[str, Any]:
    kind = _object(_object(value).get("kind"))
    _check(isinstance(kind.get("type"), str))
    place = {axis: _small(value.get(axis)) for axis in ("col", "row")}
    return {"kind": kind, **place, "mods": _integer(value.get("mods", 0), 0, 255)}


_READERS: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "texts": _texts,
    "level": _level,
    "count": _count,
    "u16": _small,
    "i32": lambda value: _integer(value, -(2**31), 2**31 - 1),
    "bytes": _bytes,
    "bytes?": lambda value: None if value is None else _bytes(value),
    "pairs": _pairs,
    "viewport": _viewport,
    "entries": _entries,
    "key": _key,
    "mouse": _mouse,
    "any": lambda value: value,
}
_WRITERS: dict[str, Callable[[Any], Any]] = {
    **_READERS,
    "bytes": _plain_bytes,
    "bytes?": lambda value: None if value is None else _plain_bytes(value),
}
WANTED = {
    "text": "a string",
    "texts": "an array of strings",
    "level": f"one of {', '.join(LEVELS)}",
    "count": "an integer from 0",
    "u16": "an integer from 0 to 65535",
    "i32": "an integer of 32 bits",
    "bytes": "bytes, as base64",
    "bytes?": "bytes, as base64, or null",
    "pairs": "an array of pairs of strings",
    "viewport": "an object with width and height, integers from 0 to 65535",
    "entries": "an array of objects with name, is_dir and size",
    "key": "a key event",
    "mouse": "a mouse event",
    "any": "a JSON value",
}
