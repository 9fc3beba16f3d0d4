"""`control`: what the control plane adds: a REST call to a plugin beside a bare FastAPI echo, a durable event beside a
bare commit of one row.

A call is `POST /v1/plugin-invocations`: authenticated, its permissions computed, a row written before and after, the
tool of a vai package asked in a confined worker. An event is what a finished run leaves: the event and its delivery, in
one transaction. SQLite as a server has it: WAL, every commit on disk. Imports stand inside the contenders.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.harness import (
    CHILDREN,
    PAYLOAD,
    ROOT,
    BenchFailed,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Sample,
    interleave,
    missing,
    percentile,
    serve,
)

NAME = "control"
TITLE = "The control plane: a REST call to a plugin, and durable events"

IN_FLIGHT = 16
"""Connections at once; one process answers them all."""


def run(options: Options) -> Comparison:
    """All contenders, round by round."""
    calls = {"calls": options.size(400, 100), "burst": options.size(1_600, 320)}
    rows = {"rows": options.size(1_000, 200)}
    entries = [
        Entry("echo", "bare FastAPI echo", calls, needs="fastapi"),
        Entry("invoke", "POST /v1/plugin-invocations", calls, needs="fastapi"),
        Entry("commit", "one row, one commit", rows),
        Entry("event", "an event and its delivery", rows, needs="sqlalchemy"),
    ]
    rounds = interleave("bench.control_bench", entries, options)
    columns = [
        Column("p50_us", "p50 us"),
        Column("p99_us", "p99 us"),
        Column("per_second", f"per second, {IN_FLIGHT} at once", digits=0),
    ]
    findings = [
        Finding("REST invoke: p50 / echo", rounds.ratio("invoke", "echo", "p50_us")),
        Finding(f"REST invoke: calls/s at {IN_FLIGHT} / echo", rounds.ratio("invoke", "echo", "per_second")),
        Finding("durable events/s / commits", rounds.ratio("event", "commit", "per_second")),
        Finding("one event: p50 / commit", rounds.ratio("event", "commit", "p50_us")),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


# The contenders.


def echo(params: dict[str, Any]) -> Sample:
    return _through_http("echo", params)


def invoke(params: dict[str, Any]) -> Sample:
    return _through_http("gateway", params)


def commit(params: dict[str, Any]) -> Sample:
    with tempfile.TemporaryDirectory(dir=ROOT / "bench" / "results") as folder:
        database = sqlite3.connect(f"{folder}/bench.db", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")

        async def one() -> None:
            database.execute("INSERT INTO things (text) VALUES (?)", (PAYLOAD,))

        sample = asyncio.run(_timed(one, params["rows"], params["rows"]))
        database.close()
        return sample


def event(params: dict[str, Any]) -> Sample:
    return asyncio.run(_events(params["rows"]))


async def _events(rows: int) -> Sample:
    from plugbay.gateway.events import RUN_COMPLETED, Happening
    from plugbay.gateway.gateway import Gateway
    from plugbay.gateway.settings import GatewaySettings
    from plugbay.host.host import Host
    from plugbay.store.database import Database
    from tests.support.gateways import make_org
    from tests.support.packaged import Publisher, bind
    from tests.support.vai import export

    with tempfile.TemporaryDirectory(dir=ROOT / "bench" / "results") as name:
        folder = Path(name)
        database = await Database.open(f"sqlite+aiosqlite:///{folder}/bench.db")
        gateway = Gateway(database, Host([]), GatewaySettings(folder))  # not started: nothing is delivered meanwhile
        await make_org(gateway)
        hook = export("h", kind="hook", execution_class="worker")
        await bind(gateway, await Publisher(folder, folder).bring(gateway, "", [hook]), "h")
        numbers = iter(range(1_000_000))

        async def one() -> None:
            run_id = f"run_{next(numbers)}"
            happening = Happening(
                RUN_COMPLETED, "run", run_id, run_id, "org_1", "proj_1", "sess_1", "ch_1", run_id, {}, "tr_1", 1
            )
            async with database.transaction() as tx:
                await gateway.events.record(tx, happening)

        sample = await _timed(one, rows, rows)
        await database.close()
        return sample


def _through_http(kind: str, params: dict[str, Any]) -> Sample:
    with tempfile.TemporaryDirectory(dir=ROOT / "bench" / "results") as folder:
        command = [sys.executable, str(CHILDREN / "control_server.py"), kind, folder]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        ) as server:
            try:
                assert server.stdout is not None
                return asyncio.run(_ask(json.loads(server.stdout.readline()), params))
            finally:
                server.terminate()


async def _ask(where: dict[str, Any], params: dict[str, Any]) -> Sample:
    """Plain HTTP over connections that stay, written by hand: a client library would cost more than the echo."""
    body = where["body"].encode()
    head = (
        f"POST {where['path']} HTTP/1.1\r\nHost: 127.0.0.1:{where['port']}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {where['token']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connections = [await asyncio.open_connection("127.0.0.1", where["port"]) for _ in range(IN_FLIGHT)]
    free = list(connections)

    async def one() -> None:
        reader, writer = connection = free.pop()
        writer.write(head.encode() + body)
        said = await reader.readuntil(b"\r\n\r\n")
        length = int(said.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if PAYLOAD.encode() not in answer:
            raise BenchFailed(answer.decode())
        free.append(connection)

    sample = await _timed(one, params["calls"], params["burst"])
    for _, writer in connections:
        writer.close()
    return sample


async def _timed(one: Callable[[], Awaitable[None]], calls: int, burst: int) -> Sample:
    """One after the other, then several at once; each warmed up."""
    await _several(one, max(IN_FLIGHT, calls // 10))
    times, clock = [], time.perf_counter_ns
    for _ in range(calls):
        began = clock()
        await one()
        times.append((clock() - began) / 1e3)
    times.sort()
    began = clock()
    await _several(one, burst)
    seconds = (clock() - began) / 1e9
    return {"p50_us": percentile(times, 0.5), "p99_us": percentile(times, 0.99), "per_second": burst / seconds}


async def _several(one: Callable[[], Awaitable[None]], calls: int) -> None:
    async def caller() -> None:
        for _ in range(calls // IN_FLIGHT):
            await one()

    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))


if __name__ == "__main__":
    serve({"echo": echo, "invoke": invoke, "commit": commit, "event": event})
