"""The host's API as a handler uses it, against a real server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from plugbay.model.errors import Code
from plugbay.sdk import (
    Cancelled,
    Gateway,
    GatewayConflict,
    GatewayDenied,
    GatewayError,
    GatewayNotFound,
    GatewayUnavailable,
)
from plugbay.sdk.services import gateway as module
from plugbay.sdk.services.gateway import AwaitableGateway
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

TOKEN = "vai_dlg_hunter2"


class Server(ThreadingHTTPServer):
    """Keeps what it is asked, and answers as it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.status = 200
        self.answer: bytes = b'{"ok": true}'
        self.headers: dict[str, str] = {}
        self.hold: threading.Event | None = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up waiting is what one of the tests is about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        if self.server.hold is not None:
            self.server.hold.wait(PATIENCE)
        self.send_response(self.server.status)
        for name, value in {"Content-Length": str(len(self.server.answer)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.answer)

    def do_POST(self) -> None:
        self.do_GET()

    def do_PATCH(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def client(url: str, remaining: float | None = None, make: type[Gateway] = Gateway) -> Gateway:
    return make(f"{url}/", TOKEN, ("chains:read",), "inv_1", lambda: remaining)


@requirement("vai:sdk-gateway")
def test_a_request_carries_the_token_and_its_answer_is_a_value(server: Server) -> None:
    assert client(server.url).get("/v1/chains", {"limit": 5, "cursor": None, "q": "a b"}) == {"ok": True}
    method, path, headers, body = server.asked[0]
    assert (method, path, body) == ("GET", "/v1/chains?limit=5&q=a+b", b"")
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert "Idempotency-Key" not in headers
    server.answer = b""
    assert client(server.url).delete("/v1/chains/ch_1") is None


@requirement("vai:sdk-gateway-idempotency")
def test_what_changes_something_has_a_key_of_its_own(server: Server) -> None:
    gateway = client(server.url)
    gateway.post("/v1/runs", {"model": "é"})
    gateway.get("/v1/runs")
    gateway.patch("/v1/runs/run_1", {})
    gateway.post("/v1/runs", idempotency_key="mine")
    gateway.delete("/v1/runs/run_1")
    keys = [headers.get("Idempotency-Key") for _, _, headers, _ in server.asked]
    assert keys == ["inv_1:1", None, "inv_1:2", "mine", "inv_1:3"]
    assert json.loads(server.asked[0][3]) == {"model": "é"}
    assert server.asked[0][2]["Content-Type"] == "application/json"
    assert server.asked[3][3] == b""


def test_a_time_in_quotes_is_refused_before_anything_is_sent(server: Server) -> None:
    quoted: Any = "5"
    with pytest.raises(TypeError, match=r"timeout is a number of seconds, .* not '5'"):
        client(server.url).get("/v1/chains", timeout=quoted)
    assert server.asked == []


@requirement("vai:sdk-gateway")
def test_an_async_handler_awaits_the_same(server: Server) -> None:
    async def both() -> list[Any]:
        gateway: Any = client(server.url, make=AwaitableGateway)
        return [await gateway.get("/a"), await gateway.post("/b", 1)]

    assert asyncio.run(both()) == [{"ok": True}] * 2
    assert [path for _, path, _, _ in server.asked] == ["/a", "/b"]


@requirement("vai:sdk-gateway-errors")
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, GatewayError, False),
        (401, GatewayDenied, False),
        (403, GatewayDenied, False),
        (404, GatewayNotFound, False),
        (409, GatewayConflict, False),
        (429, GatewayUnavailable, True),
        (500, GatewayUnavailable, True),
        (529, GatewayUnavailable, True),
    ],
)
def test_a_status_is_an_error_of_its_own_type(
    server: Server, status: int, kind: type[GatewayError], retryable: bool
) -> None:
    server.status, server.answer = status, b"<html>"
    with pytest.raises(GatewayError) as caught:
        client(server.url).get("/")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.code) == (status, f"gateway.status_{status}")
    assert caught.value.retryable is retryable


@requirement("vai:sdk-gateway-errors")
def test_what_the_gateway_says_about_an_error_is_in_it_and_in_the_answer_of_the_handler(server: Server) -> None:
    error = {"code": "policy.limit_exceeded", "message": "too many child runs", "details": {"max": 12}}
    server.status = 403
    server.answer = json.dumps({"error": {**error, "retryable": True, "retry_after": 2, "request_id": "r1"}}).encode()
    with pytest.raises(GatewayDenied) as caught:
        client(server.url).post("/v1/runs", {})
    assert (caught.value.details, caught.value.request_id) == ({"max": 12}, "r1")
    failure = caught.value.failure()
    assert (failure.code, failure.message) == (Code.PLUGIN_ERROR, "too many child runs")
    assert failure.detail["plugin_code"] == "policy.limit_exceeded"
    assert (failure.retryable, failure.retry_after_ms) == (True, 2000)


def test_a_header_says_when_to_come_again(server: Server) -> None:
    server.status, server.headers = 429, {"Retry-After": "3", "X-Request-ID": "r2"}
    with pytest.raises(GatewayUnavailable) as caught:
        client(server.url).get("/")
    assert (caught.value.failure().retry_after_ms, caught.value.request_id) == (3000, "r2")


@requirement("vai:sdk-gateway-safe")
def test_the_token_goes_nowhere_else(server: Server) -> None:
    server.status, server.headers = 302, {"Location": f"{server.url}/elsewhere"}
    with pytest.raises(GatewayError) as caught:
        client(server.url).get("/here")
    assert (caught.value.status, [path for _, path, _, _ in server.asked]) == (302, ["/here"])
    for path in ("http://elsewhere.example/", "@elsewhere.example/", ""):
        with pytest.raises(ValueError, match="begins with a slash"):
            client(server.url).get(path)


@requirement("vai:sdk-gateway-safe")
def test_the_token_is_in_no_error_and_no_text(server: Server) -> None:
    gateway = client(server.url)
    assert TOKEN not in repr(gateway)
    server.status = 500
    with pytest.raises(GatewayUnavailable) as caught:
        gateway.post("/v1/runs", {})
    assert TOKEN not in f"{caught.value!r}{vars(caught.value)}{caught.value.failure()!r}"


@requirement("vai:sdk-gateway-errors")
def test_a_gateway_that_cannot_be_reached_is_unavailable() -> None:
    with pytest.raises(GatewayUnavailable, match="did not answer") as caught:
        client("http://127.0.0.1:1").get("/")
    assert (caught.value.code, caught.value.status) == ("gateway.unreachable", 0)
    assert caught.value.retryable


@requirement("vai:sdk-gateway-deadline")
def test_no_request_outlives_its_call(server: Server) -> None:
    server.hold = threading.Event()
    with pytest.raises(GatewayUnavailable, match="timed out"):
        client(server.url, remaining=2.0).get("/")
    server.hold.set()
    with pytest.raises(Cancelled, match="the deadline has passed"):
        client(server.url, remaining=0.0).get("/")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "why"), [(b"<html>", "cannot be read"), (b'"' + b"x" * 99 + b'"', "is longer than")]
)
def test_an_answer_that_is_no_json_or_too_much_is_an_error(
    server: Server, monkeypatch: pytest.MonkeyPatch, answer: bytes, why: str
) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER", 64)
    server.answer = answer
    with pytest.raises(GatewayError, match=why) as caught:
        client(server.url).get("/")
    assert caught.value.code == "gateway.invalid_answer"
