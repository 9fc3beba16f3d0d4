"""The port: loopback unless somebody says otherwise, a token unless somebody brings one, and an end in good order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from plugbay.mcp_server.bridge import Bridge
from plugbay.mcp_server.http_protocol import BoundedHttp
from plugbay.mcp_server.http_server import Door, NotAllowed
from tests.mcp_server.houses import house
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement


@asynccontextmanager
async def listening(bridge: Bridge, token: str | None = None) -> AsyncIterator[tuple[str, str]]:
    """An open door: its address and its token."""
    said: list[str] = []
    door = Door("127.0.0.1:0", token, say=said.append)
    serving = asyncio.ensure_future(door.serve(bridge))
    try:
        await until(lambda: bool(said) or serving.done())
        if serving.done():
            serving.result()
        yield said[0].removeprefix("listening at "), door.token
    finally:
        serving.cancel()
        await asyncio.wait({serving})
    assert serving.cancelled()
    assert [line.removeprefix("token    ") for line in said[1:]] == ([] if token else [door.token])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"address": "8765"}, "is no HOST:PORT"),
        ({"address": "localhost:eighty"}, "is no HOST:PORT"),
        ({"address": "localhost:70000"}, "is no HOST:PORT"),
        ({"address": "0.0.0.0:8765"}, "name what they call this one with --allow-host"),
        ({"address": "example.com:8765"}, "name what they call this one with --allow-host"),
        ({"address": "localhost:0", "token": "short"}, "16 printable ASCII characters"),
        ({"address": "localhost:0", "token": "with a line\nbreak in it"}, "16 printable ASCII characters"),
    ],
)
@requirement("mcp:http-guard")
def test_mistakes_are_found_before_anything_is_started(options: dict[str, Any], why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        Door(**options)


def test_other_machines_may_come_by_the_names_that_are_allowed() -> None:
    assert Door("0.0.0.0:8765", hosts=["plugins.example"]).token != Door("[::1]:8765").token


@requirement("mcp:http-guard")
def test_it_answers_at_one_address_to_whoever_has_the_token(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with house(tmp_path / "plugins") as (_, bridge), listening(bridge) as (url, token):
            assert url.startswith("http://127.0.0.1:") and url.endswith("/mcp")
            async with httpx2.AsyncClient() as client:
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
                assert (await client.post(url, content=ping)).status_code == 401
                assert (await client.post(url, content=ping, headers=headers)).status_code == 400
                assert (await client.post(f"{url}/else", content=ping, headers=headers)).status_code == 404
                evil = await client.post(url, content=ping, headers={**headers, "Host": "evil.example"})
                assert evil.status_code == 421
                rebound = await client.post(url, content=ping, headers={**headers, "Origin": "http://evil.example"})
                assert rebound.status_code == 403
                assert (await client.put(url, content=ping, headers=headers)).status_code == 405

    run(main)


@requirement("mcp:http-modern")
def test_a_stream_that_is_open_when_it_stops_ends_in_good_order(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")
    ours = "io.modelcontextprotocol/"
    meta = {f"{ours}protocolVersion": "2026-07-28", f"{ours}clientCapabilities": {}}
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    wanted = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    named = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}

    async def main() -> None:
        async with house(tmp_path / "plugins") as (_, bridge), httpx2.AsyncClient(timeout=PATIENCE) as client:
            said: list[str] = []
            door = Door("127.0.0.1:0", say=said.append)
            serving = asyncio.ensure_future(door.serve(bridge))
            await until(lambda: bool(said))
            url, headers = said[0].removeprefix("listening at "), {"Authorization": f"Bearer {door.token}", **named}
            async with client.stream("POST", url, json=wanted, headers=headers) as response:
                heard = response.aiter_lines()
                while "acknowledged" not in await anext(heard):
                    pass
                serving.cancel()
                rest = "".join([line async for line in heard])
            assert '"id":1,"result":{"resultType":"complete"' in rest
            await asyncio.wait({serving})

    run(main)


def test_a_port_that_is_taken_is_said_so(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with house(tmp_path / "plugins") as (_, bridge), listening(bridge, "a token of our own") as (url, _):
            port = url.rpartition(":")[2].partition("/")[0]
            with pytest.raises(NotAllowed, match="cannot be listened at"):
                await Door(f"127.0.0.1:{port}").serve(bridge)

    run(main)


def test_no_answer_waits_for_an_acknowledgement() -> None:
    with Door("127.0.0.1:0")._listen() as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_that_sends_nothing_does_not_stay(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedHttp, "head_seconds", 0.2)

    async def main() -> None:
        async with house(tmp_path) as (_, bridge), listening(bridge) as (url, _):
            port = int(url.rpartition(":")[2].removesuffix("/mcp"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
            writer.close()

    run(main)
