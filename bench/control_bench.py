"""`control`: the cost of the control plane: a REST call to a plugin beside a bare FastAPI echo, a durable event beside
a bare commit of one row.

The echo reads HTTP with httptools, as the server does; a second one with h11, as uvicorn does without its extras. The
floor of a call is that echo with what a call cannot do without: another process, asked by a bare event loop, and a row
on disk before and after. The floor of an event is a commit by another thread, because a disk must not stop the loop.

A call is `POST /v1/plugin-invocations` to a whole server: authentication, permissions, a row on disk before and after,
the tool of a vai package in a confined worker, a line in the log. An event is the result of a finished run: the event
and its delivery in one transaction. SQLite is configured as in a server: WAL, every commit on disk.

Each is timed alone, then at full speed by 100 clients, then at the rate of its goal. At that rate, a time counts from
the moment at which the request was due, so a delay of one request also counts for the next. (At full speed the time
follows from the throughput: 100 clients and 1,500 requests a second are 67 ms for each.) The client is a separate
process. Imports stand inside the contenders.
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
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from bench.harness import (
    CHILDREN,
    PAYLOAD,
    ROOT,
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

AT_ONCE = 100
"""Connections, or writers; one process answers them all."""

CALLS, EVENTS = 1_500, 1_000
"""A second: the goals, and the paces at which p99 is taken."""

Ask = Callable[[], Awaitable[None]]


def run(options: Options) -> Comparison:
    """All contenders, round by round."""
    calls = {"alone": options.size(300, 100), "burst": options.size(4_000, 1_000), "pace": CALLS}
    rows = {"alone": options.size(500, 100), "burst": options.size(4_000, 1_000), "pace": EVENTS}
    entries = [
        Entry("echo", "bare FastAPI echo", calls, needs="fastapi"),
        Entry("echo_h11", "the same, with uvicorn's other parser", calls, needs="fastapi"),
        Entry("recorded", "the echo of another process, with two rows on disk", calls, needs="fastapi"),
        Entry("invoke", "POST /v1/plugin-invocations", calls, needs="fastapi"),
        Entry("commit", "one row, one commit", rows),
        Entry("commit_apart", "the same in another thread", rows),
        Entry("event", "an event and its delivery", rows, needs="sqlalchemy"),
    ]
    rounds = interleave("bench.control_bench", entries, options)
    columns = [
        Column("p50_us", "alone: p50 us"),
        Column("per_second", f"per second, {AT_ONCE} at once", digits=0),
        Column("p99_ms", "p99 ms at the goal's pace"),
    ]
    findings = [
        Finding("REST invocations a second", rounds.spread("invoke", "per_second"), at_least=CALLS, unit="/s"),
        Finding(f"p99 at {CALLS:,} a second", rounds.spread("invoke", "p99_ms"), at_most=20, unit=" ms"),
        Finding("durable events a second", rounds.spread("event", "per_second"), at_least=EVENTS, unit="/s"),
        Finding(f"p99 at {EVENTS:,} a second", rounds.spread("event", "p99_ms"), at_most=25, unit=" ms"),
        Finding("REST invoke, alone: p50 / echo", rounds.ratio("invoke", "echo", "p50_us"), at_most=4),
        Finding("REST invoke: calls/s / echo", rounds.ratio("invoke", "echo", "per_second"), at_least=0.6),
        Finding("REST invoke, alone: p50 / echo with h11", rounds.ratio("invoke", "echo_h11", "p50_us")),
        Finding("REST invoke: calls/s / echo with h11", rounds.ratio("invoke", "echo_h11", "per_second")),
        Finding("the floor, alone: p50 / echo", rounds.ratio("recorded", "echo", "p50_us")),
        Finding("the floor: calls/s / echo", rounds.ratio("recorded", "echo", "per_second")),
        Finding("REST invoke, alone: p50 / the floor", rounds.ratio("invoke", "recorded", "p50_us")),
        Finding("REST invoke: calls/s / the floor", rounds.ratio("invoke", "recorded", "per_second")),
        Finding("one event, alone: p50 / commit", rounds.ratio("event", "commit", "p50_us"), at_most=4),
        Finding("durable events/s / commits", rounds.ratio("event", "commit", "per_second"), at_least=0.6),
        Finding("one commit in another thread, alone: p50 / commit", rounds.ratio("commit_apart", "commit", "p50_us")),
        Finding("one event, alone: p50 / commit in another thread", rounds.ratio("event", "commit_apart", "p50_us")),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


# The contenders.


def echo(params: dict[str, Any]) -> Sample:
    return _through_http("echo", params)


def echo_h11(params: dict[str, Any]) -> Sample:
    return _through_http("echo-h11", params)


def recorded(params: dict[str, Any]) -> Sample:
    return _through_http("recorded", params)


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

        sample = asyncio.run(_timed([one] * AT_ONCE, params))
        database.close()
        return sample


def commit_apart(params: dict[str, Any]) -> Sample:
    return asyncio.run(_commits_apart(params))


async def _commits_apart(params: dict[str, Any]) -> Sample:
    from bench.children.control_server import Rows

    with tempfile.TemporaryDirectory(dir=ROOT / "bench" / "results") as folder:
        rows = Rows(Path(folder))

        async def one() -> None:
            await rows.write("INSERT INTO calls (status) VALUES (?)", (PAYLOAD,))

        return await _timed([one] * AT_ONCE, params)


def event(params: dict[str, Any]) -> Sample:
    return asyncio.run(_events(params))


async def _events(params: dict[str, Any]) -> Sample:
    from plugbay.host.host import Host
    from plugbay.server.domain.deliveries import RUN_COMPLETED, NewEvent
    from plugbay.server.domain.gateway import Gateway
    from plugbay.server.domain.settings import GatewaySettings
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
            happening = NewEvent(
                RUN_COMPLETED, "run", run_id, run_id, "org_1", "proj_1", "sess_1", "ch_1", run_id, {}, "tr_1", 1
            )
            async with database.transaction() as tx:
                await gateway.events.record(tx, happening)

        sample = await _timed([one] * AT_ONCE, params)
        await database.close()
        return sample


def _through_http(kind: str, params: dict[str, Any]) -> Sample:
    with tempfile.TemporaryDirectory(dir=ROOT / "bench" / "results") as folder:
        command = [sys.executable, str(CHILDREN / "control_server.py"), kind, folder]
        with subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as server:
            try:
                assert server.stdout is not None
                return asyncio.run(_ask(json.loads(server.stdout.readline()), params))
            finally:
                server.terminate()


async def _ask(where: dict[str, Any], params: dict[str, Any]) -> Sample:
    from bench.http_load import connected

    connections = await connected(where, AT_ONCE)
    sample = await _timed([connection.ask for connection in connections], params)
    for connection in connections:
        connection.close()
    return sample


# How each is timed.


async def _timed(asks: Sequence[Ask], params: dict[str, Any]) -> Sample:
    """One after the other, then all at once, then at a pace; warmed up before."""
    await _all_at_once(asks, params["burst"] // 4)
    alone = sorted([await _took(asks[0], time.perf_counter()) for _ in range(params["alone"])])
    began = time.perf_counter()
    await _all_at_once(asks, params["burst"])
    seconds = time.perf_counter() - began
    paced = await _paced(asks, params["pace"], params["burst"])
    return {
        "p50_us": percentile(alone, 0.5) * 1e6,
        "per_second": params["burst"] / seconds,
        "p99_ms": percentile(paced, 0.99) * 1e3,
    }


async def _took(ask: Ask, since: float) -> float:
    await ask()
    return time.perf_counter() - since


async def _all_at_once(asks: Sequence[Ask], calls: int) -> None:
    async def several(ask: Ask) -> None:
        for _ in range(calls // len(asks)):
            await ask()

    await asyncio.gather(*map(several, asks))


async def _paced(asks: Sequence[Ask], pace: int, calls: int) -> list[float]:
    """How long each took since it was due, sorted; they take turns."""
    start = time.perf_counter()

    async def every_so_often(number: int, ask: Ask) -> list[float]:
        times = []
        for due in (start + at / pace for at in range(number, calls, len(asks))):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            times.append(await _took(ask, due))
        return times

    found = await asyncio.gather(*(every_so_often(number, ask) for number, ask in enumerate(asks)))
    return sorted(each for times in found for each in times)


if __name__ == "__main__":
    serve(
        {
            "echo": echo,
            "echo_h11": echo_h11,
            "recorded": recorded,
            "invoke": invoke,
            "commit": commit,
            "commit_apart": commit_apart,
            "event": event,
        }
    )
