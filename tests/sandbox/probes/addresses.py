"""Addresses that nobody is connected to, in every spelling, with every public host granted."""

from __future__ import annotations

from .egress import _get, _through
from .tools import World


def metadata(world: World) -> str | None:
    """The service that gives a virtual machine its keys."""
    return _get("169.254.169.254", world)


def metadata_by_name(world: World) -> str | None:
    return _get("metadata.test", world)


def metadata_by_number(world: World) -> str | None:
    return _get("2852039166", world)


def metadata_by_hexadecimal(world: World) -> str | None:
    return _get("0xa9.0xfe.0xa9.0xfe", world)


def metadata_by_octal(world: World) -> str | None:
    return _get("0251.0376.0251.0376", world)


def metadata_in_parts(world: World) -> str | None:
    return _get("169.254.43518", world)


def metadata_6(world: World) -> str | None:
    return _get("[fd00:ec2::254]", world)


def loopback(world: World) -> str | None:
    return _through(f"127.0.0.1:{world['inner']}", world)


def loopback_short(world: World) -> str | None:
    return _get(f"127.1:{world['inner']}", world)


def loopback_other(world: World) -> str | None:
    return _get(f"127.254.1.2:{world['inner']}", world)


def loopback_6(world: World) -> str | None:
    return _through(f"[::1]:{world['inner']}", world)


def loopback_any(world: World) -> str | None:
    return _get(f"0.0.0.0:{world['inner']}", world)


def loopback_by_name(world: World) -> str | None:
    return _get(f"inner.test:{world['inner']}", world)


def loopback_by_dot(world: World) -> str | None:
    """A name that a trailing dot makes another text, and the same name."""
    return _get(f"localhost.:{world['inner']}", world)


def mapped(world: World) -> str | None:
    return _get(f"[::ffff:127.0.0.1]:{world['inner']}", world)


def mapped_in_hexadecimal(world: World) -> str | None:
    return _get(f"[::ffff:7f00:1]:{world['inner']}", world)


def compatible(world: World) -> str | None:
    return _get(f"[::7f00:1]:{world['inner']}", world)


def translated(world: World) -> str | None:
    return _get(f"[64:ff9b::7f00:1]:{world['inner']}", world)


def six_to_four(world: World) -> str | None:
    return _get(f"[2002:7f00:1::]:{world['inner']}", world)


def with_zone(world: World) -> str | None:
    return _get(f"[fe80::1%25eth0]:{world['inner']}", world)


def private_10(world: World) -> str | None:
    return _get("10.0.0.1", world)


def private_172(world: World) -> str | None:
    return _get("172.16.0.1", world)


def private_192(world: World) -> str | None:
    return _get("192.168.0.1", world)


def carrier(world: World) -> str | None:
    return _get("100.64.0.1", world)


def private_6(world: World) -> str | None:
    return _get("[fd12:3456::1]", world)


def everybody(world: World) -> str | None:
    return _get("255.255.255.255", world)


def good_and_bad(world: World) -> str | None:
    """A name with a public address and one of this machine."""
    return _get(f"mixed.test:{world['inner']}", world)
