"""The name service inside a plugin's network: reads a question, writes an answer, and keeps the names. Pure.

A granted name is answered with an address that stands for it inside the plugin's network and exists nowhere else. So
the host knows for each connection which name was meant, and the plugin learns no address of the host's network. A
question in a form that a resolver does not send gets no answer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from plugbay.process.sandbox.egress.netlink import OWN_ADDRESS

MAX_QUERY = 1232
"""Bytes of one question; real ones have 30 to 100."""
MAX_NAMES = 4096
"""Names of one plugin that have an address at a time; the one that was asked for the longest ago loses it first."""
TTL = 60
"""Seconds for which the plugin may keep an answer."""

NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3
IPV4 = 1
"""The type of a question for addresses of IPv4; other types of a granted name have no records."""

_HEAD = struct.Struct(">HHHHHH")
_IN = 1
_RESPONSE, _RECURSION = 0x8000, 0x0180
_NOT_A_PLAIN_QUERY = 0xFA00
"""Bits that are set in an answer, in other kinds of questions, and in a part of one."""
_POINTER_TO_NAME = 0xC000 | _HEAD.size


@dataclass(frozen=True, slots=True)
class Query:
    """One question."""

    number: int
    name: str
    """As it was sent, in ASCII, without the dot at the end; it may still be no name of a host."""
    kind: int
    question: bytes

    def answer(self, code: int, address: str | None = None) -> bytes:
        """The answer: a code, and an address if there is one."""
        head = _HEAD.pack(self.number, _RESPONSE | _RECURSION | code, 1, int(address is not None), 0, 0)
        if address is None:
            return head + self.question
        record = struct.pack(">HHHIH", _POINTER_TO_NAME, IPV4, _IN, TTL, 4)
        return head + self.question + record + IPv4Address(address).packed


def read_query(data: bytes) -> Query | None:
    """The question in a datagram; None: it is not one plain question."""
    if not _HEAD.size < len(data) <= MAX_QUERY:
        return None
    number, flags, questions, answers, authorities, _ = _HEAD.unpack_from(data)
    if flags & _NOT_A_PLAIN_QUERY or (questions, answers, authorities) != (1, 0, 0):
        return None
    labels, at = list[bytes](), _HEAD.size
    while at < len(data) and 0 < data[at] < 64:
        labels.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    end = at + 5
    if not labels or end > len(data) or data[at] != 0 or at - _HEAD.size > 254:
        return None
    kind, scope = struct.unpack_from(">HH", data, at + 1)
    name = b".".join(labels)
    if scope != _IN or not name.isascii():
        return None
    return Query(number, name.decode("ascii"), kind, data[_HEAD.size : end])


class Names:
    """Which name each address stands for, and the addresses that the host found for the name."""

    __slots__ = ("_address_of", "_next", "_pinned")

    def __init__(self) -> None:
        self._address_of: dict[str, str] = {}
        self._pinned: dict[str, tuple[str, list[str]]] = {}
        self._next = OWN_ADDRESS + 1

    def pin(self, name: str, found: list[str]) -> str:
        """The address that stands for this name from now on, with the addresses that it was found to have."""
        address = self._address_of.pop(name, None) or self._unused()
        self._address_of[name] = address  # again at the end: the first one is the oldest
        self._pinned[address] = (name, found)
        return address

    def find(self, address: str) -> tuple[str, list[str]] | None:
        """The name that an address stands for, and the addresses of the name."""
        return self._pinned.get(address)

    def _unused(self) -> str:
        if len(self._address_of) >= MAX_NAMES:
            return self._address_of.pop(next(iter(self._address_of)))
        address = str(self._next)
        self._next += 1
        return address
