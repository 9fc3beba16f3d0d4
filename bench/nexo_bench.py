"""`nexo`: `tool.invoke` through the whole host, beside the raw JSON pipe and the MCP Python SDK.

A call takes the whole path of `Host.call`: name, policy, input checked against the schema, lease, nexo machine, link,
deadline, decoded result, record. Imports stand inside the contenders, because each runs in its own process.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

from bench.calls import IN_FLIGHT, measure
from bench.harness import (
    CHILDREN,
    PAYLOAD,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Sample,
    apart,
    interleave,
    missing,
    serve,
)
from bench.link_bench import against_floors

if TYPE_CHECKING:
    from plugbay import Host

NAME = "nexo"
TITLE = "tool.invoke through the whole host: 100-byte echo"

GO_LIBRARIES = "/usr/share/gocode"
"""Where Debian has them: golang-github-hashicorp-go-plugin-dev, golang-google-grpc-dev."""


def run(options: Options) -> Comparison:
    """All contenders, round by round."""
    fast = {"calls": options.size(6_000, 2_000), "burst": options.size(20_000, 6_400)}
    slow = {"calls": options.size(300, 100), "burst": options.size(640, 256)}
    entries = [
        Entry("json", "raw pipe, JSON (floor J)", fast),
        Entry("bare", "bare uvloop, nothing checked (P)", fast, needs="uvloop"),
        Entry("asyncio", "plugbay.Host, asyncio, fast child", fast),
        Entry("uvloop", "plugbay.Host, uvloop, fast child", fast, needs="uvloop"),
        Entry("sdk", "plugbay.Host, uvloop, SDK child", fast, needs="uvloop"),
        Entry("mcp", "MCP Python SDK, best case (M)", slow, needs="mcp"),
        Entry("go", "go-plugin, net/rpc", fast, needs=f"{GO_LIBRARIES}/src/github.com/hashicorp/go-plugin"),
    ]
    rounds = interleave("bench.nexo_bench", entries, options)
    columns = [
        Column("p50_us", "p50 us"),
        Column("p99_us", "p99 us"),
        Column("cpu_us", "host CPU us/call"),
        Column("calls_per_s", f"calls/s, {IN_FLIGHT} in flight", digits=0),
        Column("burst_cpu_us", f"host CPU us/call, {IN_FLIGHT} in flight", digits=2),
    ]
    findings = [
        *against_floors(rounds, "uvloop", p50=1.7, burst=0.5, against_m=35, burst_m=120),
        *against_floors(rounds, "asyncio"),
        *against_floors(rounds, "sdk", p50=2.6, burst=0.3, against_m=25, burst_m=75),
        Finding("uvloop: go-plugin's p50 / p50", rounds.ratio("go", "uvloop", "p50_us")),
        Finding("uvloop: calls/s at 64 / go-plugin", rounds.ratio("uvloop", "go", "calls_per_s"), at_least=1.3),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


# The contenders.


def json_floor(params: dict[str, Any]) -> Sample:
    from bench.floors import json_pipe

    return json_pipe(params)


def bare(params: dict[str, Any]) -> Sample:
    from bench.link_bench import bare as measured

    return measured(params)


def on_asyncio(params: dict[str, Any]) -> Sample:
    return asyncio.run(_through_host("fast", params))


def on_uvloop(params: dict[str, Any]) -> Sample:
    return _with_uvloop("fast", params)


def sdk_child(params: dict[str, Any]) -> Sample:
    return _with_uvloop("sdk", params)


def mcp_sdk(params: dict[str, Any]) -> Sample:
    from bench.link_bench import mcp_sdk as measured

    return measured(params)


def go_plugin(params: dict[str, Any]) -> Sample:
    source = CHILDREN / "go_plugin" / "main.go"
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/echo"
        env = os.environ | {"GO111MODULE": "off", "GOPATH": GO_LIBRARIES}
        subprocess.run(["go", "build", "-o", program, source], check=True, env=env)
        command = [program, str(params["calls"]), str(params["burst"])]
        sample: Sample = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return sample


def _with_uvloop(child: str, params: dict[str, Any]) -> Sample:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_through_host(child, params))


async def _through_host(child: str, params: dict[str, Any]) -> Sample:
    async with host_of(child) as host:
        name = f"bench_{child}_echo"

        async def echo() -> str:
            text: str = (await host.call(name, {"text": PAYLOAD}))["text"]
            return text

        return await measure(echo, params)


def host_of(child: str) -> Host:
    """A host of one of the nexo children, on a core of its own."""
    from plugbay import Host
    from plugbay.host.config.config import Config, PluginConfig
    from plugbay.host.discovery.folders import discover

    cores = apart()
    env = {"BENCH_CORE": cores[0]} if cores else {}
    config = Config(plugins={f"bench_{child}": PluginConfig(env=env)})
    return Host(discover([CHILDREN / f"nexo_{child}"]), config)


if __name__ == "__main__":
    serve(
        {
            "json": json_floor,
            "bare": bare,
            "asyncio": on_asyncio,
            "uvloop": on_uvloop,
            "sdk": sdk_child,
            "mcp": mcp_sdk,
            "go": go_plugin,
        }
    )
