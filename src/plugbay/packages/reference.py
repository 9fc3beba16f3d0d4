"""Reference to a package in a registry: `oci://host[:port]/repository[:tag][@sha256:…]`; and the registries that the
operator allows more.

Pure. The digest is authoritative; a tag may move.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from plugbay.model.addresses import pair
from plugbay.packages.errors import PackageRefused, Reason

if TYPE_CHECKING:
    from plugbay.host.config.sections import RegistryConfig

SCHEME = "oci://"

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?P<port>:[0-9]{{1,5}})?/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
MAX_REPOSITORY = 255
"""Characters that every registry accepts."""


USUAL_PORTS = (80, 443)
"""Ports that a name of a registry need not have."""


class Registries(msgspec.Struct, frozen=True):
    """Exceptions that the operator makes for registries by name: `host:port`, or `host` at the usual ports."""

    private: frozenset[str] = frozenset()
    """May be on this machine or a private network."""
    plain_http: frozenset[str] = frozenset()
    """Are asked without TLS."""

    @classmethod
    def of(cls, sections: Mapping[str, RegistryConfig]) -> Registries:
        """The sections `[registries."…"]` of plugbay.toml."""
        private = frozenset(name for name, section in sections.items() if section.private)
        return cls(private, frozenset(name for name, section in sections.items() if section.plain_http))


def is_named(names: Collection[str], host: str, port: int) -> bool:
    """Whether a host at a port is one of these names."""
    return pair(host, port) in names or (port in USUAL_PORTS and pair(host, port).rpartition(":")[0] in names)


class Reference(msgspec.Struct, frozen=True):
    """One artifact, by tag, digest, or both."""

    registry: str
    """Host, with port if given."""
    repository: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{SCHEME}{self.registry}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"

    @property
    def wanted(self) -> str:
        """The digest, or else the tag, to request."""
        return self.digest or self.tag or "latest"

    @property
    def is_local(self) -> bool:
        """Whether the registry is on loopback, where TLS is not needed."""
        return is_loopback(self.registry.rpartition(":")[0] if re.search(r":\d+$", self.registry) else self.registry)

    def pinned(self, digest: str) -> Reference:
        """The same artifact by digest."""
        return replace(self, digest=digest)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is loopback."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_reference(text: str) -> bool:
    """Whether the text is a reference, not a file name."""
    return text.startswith(SCHEME)


def parse(text: str) -> Reference:
    """Parse a reference; `oci://` may be omitted."""
    found = _REFERENCE.fullmatch(text.removeprefix(SCHEME))
    if found is None or len(found["repository"]) > MAX_REPOSITORY:
        hint = "write it like oci://registry.example/acme/devkit:1.0.0, with a lower-case name"
        raise PackageRefused(Reason.NOT_FOUND, f"{text!r} is not a reference to a package in a registry", hint=hint)
    return Reference(found["host"].lower() + (found["port"] or ""), found["repository"], found["tag"], found["digest"])


def tag_of(version: str) -> str:
    """The tag for a version: `+` is not allowed in tags."""
    tag = re.sub(r"[^A-Za-z0-9._-]", "_", version)[:128]
    return tag if re.match(r"[A-Za-z0-9_]", tag) else f"_{tag[:127]}"
