"""Strict JSON for the host: the rules of `strict_json` at the speed of msgspec, with payloads left unread.

Owns the msgspec codec and the checks where msgspec is more lenient than our rules. A raw field is the `msgspec.Raw`
slice of its frame: it was checked when the frame was decoded, so `load` succeeds on it, and it keeps its frame in
memory. Never imported by a plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from plugbay.wire.json_gate import (
    DEFAULT_LIMITS,
    SMALL_BYTES,
    JsonLimits,
    Malformed,
    gate,
    plain_text,
    plainly_flat,
    refuse_wide_numbers,
    without_few_strings,
)
from plugbay.wire.strict_json import ABSENT, Unencodable, refuse_object, unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


PAYLOAD_LIMITS = JsonLimits(depth=DEFAULT_LIMITS.depth - 4, sparse=DEFAULT_LIMITS.sparse)
"""A message adds up to four levels around a payload, and the whole of it must pass the peer's gate."""


class MsgspecCodec:
    """JSON for the host. Raw values are `msgspec.Raw`.

    Values of types that msgspec has a JSON form for (dates, UUIDs, sets, bytes) are encoded as it does;
    everything else behaves as in the codec of a plugin.
    """

    __slots__ = ("_decode", "_decoders", "_encode", "_probe")

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder().decode
        self._decoders: dict[tuple[tuple[str, ...], tuple[str, ...]], Callable[..., Any]] = {}
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        # What it writes is thrown away: it refuses the keys and integers that the JSON encoder lets through,
        # and takes 80 ns for a small value where walking it takes 500.
        self._probe = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic").encode

    raw_type: ClassVar[type] = msgspec.Raw

    def decoder(self, fields: tuple[str, ...], raw: tuple[str, ...] = ()) -> Callable[..., Any]:
        """A function from a frame with one JSON object to a message; what has no key is `ABSENT`. Made once.

        It takes the word of a caller who says that the frame is `plain_text`.
        """
        read = self._decoders.get((fields, raw))
        if read is None:
            read = self._decoders[fields, raw] = _make_decoder(fields, raw)
        return read

    def decode(self, frame: bytes) -> Any:
        """The one JSON value in `frame`."""
        gate(frame)
        refuse_wide_numbers(frame)
        try:
            return self._decode(frame)
        except (ValueError, RecursionError) as error:
            raise _malformed(error) from None

    def encode(self, value: Any) -> bytes:
        """`value` as compact UTF-8 JSON; what is raw already goes out as it is."""
        if type(value) is msgspec.Raw:
            return bytes(value)
        try:
            encoded = self._encode(value)
            self._probe(value)
            bare = encoded if len(encoded) <= SMALL_BYTES else without_few_strings(encoded)
            if bare.find(b"null") >= 0:  # how msgspec writes NaN and Infinity, too
                _refuse_non_finite(value)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise unencodable(value, error) from None
        return encoded

    def load(self, raw: Any) -> Any:
        """The value of a raw field, which was held to every rule when its frame was decoded or it was dumped."""
        return self._decode(raw)

    def dump(self, value: Any) -> msgspec.Raw:
        """The raw form of a value; one that nests too deeply for the message around it has none."""
        return msgspec.Raw(self.payload(value))

    def payload(self, value: Any) -> bytes:
        """The same as bytes."""
        encoded = self.encode(value)
        if len(encoded) > 2 * PAYLOAD_LIMITS.depth:  # a level takes two bytes
            try:
                gate(encoded, PAYLOAD_LIMITS)
            except Malformed as error:
                raise Unencodable(str(error)) from None
        return encoded


def _make_decoder(fields: tuple[str, ...], raw: tuple[str, ...]) -> Callable[..., Any]:
    columns = [(name, Any, ABSENT) for name in fields] + [(name, msgspec.Raw, ABSENT) for name in raw]
    decode = msgspec.json.Decoder(msgspec.defstruct("Message", columns, gc=False)).decode

    def read(frame: bytes, plain: bool = False) -> Any:
        if not (plainly_flat(frame) and (plain or plain_text(frame))):
            gate(frame)
            refuse_wide_numbers(frame)
        try:
            return decode(frame)
        except (ValueError, RecursionError) as error:
            raise _malformed(error) from None

    return read


def _malformed(error: Exception) -> Malformed:
    """The library begins with `JSON is malformed: ` where it is not JSON at all; that is said already."""
    return Malformed(f"not JSON: {str(error).removeprefix('JSON is malformed: ')}")


def _plain(value: object) -> object:
    """The plain form of a subclass of a JSON type, which msgspec does not take as it is."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    refuse_object(value)


def _refuse_non_finite(value: Any) -> None:
    """Raise for a NaN or Infinity in a value that was encoded before, hence does not contain itself."""
    todo = [value]
    for item in todo:
        if isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, (list, tuple)):
            todo.extend(item)
        elif isinstance(item, float) and item - item != 0.0:
            raise ValueError("a number is NaN or infinite")


if TYPE_CHECKING:
    _conforms: Codec = MsgspecCodec()
