"""Installed plugins of an operator on the nodes of a cell.

shelf = Shelf(made, tmp_path)
shelf.install(write_kaged_plugin(tmp_path / "src", "ledger", LEDGER, tools=["put", "get", "who"]))
async with shelf.gateway(sqlite_url) as gateway, made.node("n1"):
    await gateway.host.call("ledger/put", {"value": 1})
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from plugbay.host.config.config import Config
from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.packages import keys, signature
from plugbay.packages.archive import pack, signature_path
from plugbay.packages.installer import Installer
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustedKey, TrustStore
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.settings import GatewaySettings
from tests.support.gateways import gateway_at
from tests.support.nodes import Cell
from tests.support.packaged import SIGNED_AT
from tests.support.patience import PATIENCE, until

LEDGER = """
import threading, time
waiting = {}
count = 0

def work():
    while True:
        with open(os.environ["LEDGER_FILE"], "a") as file:
            file.write(f"{os.getpid()} {time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
        time.sleep(0.01)

if "LEDGER_FILE" in os.environ:
    threading.Thread(target=work, daemon=True).start()

def tool(name, params, m):
    global count
    if name == "who":
        print("asked for my name", file=sys.stderr, flush=True)
        reply(m, {"pid": os.getpid(), "config": greeting.get("config"), "env": os.environ.get("LEDGER_ENV")})
        return
    count += 1
    waiting[count] = m
    if name == "put":
        request(count, "kaged.storage.set", key="k", value=params["value"])
    else:
        request(count, "kaged.storage.get", key="k")

def answered(m):
    reply(waiting.pop(m["id"]), {"error": m["error"]} if "error" in m else {"result": m.get("result")})
"""
"""A kaged plugin that stores a value, and writes to a file all the time, if its environment names one."""

TOOLS = ["put", "get", "who"]
STORAGE = ["kaged:storage:read", "kaged:storage:write"]


class Shelf:
    """A store of installed plugins, signed with a key that the nodes of a cell trust."""

    def __init__(self, cell: Cell, folder: Path, *names: str) -> None:
        self.cell = cell
        self.folder = folder
        self.key = Ed25519PrivateKey.generate()
        trust = TrustStore(cell.trust)
        trust.add(TrustedKey(keys.public_of(self.key), "shelf", packages=names), "keep")
        self.store = Store(folder / "store")
        self.store.create()
        self._installer = Installer(self.store, trust, lambda: SIGNED_AT)
        self._packed = 0

    def install(self, plugin: Path) -> None:
        """Pack, sign and install a plugin."""
        self._packed += 1
        place = self.folder / f"packed-{self._packed}"
        place.mkdir()
        packed = pack(plugin, place)
        signed = signature.sign(packed.package, self.key, SIGNED_AT)
        signature_path(packed.path).write_bytes(signed.to_bytes())
        with self._installer.candidate(packed.path) as candidate:
            self._installer.install(candidate)

    @asynccontextmanager
    async def gateway(
        self, url: str, plugins: dict[str, Any] | None = None, lease_seconds: float = 30.0
    ) -> AsyncIterator[Gateway]:
        """A gateway whose installed plugins run on nodes."""
        registry = f"oci://{self.cell.registry}/plugbay"
        cluster = self.cell.settings(registry=registry, public_url="http://127.0.0.1:1", lease_seconds=lease_seconds)
        data = self.folder / f"data-{len(list(self.folder.glob('data-*')))}"
        data.mkdir()
        host = Host(discover([self.store.plugins]), Config.model_validate({"plugins": plugins or {}}), unconfined=True)
        settings = GatewaySettings(data, unconfined=True, cluster=cluster, require_signature=False)
        async with gateway_at(url, data, host=host, settings=settings) as gateway:
            yield gateway


def holders(gateway: Gateway, plugin: str) -> list[str]:
    """The nodes that say that they hold the lease of a plugin, and take calls."""
    assert gateway.nodes is not None
    found = gateway.nodes.cluster.nodes()
    return [node.name for node, state in found if state == "up" and f"plugin/{plugin}" in node.beat.held]


async def held_by(gateway: Gateway, plugin: str, *names: str) -> str:
    """Wait until one of these nodes holds the lease of a plugin; returns its name."""
    await until(lambda: len(holders(gateway, plugin)) == 1 and holders(gateway, plugin)[0] in names)
    return holders(gateway, plugin)[0]


async def answered(gateway: Gateway, name: str, input: Any) -> Any:
    """The answer of a plugin, once a node takes the call."""
    begun = asyncio.get_running_loop().time()
    while True:
        result = await gateway.host.attempt(name, input, timeout=PATIENCE)
        if result.failure is None:
            return result.value()
        assert asyncio.get_running_loop().time() - begun < PATIENCE, result.failure
        await asyncio.sleep(0.05)


def intervals(path: Path) -> dict[int, tuple[float, float]]:
    """By process: when it wrote to the file first and last, by the boot clock."""
    found: dict[int, tuple[float, float]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        pid, at = line.split()
        first, _ = found.get(int(pid), (float(at), 0.0))
        found[int(pid)] = first, float(at)
    return found


def overlaps(found: dict[int, tuple[float, float]]) -> list[tuple[int, int]]:
    """The pairs of processes that were both at work at one time."""
    ordered = sorted(found.items(), key=lambda each: each[1])
    pairs = itertools.combinations(ordered, 2)
    return [(one, other) for (one, (_, end)), (other, (begin, _)) in pairs if begin <= end]
