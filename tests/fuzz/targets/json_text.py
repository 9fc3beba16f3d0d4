"""Strict JSON: two codecs and an independent reading by the rules agree, and each accepted value survives encoding."""

from __future__ import annotations

import json
import math
from typing import Any

from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import DEFAULT_LIMITS, MAX_INTEGER, MIN_INTEGER, Malformed
from plugbay.wire.strict_json import ABSENT, StdlibCodec, private_engine, public_engine

FAST = MsgspecCodec()
CODECS: list[Any] = [FAST, StdlibCodec(public_engine())]
_private = private_engine()
if _private is not None:
    CODECS.append(StdlibCodec(_private))
FIELDS, RAW = ("id", "method"), ("params", "result")
READERS = [codec.decoder(FIELDS, RAW) for codec in CODECS]
REFUSED = object()


def check(data: bytes) -> None:
    expected = _expected(data)
    for codec in CODECS:
        found = _decode(codec, data)
        assert _same(found, expected), f"{type(codec).__name__} reads {found!r}, by the rules it is {expected!r}"
    if expected is REFUSED:
        return
    for writer in CODECS:
        text = writer.encode(expected)
        for reader in CODECS:
            assert _same(reader.decode(text), expected)
    for codec, read in zip(CODECS, READERS, strict=True):
        _check_message(codec, read, data, expected)


def _decode(codec: Any, data: bytes) -> Any:
    try:
        return codec.decode(data)
    except Malformed:
        return REFUSED


def _check_message(codec: Any, read: Any, data: bytes, expected: Any) -> None:
    try:
        message = read(data)
    except Malformed:
        assert not isinstance(expected, dict)
        return
    assert isinstance(expected, dict)
    for name in (*FIELDS, *RAW):
        value = getattr(message, name)
        if name in RAW and value is not ABSENT:
            value = codec.load(value)
        assert _same(value, expected.get(name, ABSENT))


class _Broken(Exception):
    """The text breaks a rule."""


def _expected(data: bytes) -> Any:
    """The value of the text by our rules, read by the standard library with every repeated key in sight."""
    try:
        pairs = json.loads(data.decode(), parse_constant=_refuse, object_pairs_hook=_Pairs)
        return _plain(pairs, DEFAULT_LIMITS.depth)
    except (_Broken, ValueError, RecursionError):
        return REFUSED


class _Pairs(list[tuple[str, Any]]):
    """An object with its repeated keys."""


def _refuse(name: str) -> Any:
    raise _Broken(name)


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, _Pairs | list):
        if not depth:
            raise _Broken("too deep")
        if isinstance(value, _Pairs):
            return {_plain(key, depth): _plain(item, depth - 1) for key, item in value}
        return [_plain(item, depth - 1) for item in value]
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, float) and not math.isfinite(value):
        raise _Broken("not finite")
    elif type(value) is int and not MIN_INTEGER <= value <= MAX_INTEGER:
        raise _Broken("too wide")
    return value


def _same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other) and (not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other))
