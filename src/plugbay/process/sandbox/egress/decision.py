"""Decides where a plugin may connect to, by host, addresses and the server name of a TLS ClientHello. Pure.

Names are resolved elsewhere; every address is checked here. The text for the plugin never contains an address that the
plugin did not name itself: the address of a private name is in the `Decision` for the operator. The reader of the hello
is bounded and strict: a message with two readings is refused, and a longer prefix of the same bytes never changes an
answer.

Known limits. TLS hides which site a request names: a server with granted and other sites under one certificate can be
asked for any of them (domain fronting), and only the first hello of a connection is read. With `Reach.ANY` tunnels are
not read at all, because every name may be reached, and each name that a plugin resolves can carry some bytes to the
name's owner.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from plugbay.model import addresses
from plugbay.process.sandbox.policy import Network

TLS_PORT = 443
"""Where a tunnel must begin with TLS. On other ports TLS is checked alike, and other bytes pass."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request goes nowhere: printable words, and the HTTP status that goes with them."""

    status: int
    why: str
    address: str = ""
    """The address that is the reason; for the operator alone."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision, for the operator. Holds no character that a terminal or a log would obey."""

    label: str
    host: str
    """Empty when the request could not be read."""
    port: int
    """0: a name was asked for, or the request could not be read."""
    allowed: bool
    why: str = ""
    """Of a refusal."""
    address: str = ""
    """Where the connection went, or the address that was the reason for the refusal."""

    def __str__(self) -> str:
        where = addresses.pair(self.host, self.port) if self.port else self.host
        verdict = "connected" if self.allowed else self.why
        return "".join((f"{where}: " if where else "", verdict, f" ({self.address})" if self.address else ""))


def check_grant(network: Network, host: str, port: int) -> Refusal | None:
    """Why this clean host and port may not be asked for, whatever its addresses are."""
    if network.allows(host, port):
        return None
    why = f"the network is not granted for {host}, port {port}"
    return _not_granted(network, host, port, why, addresses.pair(host, port))


def check_name(network: Network, host: str) -> Refusal | None:
    """Why this name may not be resolved: no port of it is granted."""
    if network.allows(host, None):
        return None
    return _not_granted(network, host, None, f"the network is not granted for {host}", f"{host}:PORT")


def _not_granted(network: Network, host: str, port: int | None, why: str, setting: str) -> Refusal:
    key = network.missing_grant(host, port)
    in_settings = f'add "{setting}" to network in the plugin\'s sandbox settings in plugbay.toml'
    return Refusal(403, f"{why}; {in_settings if key is None else f'grant {key}'}")


def check_address(
    network: Network, host: str, port: int, found: Sequence[str], ours: Collection[str]
) -> Refusal | None:
    """Why none of a host's addresses may be reached: one bad address is enough, because it suggests an attack.

    `ours` are the addresses of this machine, whose services trust connections from here.
    """
    closed = addresses.closed(found, port, network.private, ours)
    if closed is None:
        return None if found else Refusal(502, f"{host} has no address")
    address, why = closed
    kind = why.rpartition(": ")[2]  # without the address that another one contains
    text = f"{host} is at an address that plugins may not reach ({kind})"
    return Refusal(
        403,
        f"{text}; the operator can allow an address and port with allow_private in [network] of plugbay.toml",
        address,
    )


def check_server_name(hello: Hello, host: str) -> Refusal | None:
    """Why a tunnel to `host` may not begin with this hello."""
    if hello.hidden:
        return Refusal(403, f"the tunnel to {host} hides its server name (encrypted client hello)")
    if addresses.is_address(host):
        return None if hello.name is None else Refusal(403, f"the tunnel to {host} sends a server name by TLS")
    if hello.name == host:
        return None
    asked = "no name" if hello.name is None else "another name"
    return Refusal(403, f"the tunnel to {host} sends {asked} as its TLS server name; it must be {host}")


# The server name of a TLS connection.

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
    """The server that a client names."""

    name: str | None
    """In lower case; None: no name."""
    hidden: bool = False
    """There is a second, encrypted hello inside, which may name another server (or random bytes that look like one)."""


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
    """Raises ValueError as soon as the bytes that are there show that this is not a record of a handshake."""
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
            raise ValueError("the hello contains an extension twice")
        found[kind] = parts.block(2)
    return found


def _name(block: bytes) -> str:
    parts = _Parts(block)
    names = _Parts(parts.block(2))
    parts.end()
    kind, name = names.take(1), names.block(2)
    names.end()
    if kind != b"\0" or not name.isascii():
        raise ValueError("the server name in the hello is invalid")
    return name.decode("ascii").lower()


class _Parts:
    """Bytes that are taken from the front; raises ValueError if their lengths are wrong."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise ValueError("a part of the hello is truncated")
        self._at += size
        return self._data[self._at - size : self._at]

    def block(self, width: int) -> bytes:
        """Bytes after a number of this width that counts them."""
        return self.take(int.from_bytes(self.take(width)))

    def end(self) -> None:
        if self.left:
            raise ValueError("a part of the hello is longer than it says")
