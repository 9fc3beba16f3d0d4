"""Where a package is in a registry: `oci://host[:port]/repository[:tag][@sha256:…]`.

Owns the grammar. Pure; the digest is what counts, a tag is somebody's word for it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from plugbay.packages.errors import PackageRefused, Reason

SCHEME = "oci://"

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?P<port>:[0-9]{{1,5}})?/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
MAX_REPOSITORY = 255
"""Characters that every registry takes."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One artifact, by tag, by digest, or by both."""

    registry: str
    """Host, and port if there is one."""
    repository: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{SCHEME}{self.registry}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"

    @property
    def wanted(self) -> str:
        """What a registry is asked for."""
        return self.digest or self.tag or "latest"

    @property
    def is_local(self) -> bool:
        """Whether the registry is on this machine, where nobody listens in between."""
        return is_loopback(self.registry.rpartition(":")[0] if re.search(r":\d+$", self.registry) else self.registry)

    def pinned(self, digest: str) -> Reference:
        """The same artifact, by its digest."""
        return replace(self, digest=digest)


def is_loopback(host: str) -> bool:
    """Whether a host, by name or by address, is this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_reference(text: str) -> bool:
    """Whether this is meant to be in a registry, as opposed to a file."""
    return text.startswith(SCHEME)


def parse(text: str) -> Reference:
    """The reference in `text`; `oci://` may be left out where nothing else can be meant."""
    found = _REFERENCE.fullmatch(text.removeprefix(SCHEME))
    if found is None or len(found["repository"]) > MAX_REPOSITORY:
        hint = "it looks like oci://registry.example/acme/devkit:1.0.0, the name in lower case"
        raise PackageRefused(Reason.NOT_FOUND, f"{text!r} names nothing in a registry", hint=hint)
    return Reference(found["host"].lower() + (found["port"] or ""), found["repository"], found["tag"], found["digest"])


def tag_of(version: str) -> str:
    """A version as a tag: build metadata begins with `+`, which tags may not have."""
    tag = re.sub(r"[^A-Za-z0-9._-]", "_", version)[:128]
    return tag if re.match(r"[A-Za-z0-9_]", tag) else f"_{tag[:127]}"
