"""Messages for the kernel that have connections within a plugin's network namespace arrive at one socket. Pure.

Three settings, all inside the namespace. A route makes every address local, so that a connection goes somewhere at all.
A rule of nf_tables (`tproxy`) hands each TCP connection to the socket that listens on one port and leaves the
destination as it is: `getsockname` of the accepted connection tells it. An address that is not a loopback one lets
resolvers see that there is IPv4. Nothing is tracked and nothing is rewritten, so a plugin cannot fill a table of the
kernel. Loopback within the plugin stays its own, except for the granted loopback endpoints.

Constants and layouts are those of <linux/rtnetlink.h> and <linux/netfilter/nf_tables.h>.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import AF_INET, AF_INET6
from typing import NamedTuple

ROUTE, NETFILTER = 0, 12
"""Netlink protocols."""
LOOPBACK_INDEX = 1
"""Of the interface `lo`, the first one of every namespace."""
OWN_ADDRESS = IPv4Address("198.18.0.1")
OWN_PREFIX = 15
"""The range for benchmarks, which no plugin is ever connected to: its addresses stand for names inside."""

_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_NESTED = 0x8000


class Batch(NamedTuple):
    """Messages that are sent together."""

    protocol: int
    data: bytes
    replies: int
    """Messages that are acknowledged."""
    required: bool = True
    """False: the network works without it."""


def forwarding(port: int, loopback: Iterable[tuple[str, int]]) -> tuple[Batch, ...]:
    """The settings that lead connections to this port: all but those to loopback, and these loopback endpoints."""
    endpoints = [(ip_address(host), number) for host, number in loopback]
    return (
        Batch(NETFILTER, *_rules(port, endpoints)),
        Batch(ROUTE, _own_address(), 1),
        Batch(ROUTE, _all_local(AF_INET), 1),
        Batch(ROUTE, _all_local(AF_INET6), 1, required=False),
    )


def _message(kind: int, flags: int, body: bytes, number: int = 1) -> bytes:
    return _padded(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, number, 0) + body)


def _attribute(kind: int, value: bytes) -> bytes:
    return _padded(struct.pack("=HH", 4 + len(value), kind) + value)


def _nest(kind: int, *attributes: bytes) -> bytes:
    return _attribute(kind | _NESTED, b"".join(attributes))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


# Routes and addresses.

_NEWADDR, _NEWROUTE = 20, 24
_IFA_ADDRESS, _IFA_LOCAL, _RTA_OIF = 1, 2, 4
_TABLE_LOCAL, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 255, 4, 254, 2


def _own_address() -> bytes:
    head = struct.pack("=BBBBI", AF_INET, OWN_PREFIX, 0, 0, LOOPBACK_INDEX)
    own = OWN_ADDRESS.packed
    return _message(_NEWADDR, _ACK | _CREATE, head + _attribute(_IFA_ADDRESS, own) + _attribute(_IFA_LOCAL, own))


def _all_local(family: int) -> bytes:
    """The route `local default dev lo`."""
    words = (family, 0, 0, 0, _TABLE_LOCAL, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0)
    head = struct.pack("=BBBBBBBBI", *words)
    return _message(_NEWROUTE, _ACK | _CREATE, head + _attribute(_RTA_OIF, struct.pack("=i", LOOPBACK_INDEX)))


# Rules.

_BATCH_BEGIN, _BATCH_END, _NFTABLES = 16, 17, 10
_NEWTABLE, _NEWCHAIN, _NEWRULE = 0, 3, 6
_INET = 1
_PREROUTING, _BEFORE_ROUTING = 0, -150
_NFPROTO, _L4PROTO = 15, 16
_EQUAL, _UNEQUAL = 0, 1
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_REGISTER = 8
_TCP = 6
_TABLE = _CHAIN = b"plugbay\0"
_DESTINATION = {4: 16, 6: 24}
"""Where the destination is in a header of IP."""
_NFPROTO_OF = {4: 2, 6: 10}

Address = IPv4Address | IPv6Address


def _rules(port: int, endpoints: Iterable[tuple[Address, int]]) -> tuple[bytes, int]:
    """One transaction: a table with one chain, and its rules; and the number of acknowledged messages."""
    hook = _nest(4, _attribute(1, _number(_PREROUTING)), _attribute(2, struct.pack(">i", _BEFORE_ROUTING)))
    bodies = [
        (_NEWTABLE, _attribute(1, _TABLE)),
        (_NEWCHAIN, _attribute(1, _TABLE) + _attribute(3, _CHAIN) + hook + _attribute(7, b"filter\0")),
        *((_NEWRULE, _rule(*_to_endpoint(address, number), *_accept_at(port))) for address, number in endpoints),
        (
            _NEWRULE,
            _rule(*_is_tcp(4), _payload(_NETWORK_HEADER, _DESTINATION[4], 1), _is_not(b"\x7f"), *_accept_at(port)),
        ),
        (
            _NEWRULE,
            _rule(
                *_is_tcp(6),
                _payload(_NETWORK_HEADER, _DESTINATION[6], 16),
                _is_not(IPv6Address("::1").packed),
                *_accept_at(port),
            ),
        ),
    ]
    begin, end = (_message(kind, 0, struct.pack(">BBH", 0, 0, _NFTABLES)) for kind in (_BATCH_BEGIN, _BATCH_END))
    family = struct.pack(">BBH", _INET, 0, 0)
    messages = [
        _message(_NFTABLES << 8 | kind, _ACK | _CREATE | (_APPEND if kind == _NEWRULE else 0), family + body, number)
        for number, (kind, body) in enumerate(bodies, 1)
    ]
    return begin + b"".join(messages) + end, len(messages)


def _rule(*expressions: bytes) -> bytes:
    return _attribute(1, _TABLE) + _attribute(2, _CHAIN) + _nest(4, *expressions)


def _is_tcp(version: int) -> tuple[bytes, ...]:
    return _meta(_NFPROTO), _is(bytes((_NFPROTO_OF[version],))), _meta(_L4PROTO), _is(bytes((_TCP,)))


def _to_endpoint(address: Address, port: int) -> tuple[bytes, ...]:
    where = _payload(_NETWORK_HEADER, _DESTINATION[address.version], len(address.packed))
    at_port = _payload(_TRANSPORT_HEADER, 2, 2), _is(struct.pack(">H", port))
    return *_is_tcp(address.version), where, _is(address.packed), *at_port


def _accept_at(port: int) -> tuple[bytes, bytes]:
    """The port into the register, and the connection to the socket that listens there."""
    value = _attribute(1, _number(_REGISTER)) + _nest(2, _attribute(1, struct.pack(">H", port)))
    return _expression(b"immediate\0", value), _expression(
        b"tproxy\0", _attribute(1, _number(0)) + _attribute(3, _number(_REGISTER))
    )


def _meta(key: int) -> bytes:
    return _expression(b"meta\0", _attribute(2, _number(key)) + _attribute(1, _number(_REGISTER)))


def _payload(header: int, at: int, size: int) -> bytes:
    fields = (_REGISTER, header, at, size)
    return _expression(b"payload\0", b"".join(_attribute(kind, _number(n)) for kind, n in enumerate(fields, 1)))


def _is(value: bytes) -> bytes:
    return _compare(_EQUAL, value)


def _is_not(value: bytes) -> bytes:
    return _compare(_UNEQUAL, value)


def _compare(operation: int, value: bytes) -> bytes:
    words = _attribute(1, _number(_REGISTER)) + _attribute(2, _number(operation))
    return _expression(b"cmp\0", words + _nest(3, _attribute(1, value)))


def _expression(name: bytes, words: bytes) -> bytes:
    return _nest(1, _attribute(1, name), _attribute(2 | _NESTED, words))


def _number(value: int) -> bytes:
    return struct.pack(">I", value)
