"""`mcp`: an echo tool over MCP: plugbay as client and as server beside the official SDK's own client and server.

Every pair of the two clients and the two servers is measured, which separates the costs of both ends: `M` is the
official client with the official server. plugbay as a client is `Host.call`; plugbay as a server is `plugbay mcp serve`
with a fast nexo plugin behind it. Imports stand inside the contenders, because each runs in its own process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.calls import IN_FLIGHT, measure
from bench.harness import (
    CHILDREN,
    PAYLOAD,
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
from bench.link_bench import against_floors

NAME = "mcp"
TITLE = "An echo tool over MCP, as client and as server: 100 bytes"

FAST = [sys.executable, str(CHILDREN / "mcp_fast" / "plugin.py")]
OFFICIAL = [sys.executable, str(CHILDREN / "mcp_server.py")]
SERVED = [sys.executable, "-m", "plugbay", "mcp", "serve", str(CHILDREN / "nexo_fast"), "--grant-all"]


def run(options: Options) -> Comparison:
    """All contenders, round by round."""
    fast = {"calls": options.size(6_000, 2_000), "burst": options.size(20_000, 6_400)}
    middling = {"calls": options.size(1_500, 500), "burst": options.size(3_200, 1_280)}
    slow = {"calls": options.size(300, 100), "burst": options.size(640, 256)}
    entries = [
        Entry("json", "raw pipe, JSON (floor J)", fast),
        Entry("bare", "bare uvloop, nothing checked (P)", fast, needs="uvloop"),
        Entry("client", "plugbay.Host, fast server", fast, needs="uvloop"),
        Entry("client_official", "plugbay.Host, official server", slow, needs="mcp"),
        Entry("server", "plugbay.Host, plugbay mcp serve", middling, needs="uvloop"),
        Entry("server_official", "official client, plugbay mcp serve", slow, needs="mcp"),
        Entry("official", "official client, official server (M)", slow, needs="mcp"),
    ]
    rounds = interleave("bench.mcp_bench", entries, options)
    columns = [
        Column("p50_us", "p50 us"),
        Column("p99_us", "p99 us"),
        Column("cpu_us", "client CPU us/call"),
        Column("calls_per_s", f"calls/s, {IN_FLIGHT} in flight", digits=0),
        Column("burst_cpu_us", f"client CPU us/call, {IN_FLIGHT} in flight", digits=2),
    ]
    return Comparison(NAME, TITLE, _findings(rounds), columns, rounds, missing(entries))


def _findings(rounds: Rounds) -> list[Finding]:
    return [
        *against_floors(rounds, "client", p50=1.7, burst=0.5, against_m=35, burst_m=120, m="official"),
        *_side(rounds, "client, official server", "client_official"),
        *_side(rounds, "official client, mcp serve", "server_official"),
        *_side(rounds, "plugbay on both sides", "server"),
    ]


def _side(rounds: Rounds, what: str, key: str) -> list[Finding]:
    return [
        Finding(f"{what}: M's p50 / p50", rounds.ratio("official", key, "p50_us"), at_least=1.0),
        Finding(f"{what}: calls/s at 64 / M", rounds.ratio(key, "official", "calls_per_s"), at_least=1.0),
    ]


# The contenders.


def json_floor(params: dict[str, Any]) -> Sample:
    from bench.floors import json_pipe

    return json_pipe(params)


def bare(params: dict[str, Any]) -> Sample:
    from bench.link_bench import bare as measured

    return measured(params)


def client(params: dict[str, Any]) -> Sample:
    return _with_uvloop(FAST, params)


def client_official(params: dict[str, Any]) -> Sample:
    return _with_uvloop(OFFICIAL, params)


def server(params: dict[str, Any]) -> Sample:
    return _with_uvloop(SERVED, params)


def server_official(params: dict[str, Any]) -> Sample:
    return asyncio.run(_through_official(SERVED, params))


def official(params: dict[str, Any]) -> Sample:
    return asyncio.run(_through_official(OFFICIAL, params))


def _with_uvloop(command: list[str], params: dict[str, Any]) -> Sample:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_through_host(command, params))


async def _through_host(command: list[str], params: dict[str, Any]) -> Sample:
    from plugbay import Host

    cores = apart() if command is FAST else []
    entry = {"command": command[0], "args": command[1:], "env": {"BENCH_CORE": cores[0]} if cores else {}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".mcp.json"
        path.write_text(json.dumps({"mcpServers": {"bench": entry}}))
        async with Host.load(path, grant_all=True, state_dir=Path(folder) / "state") as host:
            await host.meet()
            name = next(name for name in host.exports() if name.endswith("echo"))

            async def echo() -> str:
                return _text(await host.call(name, {"text": PAYLOAD}))

            return await measure(echo, params)


async def _through_official(command: list[str], params: dict[str, Any]) -> Sample:
    from mcp import Client, StdioServerParameters

    target = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(target) as session:
        name = next(tool.name for tool in (await session.list_tools()).tools if tool.name.endswith("echo"))

        async def echo() -> str:
            answer = await session.call_tool(name, {"text": PAYLOAD})
            return _text(answer.model_dump(by_alias=True))

        return await measure(echo, params)


def _text(answer: dict[str, Any]) -> str:
    """What came back: an object from a nexo plugin, plain text from the others."""
    structured = answer.get("structuredContent")
    text: str = structured["text"] if structured else answer["content"][0]["text"]
    return text


if __name__ == "__main__":
    serve(
        {
            "json": json_floor,
            "bare": bare,
            "client": client,
            "client_official": client_official,
            "server": server,
            "server_official": server_official,
            "official": official,
        }
    )
