"""A node for the comparison `nodes`: its packages are folders of this checkout. Also a bare responder, for the floor.

python -m bench.children.node node URL [NAME PLACES SECONDS] | bare URL

SECONDS is the pause of the plugin `nexo_sleep` on this node.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import uvloop

from bench.harness import CHILDREN

SUBJECT = "bench.echo"


async def node(url: str, folder: Path, name: str = "n1", places: str = "256", seconds: str = "") -> None:
    """Serve until it is killed."""
    from plugbay.cluster.envelope import Package
    from plugbay.cluster.hosts import NodeHosts
    from plugbay.cluster.node import NodeServer
    from plugbay.cluster.releases import NodeReleases
    from plugbay.host.config.config import Config
    from plugbay.host.config.sections import ClusterConfig
    from plugbay.host.discovery.folders import Found, inspect
    from plugbay.host.garbage import collect_rarely

    class Checkout(NodeReleases):
        def __init__(self) -> None:
            """Nothing is pulled."""

        async def load(self, package: Package) -> Found:
            found = folder / package.source
            if not found.exists():
                shutil.copytree(CHILDREN / package.source, found)
                manifest = found / "nexo-plugin.toml"
                manifest.write_text(manifest.read_text().replace('"0.02"', f'"{seconds}"'))
            return inspect(found)

    hosts = NodeHosts(Checkout(), Config.default(), folder, None, unconfined=True)
    server = NodeServer(ClusterConfig(nats=[url]), {}, name, hosts, places=int(places))
    await server.start()
    await server.wire.joined()
    collect_rarely()
    print("ready", flush=True)
    await asyncio.Event().wait()


async def bare(url: str) -> None:
    """Answer requests with their own data."""
    import nats

    client = await nats.connect(url)

    async def answer(message: object) -> None:
        await message.respond(message.data)  # type: ignore[attr-defined]

    await client.subscribe(SUBJECT, cb=answer)
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    kind, url, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(node(url, Path(folder), *more) if kind == "node" else bare(url))


if __name__ == "__main__":
    main()
