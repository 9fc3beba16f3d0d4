"""What a server of language models means by an error: status, headers and body to one `Failure`.

Owns that table, and how a server's own words get into a failure: without secrets, cut short, printable. Refuses to
know HTTP and time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.text import printable
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

MAX_WORDS = 500
"""Characters of a server's own message that are passed on: enough for its sentence, too few for a page of HTML."""

LONGEST_WAIT_MS = 24 * 3600 * 1000
"""No server's wish for patience is believed beyond a day."""

_OVERFLOW_CODES = frozenset({"context_length_exceeded", "string_above_max_length"})
_OVERFLOW_WORDS = ("context length", "context window", "maximum context", "prompt is too long", "context size")
"""Compatible servers say it in words alone."""

_CODEC = MsgspecCodec()


def status_failure(
    status: int, headers: Mapping[str, str], body: bytes, *, now: float, secrets: Sequence[str] = ()
) -> Failure:
    """The failure that an answer with an error status stands for; `now` is seconds since the epoch."""
    code, words = _error(_decoded(body), secrets)
    return _failure(status, code, words, retry_after_ms(headers.get("retry-after"), now))


def stream_failure(error: Any, secrets: Sequence[str] = ()) -> Failure:
    """The failure that an error inside a stream stands for. Its code may be the status that it came too late for."""
    code, words = _error({"error": error}, secrets)
    return _failure(int(code) if code.isdecimal() and len(code) == 3 else 500, code, words, None)


def retry_after_ms(value: str | None, now: float) -> int | None:
    """`Retry-After` as milliseconds from `now`: it holds seconds, or a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return int(min(max(seconds, 0.0) * 1000, LONGEST_WAIT_MS)) if seconds == seconds else None


def _failure(status: int, code: str, words: str, wait: int | None) -> Failure:
    kind, failure_code, retryable = _meaning(status, code, words)
    return Failure(
        failure_code,
        f"{kind.replace('_', ' ')} (HTTP {status})" + (f": {words}" if words else ""),
        origin=Origin.SYSTEM,
        detail={"kind": kind, "status": status},
        retryable=retryable,
        retry_after_ms=wait if retryable else None,
    )


def _meaning(status: int, code: str, words: str) -> tuple[str, str, bool]:
    """Kind, failure code, and whether the same request may succeed later."""
    if status in (401, 403):
        return "authentication_failed", Code.UNAVAILABLE, False
    if status == 429:
        spent = code == "insufficient_quota"  # no patience refills an account
        return ("quota_exceeded" if spent else "rate_limited"), Code.OVERLOADED, not spent
    if status == 404 or code == "model_not_found":
        return "model_not_found", Code.NOT_FOUND, False
    if code in _OVERFLOW_CODES or any(phrase in words.lower() for phrase in _OVERFLOW_WORDS):
        return "context_overflow", Code.INVALID_INPUT, False
    if status in (400, 413, 422):
        return "request_refused", Code.INVALID_INPUT, False
    if status == 408 or status >= 500:
        return "server_error", Code.UNAVAILABLE, True
    return ("redirect_refused" if 300 <= status < 400 else "request_refused"), Code.UNAVAILABLE, False


def _decoded(body: bytes) -> Any:
    try:
        return _CODEC.decode(body)
    except Malformed:
        return None


def _error(body: Any, secrets: Sequence[str]) -> tuple[str, str]:
    """The code and the words of `{"error": {"code", "message"}}` or `{"error": "words"}`; both may be empty."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", clean(error, secrets) if isinstance(error, str) else ""
    message = error.get("message")
    code = error.get("code") or error.get("type") or ""
    return str(code), clean(message, secrets) if isinstance(message, str) else ""


def clean(words: str, secrets: Sequence[str]) -> str:
    """`words` fit for a failure. Secrets go first: a cut through one would leave half of it."""
    for secret in secrets:
        words = words.replace(secret, "***")
    return printable(words[:MAX_WORDS].encode("utf-8", "backslashreplace"))
