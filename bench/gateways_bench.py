"""`gateways`: two gateways on one PostgreSQL beside one, and a gateway with a node beside one without.

Invocations per second of processor time, of the gateways and their plugins: what a second gateway costs. On a machine
with idle cores, invocations per second grow with the gateways. Connections are spread by the kernel over the processes
of one port. PostgreSQL and the client share the machine, and their time is not counted.

With a node, the processor time of the gateway's process alone counts: what an invocation costs the gateway whose
plugin is a process of its own, and the gateway that has it on a node. Both are on SQLite.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.control_bench import _all_at_once
from bench.harness import (
    CHILDREN,
    ROOT,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Sample,
    interleave,
    missing,
    serve,
)
from bench.nodes_bench import PROGRAM

NAME = "gateways"
TITLE = "Several gateways on one PostgreSQL"

AT_ONCE = 16
"""Connections: as many as a gateway has to the database."""

_TICK = os.sysconf("SC_CLK_TCK")


def run(options: Options) -> Comparison:
    """Both, round by round."""
    calls = options.size(4_000, 1_000)
    entries = [
        Entry("one", "one gateway", {"gateways": 1, "calls": calls}, needs="asyncpg"),
        Entry("two", "two gateways", {"gateways": 2, "calls": calls}, needs="asyncpg"),
        Entry("here", "a gateway, its plugin here", {"calls": calls}),
        Entry("node", "a gateway, its plugin on a node", {"calls": calls}, needs=PROGRAM),
    ]
    rounds = interleave("bench.gateways_bench", entries, options)
    columns = [
        Column("per_second", f"per second, {AT_ONCE} at once", digits=0),
        Column("per_core", "per second of processor time", digits=0),
        Column("gateway_us", "gateway CPU us/invocation", digits=0),
    ]
    findings = [
        Finding("two gateways: invocations per core / one", rounds.ratio("two", "one", "per_core"), at_least=0.9),
        Finding("two gateways: invocations/s / one", rounds.ratio("two", "one", "per_second")),
        Finding(
            "on a node: gateway CPU of an invocation / here", rounds.ratio("node", "here", "gateway_us"), at_most=1.1
        ),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


def measure(params: dict[str, Any]) -> Sample:
    from plugbay.server.workers import reserved_port
    from tests.support.databases import database

    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        url = stack.enter_context(database("postgresql", folder))
        port = stack.enter_context(reserved_port("127.0.0.1", 0))
        kinds = ["first"] + ["another"] * (params["gateways"] - 1)
        servers = [stack.enter_context(_server(kind, folder, url, str(port))) for kind in kinds]
        return asyncio.run(_ask([pid for pid, _ in servers], servers[0][1], params["calls"]))


def measure_here(params: dict[str, Any]) -> Sample:
    with _folder() as folder, _server("gateway", folder) as (pid, where):
        return asyncio.run(_ask([pid], where, params["calls"]))


def measure_node(params: dict[str, Any]) -> Sample:
    from tests.support.nodes import PASSWORD, cell

    os.environ["CELL_PASSWORD"] = PASSWORD
    with _folder() as folder, cell(folder) as made:
        data = folder / "data"
        data.mkdir(mode=0o700)
        settings = made.settings(registry=f"oci://{made.registry}/plugbay").model_dump(exclude_unset=True)
        with (
            made.process("n1", "--trust", str(data / "trust.json"), sandbox=True),
            _server("cluster", data, json.dumps(settings)) as (pid, where),
        ):
            return asyncio.run(_ask([pid], where, params["calls"]))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=ROOT / "bench" / "results") as name:
        yield Path(name)


@contextmanager
def _server(*words: object) -> Iterator[tuple[int, dict[str, Any]]]:
    """A server, by its pid and its first line."""
    command = [sys.executable, str(CHILDREN / "control_server.py"), *map(str, words)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ,
    ) as server:
        try:
            assert server.stdout is not None
            yield server.pid, json.loads(server.stdout.readline())
        finally:
            server.terminate()


async def _ask(pids: list[int], where: dict[str, Any], calls: int) -> Sample:
    from bench.http_load import connected

    connections = await connected(where, AT_ONCE)
    asks = [connection.ask for connection in connections]
    await _all_at_once(asks, calls // 2)
    before, began = _processor_seconds(pids), time.perf_counter()
    await _all_at_once(asks, calls)
    seconds, after = time.perf_counter() - began, _processor_seconds(pids)
    for connection in connections:
        connection.close()
    whole, alone = (later - sooner for later, sooner in zip(after, before, strict=True))
    return {"per_second": calls / seconds, "per_core": calls / whole, "gateway_us": alone * 1e6 / calls}


def _processor_seconds(pids: list[int]) -> tuple[float, float]:
    """Of these processes and all that they started; of these alone."""
    parents, ticks, alone = {}, {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        ticks[pid], alone[pid] = sum(map(int, fields[11:15])), sum(map(int, fields[11:13]))
    ours = set(pids)
    for _ in range(8):  # generations
        ours |= {pid for pid, parent in parents.items() if parent in ours}
    return sum(ticks.get(pid, 0) for pid in ours) / _TICK, sum(alone[pid] for pid in pids) / _TICK


if __name__ == "__main__":
    serve({"one": measure, "two": measure, "here": measure_here, "node": measure_node})
