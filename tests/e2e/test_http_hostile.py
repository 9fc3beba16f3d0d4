"""What no client of good will sends, over a real socket: each answered in the envelope, or by the parser below it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from plugbay.server.api.middleware import MAX_JSON, HttpSettings, read_body
from plugbay.server.domain.errors import GatewayError
from tests.support.loops import Run
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.worlds import World, world_at

ENVELOPE = {"type", "code", "message", "param", "request_id", "retryable", "retry_after", "details"}

JSON = "Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_at(tmp_path_factory.mktemp("world")) as world:
        yield world


class Said:
    """An answer as it came over the socket."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}

    def error(self) -> dict[str, Any]:
        """What the envelope says; it is whole, and has the id that the header has."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert set(error) == ENVELOPE
        assert self.headers["x-request-id"] == error["request_id"]
        return error


def said(world: World, line: str, headers: str = "", body: bytes = b"", *, host: str = "Host: 127.0.0.1\r\n") -> Said:
    """What is answered to these bytes, asked with the key of the operator."""
    address = httpx2.URL(world.url)
    head = f"{line} HTTP/1.1\r\n{host}Connection: close\r\nAuthorization: Bearer {world.tokens['bootstrap']}\r\n"
    with socket.create_connection((address.host, address.port or 0), PATIENCE) as connection:
        connection.sendall((head + headers + "\r\n").encode("latin-1") + body)
        data = b""
        while piece := connection.recv(1 << 16):
            data += piece
    return Said(data)


def posted(world: World, body: bytes, kind: str = "application/json") -> Said:
    return said(world, "POST /v1/orgs", f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n", body)


@requirement("vai:control-hostile-http")
def test_a_body_that_is_too_large_is_refused_by_what_it_says_and_by_what_it_is(world: World) -> None:
    piece = b"%x\r\n%b\r\n" % (1 << 16, b" " * (1 << 16))
    pieces = piece * (MAX_JSON // (1 << 16)) + b"1\r\n \r\n"
    for headers, body in (
        (f"{JSON}Content-Length: {MAX_JSON + 1}\r\n", b""),
        (f"{JSON}Transfer-Encoding: chunked\r\n", pieces),
    ):
        answer = said(world, "POST /v1/orgs", headers, body)
        error = answer.error()
        assert (answer.status, error["code"]) == (413, "request.too_large")
        assert error["details"] == {"max_bytes": MAX_JSON}
    assert posted(world, b'{"name": "small enough"}').status == 201


@requirement("vai:control-hostile-http")
def test_a_body_of_two_lengths_is_refused_and_no_request_is_smuggled_behind_it(world: World) -> None:
    address = httpx2.URL(world.url)
    who = f"Host: 127.0.0.1\r\nAuthorization: Bearer {world.tokens['bootstrap']}\r\n"
    smuggled = '{"name": "smuggled"}'
    second = (
        f"POST /v1/orgs HTTP/1.1\r\n{who}{JSON}Connection: close\r\nContent-Length: {len(smuggled)}\r\n\r\n{smuggled}"
    )

    def answers(head: str, body: str) -> list[str]:
        with socket.create_connection((address.host, address.port or 0), PATIENCE) as connection:
            connection.sendall(f"POST /v1/orgs HTTP/1.1\r\n{who}{JSON}{head}\r\n{body}{second}".encode())
            data = b""
            while piece := connection.recv(1 << 16):
                data += piece
        return re.findall(r"HTTP/1.1 (\d+)", data.decode())

    def orgs() -> int:
        return world.ask("bootstrap", "GET", "/v1/orgs", params={"limit": 200}).text.count('"smuggled"')

    for head in (
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: -4\r\n",
    ):
        assert answers(head, "0\r\n\r\n") == ["400"] and orgs() == 0
    assert answers("Transfer-Encoding: chunked\r\n", "0\r\n\r\n") == ["400", "201"], "an empty body, and what follows"
    assert orgs() == 1


@requirement("vai:control-hostile-http")
def test_a_body_that_stops_coming_is_given_up_and_the_end_of_one_is_waited_for(run: Run) -> None:
    async def main() -> None:
        never, sent = asyncio.Event(), [{"type": "http.request", "body": b"{", "more_body": True}]

        async def receive() -> Message:
            if sent:
                return sent.pop()
            await never.wait()
            return {"type": "http.disconnect"}

        soon = HttpSettings(body_seconds=0.01)
        with pytest.raises(GatewayError) as raised:
            await read_body(Headers({"content-type": "application/json"}), receive, soon)
        assert (raised.value.status, raised.value.code, raised.value.retryable) == (408, "request.timeout", True)
        sent.append({"type": "http.request", "body": b"{}", "more_body": False})
        read = await read_body(Headers({"content-type": "application/json"}), receive, soon)
        assert (await read())["body"] == b"{}"
        leaving = asyncio.ensure_future(read())
        await asyncio.wait({leaving}, timeout=0.05)
        never.set()
        assert (await leaving)["type"] == "http.disconnect"

    run(main)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "text/x+json"])
def test_a_body_of_another_kind_is_not_taken_for_json(kind: str, world: World) -> None:
    answer = posted(world, b'{"name": "x"}', kind)
    assert (answer.status, answer.error()["code"]) == (400, "request.invalid")


@requirement("vai:control-hostile-http")
@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "x", "name": "y"}',
        b'{"name": "x", "policy": {"a": {"b": 1, "\\u0062": 2}}}',
        b'{"name": "x", "policy": {"a": NaN}}',
        b'{"name": "x", "policy": {"a": ' + b"[" * 5000 + b"]" * 5000 + b"}}",
        b'{"name": "x", "policy": {"a": ' + b"9" * 400 + b"}}",
        b'\xef\xbb\xbf{"name": "x"}',
        b'{"name": "x"} {}',
    ],
    ids=["twice", "twice below", "nan", "deep", "huge number", "mark", "two values"],
)
def test_json_that_two_readers_would_understand_differently_is_refused(body: bytes, world: World) -> None:
    answer = posted(world, body)
    assert (answer.status, answer.error()["code"]) == (400, "request.invalid_json")
    assert posted(world, b'{"name": "x", "policy": {}}').status == 201


@pytest.mark.parametrize(
    ("headers", "line"),
    [
        (f"X-Big: {'x' * 200_000}\r\n", "GET /livez"),
        ("X-Request-ID: a\rSet-Cookie: b\r\n", "GET /livez"),
        ("X-Request-ID: a\0b\r\n", "GET /livez"),
        ("Host: evil.example\r\n", "GET /livez"),
        ("X-Request-ID: a\r\n b\r\n", "GET /livez"),
    ],
    ids=["huge", "return", "nul", "two hosts", "folded"],
)
def test_what_is_no_http_does_not_get_as_far_as_the_application(headers: str, line: str, world: World) -> None:
    before = dict(world.gateway.meters.counters["http_requests"])
    try:
        answer = said(world, line, headers)
    except ConnectionError:
        pass  # the server has closed before we had sent all of it
    else:
        assert answer.status == 400 and b"evil" not in answer.body and "set-cookie" not in answer.headers
    assert world.gateway.meters.counters["http_requests"] == before
    assert said(world, "GET /livez").status == 200


@requirement("vai:control-hostile-http")
@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ("cursor=AAAA", "request.invalid_cursor", "cursor"),
        ("cursor=W10", "request.invalid_cursor", "cursor"),
        ("cursor=%FF", "request.invalid_cursor", "cursor"),
        ("cursor=" + "A" * 513, "request.invalid", "query.cursor"),
        ("limit=0", "request.invalid", "query.limit"),
        ("limit=201", "request.invalid", "query.limit"),
        ("limit=1e2", "request.invalid", "query.limit"),
        ("limit=" + "9" * 5000, "request.invalid", "query.limit"),
    ],
)
def test_a_part_of_a_list_that_cannot_be_is_refused(query: str, code: str, param: str, world: World) -> None:
    answer = said(world, f"GET /v1/orgs?{query}")
    assert (answer.status, answer.error()["code"], answer.error()["param"]) == (400, code, param)
    assert said(world, "GET /v1/orgs?limit=1").status == 200


def test_a_cursor_of_another_tenant_leads_to_nothing_of_theirs(world: World) -> None:
    theirs = world.ask("bootstrap", "GET", "/v1/orgs", params={"limit": 1}).json()["next_cursor"]
    assert theirs is not None
    answer = world.ask("stranger", "GET", "/v1/orgs", params={"cursor": theirs})
    assert {org["id"] for org in answer.json()["items"]} <= {"org_2"}


@requirement("vai:control-idempotency")
def test_many_with_one_key_at_once_make_one_and_another_body_is_a_conflict(world: World) -> None:
    headers = {"idempotency-key": "many"}

    def ask(name: str) -> httpx2.Response:
        return world.ask("bootstrap", "POST", "/v1/orgs", json={"name": name}, headers=headers)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, ["one"] * 8))
    assert {answer.status_code for answer in answers} <= {201, 409, 503}
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 201}) == 1
    other = ask("two")
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency.conflict")
    assert set(other.json()["error"]) == ENVELOPE


@requirement("vai:control-hostile-http")
@pytest.mark.parametrize(
    "origin",
    [
        "http://[",
        "http://localhost@evil.example",
        "http://evil.example#@localhost",
        "http://localhost\r\nOrigin: http://evil.example",
        "null",
        "",
    ],
)
def test_a_page_of_another_site_is_refused_however_it_writes_its_name(origin: str, world: World) -> None:
    answer = said(world, "GET /livez", f"Origin: {origin}\r\n")
    assert (answer.status, answer.error()["code"]) == (403, "auth.origin_denied")
    assert said(world, "GET /livez", "Origin: http://localhost:3000\r\n").status == 200


def test_another_name_is_refused_whoever_else_vouches_for_it(world: World) -> None:
    forwarded = "X-Forwarded-Host: 127.0.0.1\r\nForwarded: host=127.0.0.1\r\n"
    answer = said(world, "GET /livez", forwarded, host="Host: evil.example\r\n")
    assert (answer.status, answer.error()["code"]) == (421, "request.host_denied")


@pytest.mark.parametrize("id", ["a" * 129, "\xe9", "a b", "<b>"], ids=repr)
def test_an_id_of_a_request_that_cannot_be_shown_is_replaced(id: str, world: World) -> None:
    answer = said(world, "GET /v1/nothing", f"X-Request-ID: {id}\r\n")
    assert answer.error()["request_id"].startswith("req_")
    good = said(world, "GET /v1/nothing", f"X-Request-ID: {'a' * 128}\r\n")
    assert good.error()["request_id"] == "a" * 128


@pytest.mark.parametrize("line", ["POST /v1/api-keys/{key_id}", "POST /v1/api-keys/{key_id}?_method=DELETE"])
def test_a_method_is_what_it_says_in_the_first_line(line: str, world: World) -> None:
    headers = "X-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\nContent-Length: 0\r\n"
    answer = said(world, line.format(**world.ids), headers)
    assert (answer.status, answer.error()["code"]) == (405, "route.method_not_allowed")
    for method in ("TRACE", "OPTIONS", "REPORT"):
        assert said(world, f"{method} /v1/orgs").error()["code"] == "route.method_not_allowed"
    assert said(world, "FROB /v1/orgs").status == 405, "HTTP has no such method, so the parser refuses it"


@requirement("vai:control-hostile-http")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("GET /v1/orgs/org_2%2F..%2Forg_1", "route.not_found"),
        ("GET /v1/../v1/orgs", "route.not_found"),
        ("GET /v1/orgs/%2e%2e/orgs", "route.not_found"),
        ("GET //v1/orgs", "route.not_found"),
        ("GET /v1/orgs/", "route.not_found"),
        ("POST /v1/orgs/", "route.not_found"),
        ("GET /v1/orgs;x=1", "route.not_found"),
        ("GET /v1/orgs/%00", "route.not_found"),
        ("GET http://127.0.0.1/v1/orgs", "route.not_found"),
        ("GET /v1/orgs/%c0%af", "org.not_found"),
        ("GET /v1/orgs/..", "org.not_found"),
        ("GET /v1/plugin-bindings/{binding_id}:validate", "binding.not_found"),
        ("POST /v1/plugin-bindings/{binding_id}:validate:validate", "binding.not_found"),
        ("GET /api/v1/plugins/../../etc/passwd/logs", "plugin.not_found"),
        ("GET /api/v1/plugins/%2e%2e%2f%2e%2e%2fetc%2fpasswd/logs", "plugin.not_found"),
    ],
)
def test_a_path_leads_where_it_says_or_nowhere(line: str, code: str, world: World) -> None:
    answer = said(world, line.format(**world.ids), "Content-Length: 0\r\n")
    assert (answer.status, answer.error()["code"]) == (404, code)


def test_a_slash_in_disguise_passes_no_check_that_a_plain_one_does_not(world: World) -> None:
    for path in ("/v1/orgs/org_1/projects", "/v1/orgs/org_1%2Fprojects"):
        assert world.ask("nobody", "GET", path).status_code == 401
        assert world.ask("stranger", "GET", path).status_code == 404
