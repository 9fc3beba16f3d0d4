"""`nodes`: a call of a plugin on a node, beside a bare NATS request and the same plugin on this machine.

Caller, NATS server, node and plugin are processes of one machine, so the figures are costs, not distances. A remote
call is `Host.call`: name, policy, schema, record, and then seal, NATS, node, plugin and back.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from bench.calls import IN_FLIGHT, measure
from bench.children.node import SUBJECT
from bench.harness import (
    CHILDREN,
    PAYLOAD,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Sample,
    interleave,
    missing,
    serve,
    started,
)

NAME = "nodes"
TITLE = "A tool on a node, over NATS: 100 bytes"
PROGRAM = shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin") or "/usr/sbin/nats-server"
PLUGIN = "nexo_fast"


def run(options: Options) -> Comparison:
    """All contenders, round by round."""
    params = {"calls": options.size(2_000, 500), "burst": options.size(10_000, 2_560)}
    entries = [
        Entry("bare", "bare NATS request and reply", params, needs=PROGRAM),
        Entry("local", "plugbay.Host, plugin here", params, needs="uvloop"),
        Entry("remote", "plugbay.Host, plugin on a node", params, needs=PROGRAM),
    ]
    rounds = interleave("bench.nodes_bench", entries, options)
    columns = [
        Column("p50_us", "p50 us"),
        Column("p99_us", "p99 us"),
        Column("cpu_us", "caller CPU us/call"),
        Column("calls_per_s", f"calls/s, {IN_FLIGHT} in flight", digits=0),
        Column("burst_cpu_us", f"caller CPU us/call, {IN_FLIGHT} in flight", digits=2),
    ]
    findings = [
        Finding("p50 of a remote call : bare NATS", rounds.ratio("remote", "bare", "p50_us"), at_most=2.8),
        Finding("calls/s of remote calls : bare NATS", rounds.ratio("remote", "bare", "calls_per_s"), at_least=0.5),
        Finding("p50 of a remote call : local call", rounds.ratio("remote", "local", "p50_us")),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


def _on_uvloop(main: Callable[[], Coroutine[Any, Any, Sample]]) -> Sample:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


@contextmanager
def nats_server() -> Iterator[tuple[str, int]]:
    """The URL and the pid of a NATS server."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "nats.conf"
        config.write_text(f'host: 127.0.0.1\nport: -1\nports_file_dir: "{folder}"\n')
        with started([PROGRAM, "-c", str(config)], stderr=subprocess.DEVNULL) as server:
            yield _address(Path(folder)), server.pid


@contextmanager
def _responder(kind: str) -> Iterator[str]:
    """The URL of a NATS server, with a node or a bare responder at it."""
    with nats_server() as (url, _), started([sys.executable, "-m", "bench.children.node", kind, url]) as child:
        assert child.stdout is not None and child.stdout.readline().strip() == b"ready"
        yield url


def _address(folder: Path) -> str:
    import json
    import time

    for _ in range(1000):
        for path in folder.glob("nats-server_*.ports"):
            with_ports = json.loads(path.read_text() or "{}")
            if with_ports.get("nats"):
                return str(with_ports["nats"][0])
        time.sleep(0.01)
    raise TimeoutError("nats-server did not start")


@asynccontextmanager
async def bare_echo(url: str) -> AsyncIterator[Callable[[], Coroutine[Any, Any, str]]]:
    """A request with nats-py."""
    import nats

    client = await nats.connect(url)

    async def echo() -> str:
        answer = await client.request(SUBJECT, PAYLOAD.encode(), timeout=30)
        return answer.data.decode()

    try:
        yield echo
    finally:
        await client.close()


def bare(params: dict[str, Any]) -> Sample:
    """nats-py on both sides."""

    async def main(url: str) -> Sample:
        async with bare_echo(url) as echo:
            return await measure(echo, params)

    with _responder("bare") as url:
        return _on_uvloop(lambda: main(url))


def local(params: dict[str, Any]) -> Sample:
    async def main() -> Sample:
        from plugbay import Host

        async with Host.load(CHILDREN / PLUGIN, unconfined=True) as host:
            return await measure(_echo_of(host), params)

    return _on_uvloop(main)


@asynccontextmanager
async def remote_echo(url: str) -> AsyncIterator[Callable[[], Coroutine[Any, Any, str]]]:
    """A call of the echo tool on the node at the NATS server, through a host in this process."""
    from plugbay import Host
    from plugbay.cluster.calling import Cluster
    from plugbay.cluster.envelope import Access, Package
    from plugbay.cluster.remote import Placed, supervise_on_nodes
    from plugbay.host.config.sections import ClusterConfig

    cluster = Cluster(ClusterConfig(nats=[url]), {})
    await cluster.start()
    try:
        while not cluster.nodes():  # noqa: ASYNC110 - a node has no event for its first beat
            await asyncio.sleep(0.01)
        package = Package("bench_fast", "1.0.0", "0" * 64, PLUGIN)
        supervise = supervise_on_nodes(cluster, Placed(package, Access(), confined=False))
        async with Host.load(CHILDREN / PLUGIN, unconfined=True, eager=False, supervise=supervise) as host:
            yield _echo_of(host)
    finally:
        await cluster.stop()


def remote(params: dict[str, Any]) -> Sample:
    async def main(url: str) -> Sample:
        async with remote_echo(url) as echo:
            return await measure(echo, params)

    with _responder("node") as url:
        return _on_uvloop(lambda: main(url))


def _echo_of(host: Any) -> Callable[[], Coroutine[Any, Any, str]]:
    async def echo() -> str:
        text: str = (await host.call("bench_fast_echo", {"text": PAYLOAD}))["text"]
        return text

    return echo


if __name__ == "__main__":
    serve({"bare": bare, "local": local, "remote": remote})
