"""`gateways`: two gateways on one PostgreSQL beside one, with the same invocations.

Invocations per second of processor time, of the gateways and their plugins: what a second gateway costs. On a machine
with idle cores, invocations per second grow with the gateways. Connections are spread by the kernel over the processes
of one port. PostgreSQL and the client share the machine, and their time is not counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
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
    ]
    rounds = interleave("bench.gateways_bench", entries, options)
    columns = [
        Column("per_second", f"per second, {AT_ONCE} at once", digits=0),
        Column("per_core", "per second of processor time", digits=0),
    ]
    findings = [
        Finding("two gateways: invocations per core / one", rounds.ratio("two", "one", "per_core"), at_least=0.9),
        Finding("two gateways: invocations/s / one", rounds.ratio("two", "one", "per_second")),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


def measure(params: dict[str, Any]) -> Sample:
    from plugbay.server.workers import reserved_port
    from tests.support.databases import database

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=ROOT / "bench" / "results")))
        url = stack.enter_context(database("postgresql", folder))
        port = stack.enter_context(reserved_port("127.0.0.1", 0))
        servers = []
        for number in range(params["gateways"]):
            server = stack.enter_context(_started(folder, url, port, first=not number))
            stack.callback(server.terminate)
            assert server.stdout is not None
            servers.append((server.pid, json.loads(server.stdout.readline())))
        return asyncio.run(_ask([pid for pid, _ in servers], servers[0][1], params["calls"]))


def _started(folder: Path, url: str, port: int, *, first: bool) -> subprocess.Popen[bytes]:
    words = [str(CHILDREN / "control_server.py"), "first" if first else "another", str(folder), url, str(port)]
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


async def _ask(pids: list[int], where: dict[str, Any], calls: int) -> Sample:
    from bench.http_load import connected

    connections = await connected(where, AT_ONCE)
    asks = [connection.ask for connection in connections]
    await _all_at_once(asks, calls // 2)
    used, began = _processor_seconds(pids), time.perf_counter()
    await _all_at_once(asks, calls)
    seconds, used = time.perf_counter() - began, _processor_seconds(pids) - used
    for connection in connections:
        connection.close()
    return {"per_second": calls / seconds, "per_core": calls / used}


def _processor_seconds(pids: list[int]) -> float:
    """Of these processes and all that they started."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = set(pids)
    for _ in range(8):  # generations
        ours |= {pid for pid, parent in parents.items() if parent in ours}
    return sum(ticks.get(pid, 0) for pid in ours) / _TICK


if __name__ == "__main__":
    serve({"one": measure, "two": measure})
