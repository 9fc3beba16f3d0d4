"""`Reach`: the network and the scratch directories that a binding of a package leaves its plugin.

A reach is enforced by the sandbox of a process, so a host of packages serves one reach. Gateways and nodes narrow the
manifest in the same way.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from plugbay.host.config.config import Config, NetworkConfig
from plugbay.host.discovery.folders import Found
from plugbay.model.addresses import clean_host, is_address
from plugbay.model.spec import Access, PluginSpec

NETWORK, SCRATCH = "network", "scratch"
PORTS = {"http": 80, "https": 443}

LOOPBACK = "127.0.0.1"


class Reach(NamedTuple):
    """The access that the sandbox of a plugin leaves it, beyond its own package."""

    domains: tuple[str, ...] | None = None
    """Network hosts: None is all, empty is none."""
    scratch: bool = True
    """Whether it may have scratch directories."""


def package_config(config: Config, base_url: str | None) -> Config:
    """The operator's config for package hosts: without the host's own services, and with access to the gateway."""
    endpoint = None if base_url is None else _gateway_endpoint(base_url)
    private = [*config.network.allow_private]
    if endpoint is not None and is_address(endpoint[0]):
        private.append(f"[{endpoint[0]}]:{endpoint[1]}" if ":" in endpoint[0] else f"{endpoint[0]}:{endpoint[1]}")
    update: dict[str, Any] = {
        "network": NetworkConfig(allow_private=private),
        "memory": None,
        "agents": {},
        "broker": None,
    }
    return config.model_copy(update=update)


def narrow_access(found: Found, reach: Reach, base_url: str | None) -> Found:
    """The plugin with its access narrowed to this reach."""
    assert found.spec is not None
    spec = found.spec
    if not reach.scratch:
        spec = replace(spec, access=tuple(item for item in spec.access if item.kind != SCRATCH))
        found = replace(found, spec=spec)
    if reach.domains is None or not any(item.kind == NETWORK for item in spec.access):
        return found
    others = tuple(item for item in spec.access if item.kind != NETWORK)
    return replace(found, spec=replace(spec, access=(*others, *_network_access(spec, reach.domains, base_url))))


def _network_access(spec: PluginSpec, domains: tuple[str, ...], base_url: str | None) -> list[Access]:
    """Network access to these hosts, and to the gateway."""
    capability = next(item.capability for item in spec.access if item.kind == NETWORK)
    access = [Access(NETWORK, domain, capability=capability) for domain in domains]
    endpoint = None if base_url is None or not domains else _gateway_endpoint(base_url)
    if endpoint is not None:
        access.append(Access(NETWORK, endpoint[0], endpoint[1], capability))
    return access


def _gateway_endpoint(base_url: str) -> tuple[str, int] | None:
    """Host and port of a URL."""
    parts = urlsplit(base_url)
    host = clean_host(parts.hostname or "")
    if host is None:
        return None
    return LOOPBACK if host == "localhost" else host, parts.port or PORTS.get(parts.scheme, 80)
