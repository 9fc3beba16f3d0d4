"""Where a plugin may connect to, and why not. Pure: names are resolved elsewhere, and every answer is judged here.

Owns the decision and its words. What is said to the plugin never holds an address that it did not name itself: what a
private name stands for is the operator's business, and is in the `Verdict` that the operator sees.

Known limits. Inside TLS nobody sees which site a request names: a server that serves granted and other sites under one
certificate can be asked for any of them (domain fronting), and only the first hello of a connection is looked at. With
`Reach.ANY` a tunnel is not looked into at all, for every name may be reached anyway, and each name that a plugin has
resolved can carry some bytes to the name's owner.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from plugbay.model import addresses
from plugbay.process.sandbox.egress.client_hello import Hello
from plugbay.process.sandbox.policy import Network, Reach

TLS_PORT = 443
"""Where a tunnel must begin with TLS. On other ports what begins as TLS is checked alike, and all else passes."""


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
    allowed: bool
    why: str = ""
    """Of a refusal."""
    address: str = ""
    """Where the connection went, or the address that was the reason for the refusal."""


def check_grant(network: Network, host: str, port: int) -> Refusal | None:
    """Why this clean host and port may not be asked for, whatever its addresses are."""
    if network.reach is Reach.ANY:
        return None
    doors = network.doors if network.reach is Reach.LISTED else ()
    if any(door.leads_to(host, port) for door in doors):
        return None
    where = addresses.pair(host, port)
    why = f"the network is not granted for {host}, port {port}"
    key = network.key_to(host, port)
    opener = (
        f'add "{where}" to network in the plugin\'s sandbox settings in plugbay.toml' if key is None else f"grant {key}"
    )
    return Refusal(403, f"{why}; {opener}")


def check_address(
    network: Network, host: str, port: int, found: Sequence[str], ours: Collection[str]
) -> Refusal | None:
    """Why none of a host's addresses may be reached: a single bad one is enough, for then somebody plays tricks.

    `ours` are the addresses of this machine, whose services trust what comes from here.
    """
    closed = addresses.closed(found, port, network.private, ours)
    if closed is None:
        return None if found else Refusal(502, f"{host} has no address")
    address, why = closed
    kind = why.rpartition(": ")[2]  # without the address that another one contains
    text = f"{host} is at an address that no plugin is connected to ({kind})"
    return Refusal(
        403,
        f"{text}; the operator can open an address and port with allow_private in [network] of plugbay.toml",
        address,
    )


def check_server_name(hello: Hello, host: str) -> Refusal | None:
    """Why a tunnel to `host` may not begin with this hello."""
    if hello.hidden:
        return Refusal(403, f"the tunnel to {host} hides which name it asks for (encrypted client hello)")
    if addresses.is_address(host):
        return None if hello.name is None else Refusal(403, f"the tunnel to {host} asks for a name by TLS")
    if hello.name == host:
        return None
    asked = "no name" if hello.name is None else "another name"
    return Refusal(403, f"the tunnel to {host} asks for {asked} by TLS; it must ask for {host}")
