"""What happens to every request before anybody looks at it, and to every answer after."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import httpx2
import pytest
from starlette.datastructures import Headers
from starlette.types import Message, Receive

from plugbay.packages.rules import Limits
from plugbay.server.api.middleware import HttpSettings, read_body
from plugbay.server.app import create_app
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from tests.support.gateways import client_of, gateway_at
from tests.support.loops import Run
from tests.support.requirements import requirement


def code(answer: httpx2.Response) -> str:
    return str(answer.json()["error"]["code"])


@requirement("vai:control-headers")
def test_the_id_of_a_request_is_echoed_or_made(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            given = await client.get("/v1/nothing", headers={"x-request-id": "mine-1"})
            assert given.headers["x-request-id"] == given.json()["error"]["request_id"] == "mine-1"
            for odd in ("a b", "x" * 200, "<script>"):
                made = await client.get("/livez", headers={"x-request-id": odd})
                assert made.headers["x-request-id"].startswith("req_")
            assert made.headers["cache-control"] == "no-store"

    run(main)


@requirement("vai:control-headers")
def test_another_version_of_the_api_is_refused(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            assert (await client.get("/livez", headers={"x-vai-version": "1"})).status_code == 200
            other = await client.get("/livez", headers={"x-vai-version": "2"})
            assert (other.status_code, code(other)) == (400, "protocol.unsupported_version")

    run(main)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.:80", ""])
def test_a_page_that_has_its_own_name_resolve_to_us_is_turned_away(
    sqlite_url: str, tmp_path: Path, host: str, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            assert (await client.get("/livez", headers={"host": host})).status_code == 421
            for good in ("localhost", "127.0.0.1:8787", "[::1]:8787", "LOCALHOST:1"):
                assert (await client.get("/livez", headers={"host": good})).status_code == 200
            far = await client.get("/livez", headers={"origin": "https://evil.example"})
            assert (far.status_code, code(far)) == (403, "auth.origin_denied")
            assert (await client.get("/livez", headers={"origin": "null"})).status_code == 403
            assert (await client.get("/livez", headers={"origin": "http://localhost:3000"})).status_code == 200

    run(main)


def test_a_server_that_may_be_asked_under_any_name_is(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            app = create_app(gateway, settings=HttpSettings(hosts=("*",)))
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://any.example") as client:
                assert (await client.get("/livez")).status_code == 200

    run(main)


def test_no_nul_gets_as_far_as_a_database(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            assert (await client.get("/v1/orgs/a%00b")).status_code == 404
            assert (await client.get("/v1/audit?action=%00")).status_code == 400
            assert (await client.post("/v1/orgs", json={"name": "a\0"})).status_code == 400

    run(main)


def test_a_bug_is_logged_and_answered_with_its_id_alone(
    sqlite_url: str, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Gateway) -> dict[str, str]:
        raise LookupError("hunter2")

    monkeypatch.setattr(Gateway, "checks", broken)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            answer = await client.get("/readyz")
            assert (answer.status_code, code(answer)) == (500, "api.internal")
            assert "hunter2" not in answer.text and "LookupError" not in answer.text

    run(main)
    assert "hunter2" in caplog.text


def test_every_request_is_counted_and_logged_without_its_key(
    sqlite_url: str, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "plugbay.access")

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await client.get("/v1/orgs/org_1")
            await client.get("/livez")
            counted = gateway.meters.counters["http_requests"]
            labels = (("method", "GET"), ("route", "/v1/orgs/{org_id}"), ("status", "404"))
            assert counted[labels] == 1
            (line,) = [record for record in caplog.records if record.name == "plugbay.access"]
            facts = vars(line)
            assert (facts["status"], facts["caller"], facts["path"]) == (404, "operator", "/v1/orgs/org_1")
            assert str(gateway.made_operator_token) not in repr(facts)

    run(main)


def test_only_this_machine_may_ask_unless_told_otherwise_and_a_package_fits() -> None:
    settings = HttpSettings()
    assert settings.hosts == ("127.0.0.1", "localhost", "[::1]", "::1")
    assert settings.max_json < Limits().packed <= settings.max_upload


SETTINGS = HttpSettings(max_json=100, max_upload=1000)
JSON = {"content-type": "application/json; charset=utf-8"}


def sending(pieces: Iterable[bytes]) -> tuple[Receive, list[bytes]]:
    """A sender of these pieces, and those that were taken."""
    left, taken = list(pieces), []

    async def receive() -> Message:
        if not left:
            return {"type": "http.disconnect"}
        taken.append(left.pop(0))
        return {"type": "http.request", "body": taken[-1], "more_body": bool(left)}

    return receive, taken


async def whole(headers: dict[str, str], *pieces: bytes) -> bytes:
    read = await read_body(Headers(headers), sending(pieces)[0], SETTINGS)
    body, more = b"", True
    while more:
        message = await read()
        body += message["body"]
        more = message["more_body"]
    return body


def test_a_body_that_is_small_enough_arrives_as_it_was_sent(run: Run) -> None:
    async def main() -> None:
        assert await whole(JSON, b'{"a"', b": 1}") == b'{"a": 1}'
        assert await whole(JSON, b"") == b""
        assert await whole({"content-type": "application/gzip"}, b"x" * 600, b"y" * 400) == b"x" * 600 + b"y" * 400

    run(main)


@pytest.mark.parametrize("headers", [JSON, {}, {"content-type": "application/gzip"}])
def test_a_body_that_is_too_large_is_refused_before_all_of_it_was_taken(headers: dict[str, str], run: Run) -> None:
    async def main() -> None:
        receive, taken = sending([b" " * 99] * 50)
        with pytest.raises(GatewayError) as raised:
            read = await read_body(Headers(headers), receive, SETTINGS)
            for _ in range(50):
                await read()
        assert raised.value.status == 413 and len(taken) < 12
        announced, taken = sending([b""])
        with pytest.raises(GatewayError):
            await read_body(Headers({**headers, "content-length": "1001"}), announced, SETTINGS)
        with pytest.raises(GatewayError):
            await read_body(Headers({**headers, "content-length": "9" * 5000}), announced, SETTINGS)
        assert taken == []

    run(main)


@pytest.mark.parametrize(
    "body", [b"{", b"NaN", b'"\\ud800"', b'{"a": "x\\u0000"}', b'["\\u0000"]', b'{"\\u0000": 1}', b"\xff", b"1e999"]
)
def test_what_is_not_the_json_we_accept_is_refused(body: bytes, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(GatewayError) as raised:
            await whole(JSON, body)
        assert (raised.value.status, raised.value.code) == (400, "request.invalid_json")

    run(main)


def test_an_escaped_backslash_is_no_nul(run: Run) -> None:
    async def main() -> None:
        assert await whole(JSON, rb'"\\u0000"') == rb'"\\u0000"'

    run(main)
