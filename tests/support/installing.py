"""A gateway that serves a store of installed plugins, and a publisher whom it trusts.

bench = Bench(tmp_path)
async with store_served(sqlite_url, bench) as gateway:
    kept = await offer(gateway, bench.release("1.0.0"))
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from plugbay.host.config.config import Config
from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.packages.archive import signature_path
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.installed_plugins import Changed, KeptPackage
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.settings import GatewaySettings
from tests.packages.builders import PLUGIN, Bench
from tests.support.gateways import gateway_at

PATIENT = {"launch": 20, "handshake": 20, "call": 20, "teardown": 20}


@asynccontextmanager
async def store_served(
    url: str, bench: Bench, *, clock: Clock | None = None, config: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Gateway]:
    """A running gateway with the folder of the bench as its data, and with the plugins of its store."""
    bench.store.create()
    folder = bench.store.plugins
    plugins = {"plugins": {PLUGIN: {"timeouts": PATIENT}}}
    host = Host(discover([folder]), Config.model_validate(plugins | (config or {})), unconfined=True)
    given = {"folders": (folder,), "config_file": bench.root / "plugbay.toml", **settings}
    async with gateway_at(
        url, bench.root, clock=clock, host=host, settings=GatewaySettings(bench.root, **given)
    ) as made:
        yield made


def signature_of(package: Path) -> bytes | None:
    """The signature beside an archive."""
    beside = signature_path(package)
    return beside.read_bytes() if beside.exists() else None


async def offer(gateway: Gateway, package: Path) -> KeptPackage:
    """A package that waits for the operator's consent."""
    return await gateway.installed_plugins.offer(OPERATOR, package, signature_of(package))


async def install(gateway: Gateway, package: Path) -> Changed:
    """A package as the operator installs it: looked at, then installed as it was shown."""
    kept, look = await gateway.installed_plugins.look(OPERATOR, (await offer(gateway, package)).id)
    before = "" if look.before is None else look.before.current.digest
    return await gateway.installed_plugins.install(OPERATOR, kept.id, look.digest, before)


async def version_of(gateway: Gateway) -> str:
    """The version that the running plugin says it has."""
    return str((await gateway.host.call(f"{PLUGIN}/t", {}))["version"])
