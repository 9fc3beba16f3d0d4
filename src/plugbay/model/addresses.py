"""Network addresses for plugins: valid host names, public addresses, and the targets that a grant covers.

Owns the table of addresses that plugins never reach. Names are resolved elsewhere, and every resolved address is
checked here. An ambiguous spelling is refused: all callers use this one parser.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugbay.model.spec import Access

MAX_NAME = 253
"""Characters of a host name, as the DNS has it."""

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

Address = IPv4Address | IPv6Address

_DENIED_TEXT = """
    0.0.0.0/8           this network
    10.0.0.0/8          private
    100.64.0.0/10       shared by a carrier's customers
    127.0.0.0/8         loopback
    168.63.129.16/32    cloud metadata
    169.254.0.0/16      link-local, where cloud metadata lives
    172.16.0.0/12       private
    192.0.0.0/24        protocol assignments
    192.0.2.0/24        documentation
    192.88.99.0/24      6to4 relays
    192.168.0.0/16      private
    198.18.0.0/15       benchmarks
    198.51.100.0/24     documentation
    203.0.113.0/24      documentation
    224.0.0.0/4         multicast
    240.0.0.0/4         reserved
    ::1/128             loopback
    ::/96               unspecified, or an IPv4 address in a form that is out of use
    ::ffff:0:0:0/96     translation to IPv4
    64:ff9b:1::/48      local translation to IPv4
    100::/64            discarded
    2001::/23           protocol assignments and tunnels
    2001:db8::/32       documentation
    3fff::/20           documentation
    5f00::/16           segment routing
    fc00::/7            private
    fe80::/10           link-local
    fec0::/10           private, in a form that is out of use
    ff00::/8            multicast
"""
DENIED: tuple[tuple[IPv4Network | IPv6Network, str], ...] = tuple(
    (ip_network(words[0]), words[1]) for words in (line.split(None, 1) for line in _DENIED_TEXT.strip().splitlines())
)
"""The ranges that are never connected to, each with its purpose. The first match is the reason."""

PRIVATE = frozenset({"private", "loopback", "shared by a carrier's customers"})
"""Purposes of ranges that an operator may allow for a name. Metadata services are in none of them."""

_GLOBAL = IPv6Network("2000::/3")
"""The allocated part of IPv6; other addresses have unknown owners, and private networks use some."""
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


def clean_host(text: str) -> str | None:
    """The host as it is compared and resolved: a lower-case name, or the one usual form of an address. None: neither.

    Resolvers read `127.1`, `0x7f.1` and `2130706433` as addresses, so a name whose last label is a number is none.
    """
    host = text.lower()
    if ":" in host:
        address = _address(host)
        if isinstance(address, IPv6Address) and address in _MAPPED:  # which Python writes as hex before 3.13
            return f"::ffff:{address.ipv4_mapped}"
        return None if address is None else str(address)
    if len(host) > MAX_NAME or not _NAME.fullmatch(host):
        return None
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return host if _address(host) is not None else None
    return host


def is_address(host: str) -> bool:
    """Whether a clean host is an address and not a name."""
    return _address(host) is not None


def is_loopback(host: str) -> bool:
    """Whether a clean host is an address of the machine's loopback."""
    address = _address(host)
    return address is not None and address.is_loopback


def denied(text: str) -> str | None:
    """Why this address must not be connected to; None when it is public. Text that is not an address is not public."""
    address = _address(text)
    if address is None:
        return "not an address"
    for form in (address, *_inside(address)):
        for network, why in DENIED:
            if form.version == network.version and form in network:
                return why if form is address else f"{form}: {why}"
    is_open = address.version == 4 or any(address in network for network in (_GLOBAL, _MAPPED, _NAT64))
    return None if is_open else "not given out"


def closed(
    found: Iterable[str], port: int, opened: Collection[str], ours: Collection[str] = (), *, private: bool = False
) -> tuple[str, str] | None:
    """The first of a host's addresses that must not be connected to, and why; None when all are allowed.

    One of them is enough to refuse the host: DNS may be used to bypass the check. `opened` has each `address:port`
    that the operator allows nevertheless, `ours` the addresses of this machine, whose services trust local peers. With
    `private`, the operator allows this name on loopback and in private networks, and nowhere else.
    """
    for address in found:
        why = denied(address) or ("this machine" if address in ours else None)
        if why is not None and not (private and why in PRIVATE) and pair(address, port) not in opened:
            return address, why
    return None


def covered(access: Iterable[Access], host: str, port: int) -> bool:
    """Whether a grant of the network covers this clean host and port."""
    grants = [item for item in access if item.kind == "network"]
    return any(item.target.lower() in ("", host) and item.port in (None, port) for item in grants)


def pair_problem(text: str) -> str | None:
    """Why `text` does not name one address and one port, as `127.0.0.1:8080` and `[::1]:8080` do."""
    host, colon, port = text.rpartition(":")
    plain = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    address = _address(plain)
    if not colon or address is None or not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
        return "must be an address and a port, like 127.0.0.1:8080 or [::1]:8080"
    usual = pair(str(address), int(port))
    return None if text == usual else f"must be written {usual}"


def pair(address: str, port: int) -> str:
    """An address and a port, as one writes them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _address(text: str) -> Address | None:
    """An address without a zone, in any form of IPv6 and the one strict form of IPv4."""
    try:
        return IPv6Address(text) if ":" in text and "%" not in text else IPv4Address(text)
    except ValueError:
        return None


def _inside(address: Address) -> list[IPv4Address]:
    """The IPv4 addresses that packets to this IPv6 address end up at."""
    if isinstance(address, IPv4Address):
        return []
    number = int(address)
    last, inside = IPv4Address(number & 0xFFFF_FFFF), []
    if address in _MAPPED or address in _NAT64 or (number >> 32) & 0xFFFF_FFFF in _ISATAP:
        inside.append(last)
    if address in _6TO4:
        inside.append(IPv4Address((number >> 80) & 0xFFFF_FFFF))
    return inside
