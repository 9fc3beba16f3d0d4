"""Guard and header checks."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.mcp import errors, http_headers
from plugbay.contracts.mcp.machine import MAX_BATCH
from plugbay.mcp_server import http_checks
from plugbay.mcp_server.http_checks import HEADER_MISMATCH, Guard
from tests.support.requirements import requirement

TOKEN = "correct horse battery staple"
GOOD = {"host": "127.0.0.1:8765", "authorization": f"Bearer {TOKEN}"}
OURS = "io.modelcontextprotocol/"


def status(guard: Guard, **headers: str) -> int | None:
    refused = guard.refusal({**GOOD, **headers})
    return None if refused is None else refused.status


@requirement("mcp:http-guard")
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"host": "localhost"}, None),
        ({"host": "LOCALHOST:1"}, None),
        ({"host": "[::1]:8765"}, None),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8765"}, 421),
        ({"host": ""}, 421),
        ({"host": "localhost:80@evil.example"}, 421),
        ({"host": "localhost:eighty"}, 421),
        ({"host": "[::1]evil.example"}, 421),
        ({"host": "[::1"}, 421),
        ({"host": "evil.example, localhost"}, 421),
        ({"origin": "http://localhost:6274"}, None),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "file://localhost"}, 403),
        ({"origin": "http://localhost:80@evil.example"}, 403),
        ({"origin": "http://[::1]evil.example"}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"origin": "http://[::1]:6274"}, None),
        ({"authorization": "bearer  " + TOKEN}, None),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": ""}, 401),
    ],
)
def test_names_origins_and_the_token_are_checked(headers: dict[str, str], expected: int | None) -> None:
    assert status(Guard(TOKEN), **headers) == expected


@requirement("mcp:http-guard")
def test_the_operator_may_allow_more() -> None:
    guard = Guard(TOKEN, frozenset({"plugins.example"}), frozenset({"https://app.example"}))
    assert status(guard, host="plugins.example:443", origin="https://app.example") is None
    assert status(guard, host="localhost") == 421
    assert status(Guard(None), authorization="") is None
    assert status(Guard(TOKEN, frozenset({"*"})), host="whatever.example") is None


@requirement("mcp:http-headers")
def test_repeated_headers_are_joined() -> None:
    raw = [(b"Accept", b"application/json"), (b"Mcp-Name", b"harmless"), (b"accept", b"text/event-stream")]
    headers = http_headers.join_headers([*raw, (b"mcp-name", b"echo")])
    assert headers == {"accept": "application/json, text/event-stream", "mcp-name": "harmless, echo"}
    assert http_headers.join_headers(raw)["mcp-name"] == "harmless"


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@requirement("mcp:http-limits")
@pytest.mark.parametrize(
    ("message", "requests"),
    [
        (PING, 1),
        ({**PING, "id": "one"}, 1),
        ({**PING, "id": 1.5}, 1),
        ({**PING, "id": None}, 1),
        ({"method": "notifications/initialized"}, 0),
        ({"id": None, "method": "notifications/initialized"}, 0),
        ({"id": 1, "result": {}}, 0),
        ([PING, {"id": 1, "result": {}}, {"method": "notifications/x"}, PING], 2),
        ([PING] * MAX_BATCH, MAX_BATCH),
    ],
)
def test_a_body_waits_for_as_many_answers_as_it_has_requests(message: Any, requests: int) -> None:
    assert http_checks.count_requests(message) == requests


@requirement("mcp:http-limits")
@pytest.mark.parametrize(
    "message",
    [
        7,
        None,
        [],
        [7],
        [PING, None],
        [PING] * (MAX_BATCH + 1),
        {**PING, "id": {}},
        {**PING, "id": True},
        {**PING, "method": 5},
        {**PING, "method": ""},
        [PING, {**PING, "id": []}],
    ],
)
def test_messages_without_a_possible_answer_are_refused(message: Any) -> None:
    refused = http_checks.count_requests(message)
    assert isinstance(refused, http_checks.Refusal) and refused.status == 400


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("application/json, text/event-stream", True),
        ("text/event-stream;q=0.5,application/json", True),
        ("*/*", True),
        ("application/*, text/*", True),
        ("application/json", False),
        ("", False),
    ],
)
def test_both_kinds_of_answers_must_be_welcome(header: str, expected: bool) -> None:
    assert http_checks.accepts(header, "application/json", "text/event-stream") is expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"content-type": "application/json; charset=utf-8"}, None),
        ({"content-type": "text/plain"}, 415),
        ({}, 415),
        ({"content-type": "application/json", "accept": "application/json"}, 406),
        ({"content-type": "application/json", "mcp-protocol-version": "2025-06-18"}, None),
        ({"content-type": "application/json", "mcp-protocol-version": "1900-01-01"}, 400),
    ],
)
def test_a_message_is_json_and_of_a_revision_we_know(headers: dict[str, str], expected: int | None) -> None:
    refused = http_checks.check_post(headers)
    assert (refused and refused.status) == expected
    if expected == 400:
        assert refused is not None
        assert (refused.code, refused.data["requested"]) == (errors.UNSUPPORTED_VERSION, "1900-01-01")


def request(method: str = "tools/call", **params: Any) -> dict[str, Any]:
    meta = {f"{OURS}protocolVersion": "2026-07-28", f"{OURS}clientCapabilities": {}}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "t", "_meta": meta, **params}}


HEADERS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "t"}


def refused(message: Any, schema: Any = None, **changes: str | None) -> int | None:
    headers = {name.replace("_", "-"): value for name, value in {**HEADERS, **changes}.items() if value is not None}
    verdict = http_checks.check_modern(headers, message, schema)
    if verdict is None:
        return None
    assert verdict.status == 400
    return verdict.code


@requirement("mcp:http-headers")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"mcp-method": None}, HEADER_MISMATCH),
        ({"mcp-method": "tools/list"}, HEADER_MISMATCH),
        ({"mcp-name": None}, HEADER_MISMATCH),
        ({"mcp-name": "T"}, HEADER_MISMATCH),
        ({"mcp-name": "=?base64?dA==?="}, None),
        ({"mcp-name": "=?base64?dA?="}, HEADER_MISMATCH),
        ({"mcp-name": "t\u00e9"}, HEADER_MISMATCH),
        ({"mcp-protocol-version": None}, HEADER_MISMATCH),
        ({"mcp-protocol-version": "2025-11-25"}, HEADER_MISMATCH),
    ],
)
def test_modern_headers_must_match_the_body(changes: dict[str, str | None], expected: int | None) -> None:
    assert refused(request(), **changes) == expected


@requirement("mcp:http-headers")
def test_only_three_methods_have_a_name_and_notifications_have_nothing() -> None:
    assert refused(request("tools/list"), **{"mcp-method": "tools/list", "mcp-name": None}) is None
    reading = request("resources/read", uri="a://b")
    assert refused(reading, **{"mcp-method": "resources/read", "mcp-name": "a://b"}) is None
    assert refused(reading, **{"mcp-method": "resources/read", "mcp-name": "t"}) == HEADER_MISMATCH
    assert refused({"method": "notifications/x"}, **{"mcp-method": None}) is None
    assert refused({"id": 1, "result": {}}) == errors.INVALID_REQUEST
    assert refused([request()]) == errors.INVALID_REQUEST


@requirement("mcp:http-headers")
def test_a_request_without_client_capabilities_is_refused() -> None:
    message = request()
    del message["params"]["_meta"][f"{OURS}clientCapabilities"]
    assert refused(message) == errors.INVALID_PARAMS


SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "where": {"type": "object", "properties": {"floor": {"type": "integer", "x-mcp-header": "Floor"}}},
        "express": {"type": "boolean", "x-mcp-header": "Express"},
        "plain": {"type": "string"},
    },
}


@requirement("mcp:http-headers")
@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({"plain": "x"}, {}, None),
        ({"region": "west"}, {"mcp-param-region": "west"}, None),
        ({"region": "wüst"}, {"mcp-param-region": "=?base64?d8O8c3Q=?="}, None),
        ({"region": "west"}, {"mcp-param-region": "east"}, HEADER_MISMATCH),
        ({"region": "west"}, {}, HEADER_MISMATCH),
        ({"region": None}, {}, None),
        ({}, {"mcp-param-region": "west"}, HEADER_MISMATCH),
        ({"where": {"floor": 42}}, {"mcp-param-floor": "42.0"}, None),
        ({"where": {"floor": 42}}, {"mcp-param-floor": "many"}, HEADER_MISMATCH),
        ({"where": {"floor": 2**53 + 1}}, {"mcp-param-floor": str(2**53 + 1)}, None),
        ({"where": {"floor": 2**53 + 1}}, {"mcp-param-floor": str(2**53)}, HEADER_MISMATCH),
        ({"express": True}, {"mcp-param-express": "true"}, None),
        ({"express": True}, {"mcp-param-express": "1"}, HEADER_MISMATCH),
    ],
)
def test_arguments_that_a_schema_wants_in_headers_are_there(
    arguments: dict[str, Any], headers: dict[str, str | None], expected: int | None
) -> None:
    assert refused(request(arguments=arguments), SCHEMA, **headers) == expected


def test_header_or_body_decide_whether_a_request_is_modern() -> None:
    assert http_checks.is_modern({}, request())
    assert http_checks.is_modern({"mcp-protocol-version": "2026-07-28"}, {})
    assert not http_checks.is_modern({"mcp-protocol-version": "2025-11-25"}, {"method": "initialize"})
    assert not http_checks.is_modern({}, [request()])


@pytest.mark.parametrize(
    ("netloc", "accepted"),
    [
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("127.0.0.1:", True),
        ("[::1]:80", True),
        ("::1", False),
        ("", False),
        ("localhost.evil.example", False),
        ("evil.example:80@localhost", False),
        ("localhost:80:80", False),
        ("localhost/x", False),
        ("*", False),
    ],
)
def test_a_host_is_known_by_its_name_without_the_port(netloc: str, accepted: bool) -> None:
    assert http_checks.accepts_host(netloc, http_checks.LOOPBACK) is accepted
    assert http_checks.accepts_origin(f"http://{netloc}", http_checks.LOOPBACK) is accepted
    assert http_checks.accepts_host(netloc, ("*",))


@pytest.mark.parametrize("origin", ["null", "", "localhost", "file://localhost", "http://", "https://evil.example"])
def test_a_page_without_a_known_host_is_no_known_origin(origin: str) -> None:
    assert not http_checks.accepts_origin(origin, http_checks.LOOPBACK)


def test_a_media_type_has_no_parameters() -> None:
    assert http_checks.media_type(" Application/JSON ; charset=utf-8") == "application/json"
    assert http_checks.media_type("") == ""
