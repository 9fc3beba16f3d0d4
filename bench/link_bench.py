"""`link`: one call through the real link to a real child, beside the floor and beside the MCP Python SDK.

The link is measured as the host uses it: `Spawner`, `PipeStream`, `Link`, the msgspec codec, a deadline per call,
Python values in and out. Its child is that of the JSON floor. Imports stand inside the contenders, because each runs in
its own process and must not pay for the others.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from bench.calls import IN_FLIGHT, measure
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
    Rounds,
    Sample,
    apart,
    interleave,
    missing,
    serve,
)

NAME = "link"
TITLE = "One call on a resident child: 100-byte echo"
PATIENCE = 60.0
"""Seconds a call may take; every call carries a deadline, as in a host."""


def run(options: Options) -> Comparison:
    """All contenders, round by round."""
    fast = {"calls": options.size(10_000, 3_000), "burst": options.size(40_000, 12_800)}
    slow = {"calls": options.size(300, 100), "burst": options.size(640, 256)}
    entries = [
        Entry("raw", "raw pipe, bytes (floor)", fast),
        Entry("json", "raw pipe, JSON (floor J)", fast),
        Entry("bare", "bare uvloop, nothing checked (P)", fast, needs="uvloop"),
        Entry("asyncio", "plugbay link, asyncio", fast),
        Entry("uvloop", "plugbay link, uvloop", fast, needs="uvloop"),
        Entry("mcp", "MCP Python SDK, best case (M)", slow, needs="mcp"),
    ]
    rounds = interleave("bench.link_bench", entries, options)
    columns = [
        Column("p50_us", "p50 us"),
        Column("p99_us", "p99 us"),
        Column("cpu_us", "host CPU us/call"),
        Column("calls_per_s", f"calls/s, {IN_FLIGHT} in flight", digits=0),
        Column("burst_cpu_us", f"host CPU us/call, {IN_FLIGHT} in flight", digits=2),
    ]
    findings = [
        Finding("P: p50 / J", rounds.ratio("bare", "json", "p50_us")),
        Finding("P: calls/s at 64 / J", rounds.ratio("bare", "json", "calls_per_s")),
        *against_floors(rounds, "uvloop", p50=1.3, burst=0.75, against_m=35, burst_m=120),
        *against_floors(rounds, "asyncio", burst_m=120),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


def against_floors(
    rounds: Rounds,
    key: str,
    *,
    p50: float | None = None,
    burst: float | None = None,
    against_m: float | None = None,
    burst_m: float | None = None,
    m: str = "mcp",
) -> list[Finding]:
    """The goals of one contender against P and M; its ratio to J has none, since J has no event loop."""
    ratio = rounds.ratio
    return [
        Finding(f"{key}: p50 / P", ratio(key, "bare", "p50_us"), at_most=p50),
        Finding(f"{key}: p50 / J", ratio(key, "json", "p50_us")),
        Finding(f"{key}: M's p50 / p50", ratio(m, key, "p50_us"), at_least=against_m),
        Finding(f"{key}: calls/s at 64 / P", ratio(key, "bare", "calls_per_s"), at_least=burst),
        Finding(f"{key}: calls/s at 64 / J", ratio(key, "json", "calls_per_s")),
        Finding(f"{key}: calls/s at 64 / M", ratio(key, m, "calls_per_s"), at_least=burst_m),
        Finding(f"{key}: host CPU at 64 / P", ratio(key, "bare", "burst_cpu_us")),
    ]


# The contenders.


def raw(params: dict[str, Any]) -> Sample:
    from bench.floors import raw_pipe

    return raw_pipe(params)


def json_floor(params: dict[str, Any]) -> Sample:
    from bench.floors import json_pipe

    return json_pipe(params)


def bare(params: dict[str, Any]) -> Sample:
    from bench.bare_loop import bare_loop

    return _with_uvloop(bare_loop(params))


def on_asyncio(params: dict[str, Any]) -> Sample:
    return asyncio.run(_through_link(params))


def on_uvloop(params: dict[str, Any]) -> Sample:
    return _with_uvloop(_through_link(params))


def _with_uvloop(work: Coroutine[Any, Any, Sample]) -> Sample:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def _through_link(params: dict[str, Any]) -> Sample:
    from plugbay.contracts.base import Role
    from plugbay.link.deadlines import Deadlines
    from plugbay.link.link import Link
    from plugbay.link.stream import PipeStream
    from plugbay.model.operations import InvokeTool
    from plugbay.process.child import Spawner
    from plugbay.process.command import Launch
    from plugbay.wire.fast_json import MsgspecCodec
    from tests.support.echo import EchoMachine

    loop, codec, spawner = asyncio.get_running_loop(), MsgspecCodec(), Spawner()
    argv = (sys.executable, str(CHILDREN / "fast_child.py"), *apart())
    child = await spawner.spawn(Launch(argv=argv, cwd=ROOT, label="fast child"), PATIENCE)
    stream = PipeStream(loop, *child.take_pipes())
    link = Link(EchoMachine(Role.HOST, codec), stream, Deadlines(loop), has_process=True)
    child.on_exit(lambda _: link.peer_exited())
    failure = await link.open(PATIENCE)
    if failure is not None:
        raise BenchFailed(str(failure))

    async def echo() -> str:
        answer = await link.call(InvokeTool("echo", {"text": PAYLOAD}), PATIENCE)
        text: str = codec.load(answer.value)["text"]
        return text

    try:
        return await measure(echo, params)
    finally:
        link.close()
        await spawner.close()


def mcp_sdk(params: dict[str, Any]) -> Sample:
    return asyncio.run(_through_mcp(params))


async def _through_mcp(params: dict[str, Any]) -> Sample:
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(command=sys.executable, args=[str(CHILDREN / "mcp_server.py")])
    async with Client(server) as client:

        async def echo() -> str:
            answer = await client.call_tool("echo", {"text": PAYLOAD})
            text: str = answer.content[0].text
            return text

        return await measure(echo, params)


if __name__ == "__main__":
    serve({"raw": raw, "json": json_floor, "bare": bare, "asyncio": on_asyncio, "uvloop": on_uvloop, "mcp": mcp_sdk})
