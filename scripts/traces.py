"""Prints the Python calls of one warm operation on four paths: `Host.call`, an event, MCP `tools/call`, REST.

    python scripts/traces.py [--calls] [--json]

Counts calls of functions of plugbay in the process of the host, the coroutines that go on after a wait, the files of
both, and the moves from file to file. `--calls` lists each in order. Other threads and libraries are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import dis
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SOURCE = str(ROOT / "src" / "plugbay") + os.sep
ECHO = ROOT / "bench" / "children" / "nexo_fast"
WARM = 20
"""Operations before the one that is counted: caches are filled, connections are open."""

Operation = Callable[[], Awaitable[object]]


class Trace:
    """The calls of one operation, in their order: `file:function`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.resumed = 0
        """Those that are not new: a coroutine goes on after a wait."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            goes_on = _goes_on(frame)
            self.resumed += goes_on
            what = f"{code.co_filename.removeprefix(SOURCE)}:{code.co_qualname}"
            self.calls.append(f"{what} (goes on)" if goes_on else what)

    def summary(self) -> dict[str, int]:
        files = [call.partition(":")[0] for call in self.calls]
        moves = sum(before != after for before, after in pairwise(files))
        return {
            "calls": len(files) - self.resumed,
            "resumed": self.resumed,
            "files": len(set(files)),
            "moves": moves,
        }


def _goes_on(frame: FrameType) -> bool:
    """Whether the frame is a coroutine or generator that has run before: then an instruction came before its RESUME."""
    first = next(at.offset for at in dis.get_instructions(frame.f_code) if at.opname == "RESUME")
    return frame.f_lasti > first


async def traced(operation: Operation) -> Trace:
    """Warm up, then count one."""
    for _ in range(WARM):
        await operation()
    trace = Trace()
    sys.setprofile(trace)
    try:
        await operation()
    finally:
        sys.setprofile(None)
    return trace


async def host_call() -> Trace:
    from plugbay import Host

    async with Host.load(ECHO, grant_all=True) as host:
        return await traced(lambda: host.call("bench_fast/bench_fast_echo", {"text": "x"}))


async def event() -> Trace:
    """From `Host.publish` to the plugin and back to a subscriber."""
    from plugbay import Host

    async with Host.load(ECHO, grant_all=True) as host:
        await host.call("bench_fast/bench_fast_echo", {"text": "x"})
        heard = host.subscribe("plugin.inbound.bench_fast")

        async def publish() -> None:
            host.publish("plugin.outbound.bench_fast", {"text": "x"})
            await anext(heard)

        return await traced(publish)


async def mcp_call() -> Trace:
    from plugbay import Host
    from plugbay.mcp_server.server import McpServer
    from plugbay.mcp_server.stdio import Wire, serve

    async with Host.load(ECHO, grant_all=True) as host, McpServer(host) as server:
        (requests, ask), (answers, answer) = os.pipe(), os.pipe()
        serving = asyncio.create_task(serve(server, Wire(requests, answer)))
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        pipe = os.fdopen(answers, "rb")
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)

        async def request(method: str, **params: object) -> None:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            os.write(ask, json.dumps(message).encode() + b"\n")
            reply = json.loads(await reader.readline())
            assert "result" in reply, reply

        client = {"name": "traces", "version": "1"}
        await request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        os.write(ask, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        tool = next(iter(server.listing.tools))
        try:
            return await traced(lambda: request("tools/call", name=tool, arguments={"text": "x"}))
        finally:
            os.close(ask)
            await serving
            transport.close()


async def rest_invocation() -> Trace:
    """`POST /v1/plugin-invocations` of a tool that a worker does, through the application without a socket."""
    from plugbay.server.app import create_app
    from plugbay.server.domain.credentials import operator_token
    from tests.support.databases import sqlite_database
    from tests.support.gateways import gateway_at, make_org
    from tests.support.packaged import Publisher, bind
    from tests.support.vai import export

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        url = await asyncio.to_thread(sqlite_database, data)
        async with gateway_at(url, data) as gateway:
            await make_org(gateway)
            exports = [export("t", execution_class="worker", max_concurrency=64)]
            binding = await bind(gateway, await Publisher(data, data).bring(gateway, exports=exports))
            app = create_app(gateway)
            body = json.dumps({"binding_id": binding.id, "input": {"text": "x"}}).encode()
            token = operator_token(data)[0]
            scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "POST",
                "scheme": "http",
                "path": "/v1/plugin-invocations",
                "raw_path": b"/v1/plugin-invocations",
                "query_string": b"",
                "root_path": "",
                "client": ("127.0.0.1", 1),
                "server": ("127.0.0.1", 80),
                "headers": [
                    (b"host", b"127.0.0.1"),
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()),
                    (b"authorization", f"Bearer {token}".encode()),
                ],
            }

            async def invoke() -> None:
                sent: list[Any] = []
                waiting = [{"type": "http.request", "body": body, "more_body": False}]

                async def receive() -> Any:
                    if waiting:
                        return waiting.pop()
                    return await asyncio.get_running_loop().create_future()

                async def send(message: Any) -> None:
                    sent.append(message)

                await app({**scope, "state": {}}, receive, send)
                assert sent[0]["status"] == 200, sent

            return await traced(invoke)


PATHS = {
    "Host.call": host_call,
    "event to a plugin and back": event,
    "MCP tools/call": mcp_call,
    "REST invocation": rest_invocation,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="list each call in order")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    traces = {name: asyncio.run(run()) for name, run in PATHS.items()}
    if options.json:
        print(json.dumps({name: {**trace.summary(), "order": trace.calls} for name, trace in traces.items()}))
        return
    for name, trace in traces.items():
        found = trace.summary()
        counts = (
            f"{found['calls']:>5} calls {found['resumed']:>3} resumed {found['files']:>4} files {found['moves']:>5}"
        )
        print(f"{name:<28}{counts} moves between files")
        if options.calls:
            print(*(f"    {call}" for call in trace.calls), sep="\n")


if __name__ == "__main__":
    main()
