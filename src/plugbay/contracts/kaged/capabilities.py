"""Capability strings: what a plugin asks to touch, from kaged's grammar to neutral `Access` values.

    read:fs:<path>    write:fs:<path>    exec:<binary>:<path>
    net:<host>:<port>    net:<host>:*    net:*    net:[]
    kaged:storage:read    kaged:storage:write

Owns the grammar and which strings exclude each other. Textual: whether a path or a host exists is asked elsewhere, and
whether the operator grants anything is not asked at all.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterable

from plugbay.model.spec import Access

FORMS = (
    "read:fs:<path>, write:fs:<path>, exec:<binary>:<path>, net:<host>:<port>, net:<host>:*, net:*, net:[], "
    "kaged:storage:read, kaged:storage:write"
)

NO_NETWORK = "net:[]"
"""Says that nothing of the network is wanted, so nothing else of it can stand beside it."""

_FIXED = {
    "net:*": Access("network"),
    NO_NETWORK: Access("no_network"),
    "kaged:storage:read": Access("storage_read"),
    "kaged:storage:write": Access("storage_write"),
}
_PATHS = {"read:fs:": "read_path", "write:fs:": "write_path"}

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.IGNORECASE)
_MAX_HOST = 253
"""Characters of a host's name, by the rules of the domain name system."""

_PORT = re.compile(r"[1-9][0-9]{0,4}")
_MAX_PORT = 65_535


def parse_capability(text: str) -> Access | str:
    """What `text` asks for; or what is wrong with it, in words that name it."""
    if text in _FIXED:
        return _FIXED[text]
    for prefix, kind in _PATHS.items():
        if text.startswith(prefix):
            return _path(kind, text, text.removeprefix(prefix))
    if text.startswith("exec:"):
        return _program(text)
    if text.startswith("net:"):
        return _network(text)
    return f"{text!r} is no capability; there are {FORMS}"


def conflicts(capabilities: Iterable[str]) -> list[str]:
    """What is wrong with these strings beside each other."""
    network = [text for text in dict.fromkeys(capabilities) if text.startswith("net:")]
    if NO_NETWORK not in network or len(network) == 1:
        return []
    others = ", ".join(repr(text) for text in network if text != NO_NETWORK)
    return [f"{NO_NETWORK!r} says that no network is wanted, but {others} stands beside it"]


def _path(kind: str, text: str, path: str) -> Access | str:
    if not path.startswith("/"):
        return f"{text!r} needs an absolute path, got {path!r}"
    if "\0" in path or ".." in path.split("/"):
        return f"{text!r} needs a path that is what it looks like, without '..' and NUL"
    # Exactly one slash in front: POSIX, and so normpath, lets two mean something else.
    return Access(kind, posixpath.normpath("/" + path.lstrip("/")))


def _program(text: str) -> Access | str:
    """The path is what runs; the name before it is what people call it."""
    binary, _, path = text.removeprefix("exec:").partition(":")
    if not binary.strip():
        return f"{text!r} names no binary: exec:<binary>:<path>"
    if not path:
        return f"{text!r} lacks the path of the binary: exec:<binary>:<path>"
    return _path("run", text, path)


def _network(text: str) -> Access | str:
    # At the last colon: an address of IPv6 has some of its own.
    host, _, port = text.removeprefix("net:").rpartition(":")
    problem = _host_problem(host)
    if problem:
        return f"{text!r} {problem}"
    if port != "*" and not (_PORT.fullmatch(port) and int(port) <= _MAX_PORT):
        return f"{text!r} needs a port from 1 to {_MAX_PORT}, or '*' for all of them, got {port!r}"
    return Access("network", host.strip("[]").lower(), None if port == "*" else int(port))


def _host_problem(host: str) -> str | None:
    if not host:
        return "needs a host and a port: net:<host>:<port>, or net:<host>:* for all ports"
    if host.startswith("[") and host.endswith("]"):
        return None if _is_ipv6(host[1:-1]) else f"has no address of IPv6 in its brackets: {host!r}"
    if host.startswith("["):
        return "needs a port after its brackets: net:[<address>]:<port>"
    if ":" in host:
        return f"needs brackets around an address of IPv6: net:[{host}]:<port>"
    if len(host) > _MAX_HOST or not _HOST.fullmatch(host):
        return f"needs the name or the address of one host, got {host!r}"
    return None


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text
