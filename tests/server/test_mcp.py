"""A server is an MCP server too: for the operator's token, in front of the same plugins."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from plugbay.host.host import Host
from plugbay.server.mcp import mount_mcp
from tests.server.test_server import Served, served
from tests.support.loops import Run
from tests.support.plugins import write_plugin

ACCEPT = {"accept": "application/json, text/event-stream"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Client:
    """A client of the handshake era."""

    def __init__(self, server: Served, client: httpx2.Client) -> None:
        self._client = client
        self._headers = dict(ACCEPT)
        answer = self.post("initialize", HELLO)
        assert answer.status_code == 200, answer.text
        self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        self.post("notifications/initialized", None)

    def post(self, method: str, params: Any, **headers: str) -> httpx2.Response:
        number = {} if method.startswith("notifications/") else {"id": 1}
        message = {"jsonrpc": "2.0", **number, "method": method, **({"params": params} if params else {})}
        return self._client.post("/mcp", json=message, headers={**self._headers, **headers})

    def ask(self, method: str, **params: Any) -> Any:
        return self.post(method, params).json()["result"]

    @contextmanager
    def stream(self) -> Iterator[httpx2.Response]:
        with self._client.stream("GET", "/mcp", headers=self._headers) as answer:
            yield answer


def test_the_plugins_of_a_server_are_tools_and_their_calls_are_recorded_with_all_others(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins") as server, server.client() as client:
        mcp = Client(server, client)
        assert [tool["name"] for tool in mcp.ask("tools/list")["tools"]] == ["p__t"]
        result = mcp.ask("tools/call", name="p__t", arguments={"a": 1})
        assert result["structuredContent"] == {"a": 1}
        assert server.end() == 0
    with served(tmp_path, "plugins") as again, again.client() as client:
        (call,) = client.get("/api/v1/calls").json()["items"]
        assert (call["plugin"]["id"], call["export"], call["status"]) == ("p", "t", "succeeded")


def test_requests_without_the_token_or_with_another_host_name_are_refused(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins") as server, server.client() as client:
        mcp = Client(server, client)
        assert mcp.post("tools/list", None).status_code == 200
        assert mcp.post("tools/list", None, authorization="Bearer wrong").status_code == 401
        assert mcp.post("tools/list", None, host="evil.example").status_code == 421
        assert mcp.post("tools/list", None, origin="https://evil.example").status_code == 403
        created = client.post("/v1/orgs", json={"id": "org_1", "name": "One"})
        assert created.status_code == 201, created.text
        key = client.post("/v1/api-keys", json={"org_id": "org_1", "role": "admin", "name": "k"}).json()["key"]
        assert mcp.post("tools/list", None, authorization=f"Bearer {key}").status_code == 401, (
            "these are the operator's"
        )


def test_two_exports_of_one_name_do_not_keep_a_server_from_starting(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "a.b")
    write_plugin(tmp_path / "plugins", "a_b")
    with served(tmp_path, "plugins") as server, server.client() as client:
        assert [tool["name"] for tool in Client(server, client).ask("tools/list")["tools"]] == ["a_b__t"]


def test_a_client_that_listens_is_let_go_when_the_server_stops(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins") as server, server.client() as client, Client(server, client).stream() as answer:
        assert answer.status_code == 200
        ending = threading.Timer(0, server.end)
        ending.start()
        for _ in answer.iter_raw():  # raises where the connection is cut in the middle
            pass
        ending.join()
        assert json.loads(server.log[-1])["event"] == "stopping"


@pytest.mark.parametrize(("path", "status"), [("/mcp", 401), ("/mcp/other", 404), ("/mcpx", 404), ("/livez", 200)])
def test_every_other_path_is_the_applications(path: str, status: int, run: Run) -> None:
    async def story() -> None:
        app = FastAPI()
        app.state.closing = asyncio.Event()
        app.add_api_route("/livez", lambda: "alive")
        async with Host([]) as host, mount_mcp(app, host, "token", ["test"]) as both:
            transport = httpx2.ASGITransport(app=both)
            async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                assert (await client.post(path) if status == 401 else await client.get(path)).status_code == status

    run(story)
