"""Reads the server name from a TLS ClientHello. Pure.

Bounded and strict: a message with two readings has none. A longer prefix of the same bytes never changes an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HELLO = 16 << 10
"""Bytes of a hello with its framing. Real ones have 0.2 to 2 KiB; tickets can make them larger."""

HANDSHAKE = 22
"""The first byte of every TLS connection: the type of its first record."""

_MAX_RECORD = 1 << 14
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_ECH = 0xFE0D
_RANDOM = 2 + 32


@dataclass(frozen=True, slots=True)
class Hello:
    """What a client says about where it wants to go."""

    name: str | None
    """In lower case; None: it names nobody."""
    hidden: bool = False
    """There is a second, encrypted hello inside, which may name somebody else. (Or noise that looks like one.)"""


def read_hello(data: bytes) -> Hello | str | None:
    """The hello at the beginning of `data`; text: why there is none; None: more is needed."""
    try:
        message = _message(data[:MAX_HELLO])
        if message is not None:
            return _parse(message)
    except ValueError as error:
        return str(error)
    return f"the hello has more than {MAX_HELLO:,} bytes" if len(data) >= MAX_HELLO else None


def _message(data: bytes) -> bytes | None:
    """The first handshake message, put together from its records; None: it is not complete."""
    message, at = b"", 0
    while True:
        head = data[at : at + 5]
        _check_record(head)
        size = int.from_bytes(head[3:5])
        fragment = data[at + 5 : at + 5 + size]
        if len(head) < 5 or len(fragment) < size:
            return None
        message, at = message + fragment, at + 5 + size
        if len(message) >= 4:
            whole = 4 + int.from_bytes(message[1:4])
            if message[0] != _CLIENT_HELLO or whole > MAX_HELLO or len(message) > whole:
                raise ValueError("the handshake does not begin with one hello")
            if len(message) == whole:
                return message[4:]


def _check_record(head: bytes) -> None:
    """Raises ValueError as soon as the bytes that are there show that this is no record of a handshake."""
    if head[:2] != bytes((HANDSHAKE, 3))[: len(head)]:
        raise ValueError("it is not TLS")
    if len(head) == 5 and not 0 < int.from_bytes(head[3:5]) <= _MAX_RECORD:
        raise ValueError("a record has an impossible size")


def _parse(message: bytes) -> Hello:
    parts = _Parts(message)
    parts.take(_RANDOM)
    parts.block(1)  # session
    parts.block(2)  # ciphers
    parts.block(1)  # compression
    extensions = _extensions(parts.block(2) if parts.left else b"")
    parts.end()
    name = extensions.get(_SERVER_NAME)
    return Hello(None if name is None else _name(name), _ECH in extensions)


def _extensions(block: bytes) -> dict[int, bytes]:
    parts, found = _Parts(block), dict[int, bytes]()
    while parts.left:
        kind = int.from_bytes(parts.take(2))
        if kind in found:
            raise ValueError("the hello says something twice")
        found[kind] = parts.block(2)
    return found


def _name(block: bytes) -> str:
    parts = _Parts(block)
    names = _Parts(parts.block(2))
    parts.end()
    kind, name = names.take(1), names.block(2)
    names.end()
    if kind != b"\0" or not name.isascii():
        raise ValueError("the hello asks for something that is not a name")
    return name.decode("ascii").lower()


class _Parts:
    """Bytes that are taken from the front; raises ValueError when they are not what they say."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise ValueError("a part of the hello is cut short")
        self._at += size
        return self._data[self._at - size : self._at]

    def block(self, width: int) -> bytes:
        """Bytes after a number of this width that counts them."""
        return self.take(int.from_bytes(self.take(width)))

    def end(self) -> None:
        if self.left:
            raise ValueError("a part of the hello is longer than it says")
