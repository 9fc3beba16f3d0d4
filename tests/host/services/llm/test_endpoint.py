"""One server over real HTTP: size and time limits, failures by status, and that its key stays secret."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from plugbay.host.services.llm import endpoint as endpoints
from plugbay.host.services.llm.endpoint import (
    MAX_BODY,
    MAX_ERROR_BODY,
    MAX_MESSAGE,
    Endpoint,
    Response,
    redact,
    retry_after_ms,
    status_failure,
    stream_failure,
)
from plugbay.model.errors import CallFailed, Code, Failure, Origin, PlugbayError
from tests.support.loops import Run
from tests.support.openai_server import EVENTS, JSON, OpenAiServer, Reply, as_json, completion, streamed
from tests.support.patience import until

KEY = "sk-0123456789abcdef"


@asynccontextmanager
async def endpoint_at(url: str, max_retries: int = 0) -> AsyncGenerator[Endpoint, None]:
    endpoint = Endpoint(url, {"Authorization": f"Bearer {KEY}"}, [KEY], max_retries=max_retries)
    try:
        yield endpoint
    finally:
        await endpoint.close()


def soon(seconds: float = 10) -> float:
    return asyncio.get_running_loop().time() + seconds


async def post(endpoint: Endpoint, deadline: float | None = None, accept: str = JSON) -> Response | Failure:
    return await endpoint.post("/chat/completions", b"{}", soon() if deadline is None else deadline, accept)


async def refused(endpoint: Endpoint, deadline: float | None = None, accept: str = JSON) -> Failure:
    failure = await post(endpoint, deadline, accept)
    assert isinstance(failure, Failure)
    return failure


async def accepted(endpoint: Endpoint, accept: str = JSON) -> Response:
    answer = await post(endpoint, accept=accept)
    assert isinstance(answer, Response)
    return answer


# What is sent and what is read.


def test_a_request_carries_its_key_and_asks_for_nothing_compressed(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(completion()) as server, endpoint_at(server.url + "/") as endpoint:
            assert b"hello" in await (await accepted(endpoint)).body(soon())
            (seen,) = server.seen
            assert (seen.path, seen.body) == ("/v1/chat/completions", {})
            names = ("authorization", "content-type", "accept", "accept-encoding")
            assert [seen.headers[name] for name in names] == [f"Bearer {KEY}", JSON, JSON, "identity"]

    run(main)


def test_a_connection_is_used_again_and_after_closing_a_new_one_is_made(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(completion()) as server, endpoint_at(server.url) as endpoint:
            for _ in range(3):
                await (await accepted(endpoint)).body(soon())
            assert server.connections == 1
            await endpoint.close()
            await (await accepted(endpoint)).body(soon())
            assert server.connections == 2

    run(main)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (completion(), "not text/event-stream but application/json"),
        (Reply([b"<html>"], content_type="text/html; charset=utf-8"), "but text/html"),
        (Reply([b"x"], content_type=EVENTS, headers={"Content-Encoding": "gzip"}), "encoded as gzip"),
        (Reply([b"x"], content_type=KEY), "but ***, encoded"),
    ],
)
def test_an_answer_of_another_type_is_malformed(run: Run, reply: Reply, words: str) -> None:
    async def main() -> None:
        async with OpenAiServer(reply) as server, endpoint_at(server.url) as endpoint:
            failure = await refused(endpoint, accept=EVENTS)
            assert failure.code == Code.MALFORMED_RESPONSE
            assert words in failure.message

    run(main)


def test_a_body_is_read_up_to_its_limit_and_no_further(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(streamed([b"12345", b"67890"])) as server, endpoint_at(server.url) as endpoint:
            whole = [piece async for piece in (await accepted(endpoint, EVENTS)).pieces(soon(), None, 10)]
            assert b"".join(whole) == b"1234567890"
            with pytest.raises(CallFailed) as caught:
                async for _ in (await accepted(endpoint, EVENTS)).pieces(soon(), None, 9):
                    pass
            assert caught.value.code == Code.FRAME_TOO_LARGE

    run(main)


def test_a_huge_answer_is_not_read_to_its_end(run: Run) -> None:
    async def main() -> None:
        huge = Reply([b" " * (1 << 20)] * (MAX_BODY // (1 << 20) + 1), ending="held")
        async with OpenAiServer(huge) as server, endpoint_at(server.url) as endpoint:
            with pytest.raises(CallFailed) as caught:
                await (await accepted(endpoint)).body(soon())
            assert caught.value.code == Code.FRAME_TOO_LARGE
            await until(lambda: server.left == 1)

    run(main)


def test_an_error_page_without_end_is_read_only_in_part(run: Run) -> None:
    async def main() -> None:
        page = Reply([b"<" * MAX_ERROR_BODY], status=500, content_type="text/html", ending="held")
        async with OpenAiServer(page) as server, endpoint_at(server.url) as endpoint:
            assert (await refused(endpoint)).detail["kind"] == "server_error"
            await until(lambda: server.left == 1)

    run(main)


def test_an_error_that_breaks_off_is_still_that_error(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(Reply([b"{"], status=404, ending="cut")) as server, endpoint_at(server.url) as endpoint:
            assert (await refused(endpoint)).code == Code.NOT_FOUND

    run(main)


# Where it goes wrong.


def test_a_server_that_is_not_there_is_unavailable_for_now(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def main() -> None:
        async with endpoint_at(f"http://127.0.0.1:{port}/v1") as endpoint:
            failure = await refused(endpoint)
            assert (failure.code, failure.retryable) == (Code.UNAVAILABLE, True)
            assert failure.detail == {"kind": "connection_failed"}

    run(main)


def test_an_answer_that_breaks_off_is_unavailable_for_now(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(Reply([b"{"], ending="cut")) as server, endpoint_at(server.url) as endpoint:
            with pytest.raises(CallFailed) as caught:
                await (await accepted(endpoint)).body(soon())
            assert (caught.value.code, caught.value.failure.retryable) == (Code.UNAVAILABLE, True)

    run(main)


def test_no_redirect_is_followed(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer() as server, endpoint_at(server.url, max_retries=2) as endpoint:
            server.replies = [as_json({}, 307, Location=f"{server.url}/elsewhere"), completion()]
            failure = await refused(endpoint)
            assert (failure.code, failure.detail["kind"]) == (Code.UNAVAILABLE, "redirect_refused")
            assert [seen.path for seen in server.seen] == ["/v1/chat/completions"]

    run(main)


# Patience.


@pytest.mark.parametrize(("retries", "asked", "works"), [(0, 1, False), (1, 2, False), (2, 3, True)])
def test_a_request_is_tried_again_until_it_is_accepted(run: Run, retries: int, asked: int, works: bool) -> None:
    async def main() -> None:
        busy = as_json({}, 503, Retry_After="0")
        async with OpenAiServer(busy, busy, completion()) as server, endpoint_at(server.url, retries) as endpoint:
            answer = await post(endpoint)
            assert isinstance(answer, Response) == works
            if isinstance(answer, Response):
                await answer.body(soon())
            assert len(server.seen) == asked

    run(main)


def test_a_server_that_does_not_say_when_is_tried_again_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "FIRST_BACKOFF", 0.0)

    async def main() -> None:
        async with OpenAiServer(as_json({}, 500), completion()) as server, endpoint_at(server.url, 1) as endpoint:
            await (await accepted(endpoint)).body(soon())
            assert len(server.seen) == 2

    run(main)


@pytest.mark.parametrize(
    "reply",
    [as_json({}, 400), as_json({}, 401), as_json({}, 429, Retry_After="600")],
    ids=["refused", "unauthorized", "not for ten minutes"],
)
def test_a_request_is_not_retried_where_a_retry_cannot_help_soon(run: Run, reply: Reply) -> None:
    async def main() -> None:
        async with OpenAiServer(reply, completion()) as server, endpoint_at(server.url, max_retries=5) as endpoint:
            await refused(endpoint)
            assert len(server.seen) == 1

    run(main)


def test_no_retry_waits_beyond_the_deadline(run: Run) -> None:
    async def main() -> None:
        reply = as_json({}, 429, Retry_After="4")
        async with OpenAiServer(reply, completion()) as server, endpoint_at(server.url, max_retries=5) as endpoint:
            failure = await refused(endpoint, soon(3))
            assert (failure.code, failure.retry_after_ms) == (Code.OVERLOADED, 4000)

    run(main)


def test_a_server_that_never_finishes_meets_the_deadline(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(Reply([b"{"], ending="held")) as server, endpoint_at(server.url) as endpoint:
            with pytest.raises(CallFailed) as caught:
                await (await accepted(endpoint)).body(soon(0.05))
            assert caught.value.failure.detail == {"kind": "deadline"}
            await until(lambda: server.left == 1)

    run(main)


def test_a_server_that_never_answers_meets_the_deadline(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(Reply(ending="silent")) as server, endpoint_at(server.url) as endpoint:
            failure = await refused(endpoint, soon(0.05))
            assert (failure.code, failure.detail) == (Code.TIMEOUT, {"kind": "deadline"})

    run(main)


def test_a_pause_in_the_body_has_its_own_limit(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(streamed([b"a"], ending="held")) as server, endpoint_at(server.url) as endpoint:
            got = []
            with pytest.raises(CallFailed) as caught:
                async for piece in (await accepted(endpoint, EVENTS)).pieces(soon(), 0.05, 10):
                    got.append(piece)
            assert got == [b"a"]
            assert (caught.value.code, caught.value.failure.detail) == (Code.TIMEOUT, {"kind": "idle"})
            await until(lambda: server.left == 1)

    run(main)


def test_a_connection_that_is_gone_before_its_first_use_is_a_failure_of_the_connection(run: Run) -> None:
    def gone(request: httpx2.Request) -> httpx2.Response:
        raise AttributeError("'NoneType' object has no attribute 'getpeername'")

    async def main() -> None:
        async with endpoint_at("http://127.0.0.1:9") as endpoint:
            endpoint._client = httpx2.AsyncClient(transport=httpx2.MockTransport(gone))
            failure = await refused(endpoint)
            assert (failure.code, failure.retryable) == (Code.UNAVAILABLE, True)
            assert "closed at once" in failure.message

    run(main)


def test_a_cancelled_request_closes_its_connection_at_once(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(Reply([b"{"], ending="held")) as server, endpoint_at(server.url) as endpoint:
            task = asyncio.ensure_future((await accepted(endpoint)).body(soon()))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: server.left == 1)

    run(main)


def test_an_error_page_that_never_ends_meets_the_deadline(run: Run) -> None:
    async def main() -> None:
        page = Reply([b"<"], status=500, content_type="text/html", ending="held")
        async with OpenAiServer(page) as server, endpoint_at(server.url) as endpoint:
            failure = await refused(endpoint, soon(0.5))
            assert failure.code == Code.TIMEOUT
            await until(lambda: server.left == len(server.seen))

    run(main)


# Configuration.


def test_a_base_url_that_cannot_be_used_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="base_url") as caught:
        Endpoint("https://user:hunter2@example.com", {})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", [f"{KEY}\n", f"{KEY}\u00e9"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as caught:
        Endpoint("http://localhost", {"Authorization": value})
    assert KEY not in str(caught.value)


def test_without_the_library_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "httpx2", missing)
    with pytest.raises(PlugbayError, match=r"install plugbay\[llm\]"):
        Endpoint("http://localhost", {})


NOW = 1_700_000_000.0


def failure(status: int, error: Any = None, **headers: str) -> Failure:
    body = b"<html>" if error is None else json.dumps({"error": error}).encode()
    return status_failure(status, {k.replace("_", "-"): v for k, v in headers.items()}, body, now=NOW)


@pytest.mark.parametrize(
    ("status", "error", "code", "kind", "retryable"),
    [
        (401, None, Code.UNAVAILABLE, "authentication_failed", False),
        (403, {"message": "no"}, Code.UNAVAILABLE, "authentication_failed", False),
        (429, None, Code.OVERLOADED, "rate_limited", True),
        (429, {"code": "insufficient_quota", "message": "pay"}, Code.OVERLOADED, "quota_exceeded", False),
        (404, None, Code.NOT_FOUND, "model_not_found", False),
        (400, {"code": "model_not_found"}, Code.NOT_FOUND, "model_not_found", False),
        (400, {"code": "context_length_exceeded"}, Code.INVALID_INPUT, "context_overflow", False),
        (400, {"message": "This model's maximum context length is 8"}, Code.INVALID_INPUT, "context_overflow", False),
        (
            500,
            {"message": "the request exceeds the available context size"},
            Code.INVALID_INPUT,
            "context_overflow",
            False,
        ),
        (400, {"message": "bad temperature"}, Code.INVALID_INPUT, "request_refused", False),
        (422, "words alone", Code.INVALID_INPUT, "request_refused", False),
        (402, None, Code.UNAVAILABLE, "request_refused", False),
        (307, None, Code.UNAVAILABLE, "redirect_refused", False),
        (408, None, Code.UNAVAILABLE, "server_error", True),
        (500, None, Code.UNAVAILABLE, "server_error", True),
        (503, [], Code.UNAVAILABLE, "server_error", True),
    ],
)
def test_every_status_has_its_meaning(status: int, error: Any, code: str, kind: str, retryable: bool) -> None:
    got = failure(status, error)
    assert (got.code, got.detail, got.retryable) == (code, {"kind": kind, "status": status}, retryable)
    assert got.origin == Origin.SYSTEM


def test_the_words_of_a_server_are_passed_on() -> None:
    assert failure(422, "words alone").message == "request refused (HTTP 422): words alone"
    assert failure(500, {"message": "on fire"}).message == "server error (HTTP 500): on fire"
    assert failure(500, {"message": 7}).message == "server error (HTTP 500)"


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        (None, None),
        ("30", 30_000),
        ("0.5", 500),
        ("-5", 0),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10_000),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
        ("soon", None),
        ("nan", None),
        ("inf", 86_400_000),
        ("Tue, 99 Nov 2023 99:99:99 GMT", None),
        ("9" * 400, 86_400_000),
    ],
)
def test_retry_after_holds_seconds_or_a_date(value: str | None, wait: int | None) -> None:
    assert retry_after_ms(value, NOW) == wait


def test_a_wait_is_told_only_where_waiting_helps() -> None:
    assert failure(429, retry_after="30").retry_after_ms == 30_000
    assert failure(503, retry_after="1").retry_after_ms == 1000
    assert failure(400, retry_after="1").retry_after_ms is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "on fire"}, Code.UNAVAILABLE),
        ({"code": 429, "message": "slow down"}, Code.OVERLOADED),
        ({"code": "401"}, Code.UNAVAILABLE),
        ({"code": "context_length_exceeded"}, Code.INVALID_INPUT),
        ({"code": "\u0663\u0663\u0663"}, Code.UNAVAILABLE),
        ("on fire", Code.UNAVAILABLE),
        (True, Code.UNAVAILABLE),
    ],
)
def test_an_error_inside_a_stream_has_the_code_of_its_status(error: Any, code: str) -> None:
    assert stream_failure(error).code == code


def test_words_lose_their_secrets_before_they_are_cut() -> None:
    secret = "sk-0123456789"
    text = "x" * (MAX_MESSAGE - 5) + secret
    assert secret[:5] in text[:MAX_MESSAGE], "the cut goes through the secret"
    assert redact(text, [secret]) == "x" * (MAX_MESSAGE - 5) + "***"
    assert redact("\x1b[2J" + secret, [secret]) == "\\x1b[2J***"
