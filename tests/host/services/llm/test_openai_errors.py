"""What an error of a server means, and how little of its words is passed on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.host.services.llm.openai_errors import MAX_WORDS, clean, retry_after_ms, status_failure, stream_failure
from plugbay.model.errors import Code, Failure, Origin

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
def test_an_error_inside_a_stream_means_what_its_status_would(error: Any, code: str) -> None:
    assert stream_failure(error).code == code


def test_words_lose_their_secrets_before_they_are_cut() -> None:
    secret = "sk-0123456789"
    text = "x" * (MAX_WORDS - 5) + secret
    assert secret[:5] in text[:MAX_WORDS], "the cut goes through the secret"
    assert clean(text, [secret]) == "x" * (MAX_WORDS - 5) + "***"
    assert clean("\x1b[2J" + secret, [secret]) == "\\x1b[2J***"
