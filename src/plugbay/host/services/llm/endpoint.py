"""An HTTP server of language models: bounded in time and bytes, without redirects, with its key kept secret.

Owns connections, retries, and the failures of network and HTTP status. A request is retried only until the server has
accepted it: from then on it may have taken effect. Texts of a server enter a failure only redacted, cut and printable.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

from plugbay.host.services.llm.settings import base_url_problem
from plugbay.model.errors import CallFailed, Code, Failure, Origin, PlugbayError
from plugbay.model.text import printable
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 10.0
"""Timeout of one connection, with TLS. A server that needs longer is down; the rest of the deadline is for retries."""

MAX_BODY = 16 << 20
"""Bytes of a whole answer: 128 vectors of 3,072 numbers take 9 MB, the longest text about one."""

MAX_STREAM = 64 << 20
"""Bytes of a whole stream. The longest replies have 128 Ki tokens, and each comes in an event of about 300 bytes."""

MAX_ERROR_BODY = 64 << 10
"""Bytes of an error response that are read; its message is at the start, and an HTML page of a proxy may be long."""

FIRST_BACKOFF = 0.25
LONGEST_BACKOFF = 5.0
"""Seconds between two tries, doubled each time. There is no retry when a server asks for a longer delay."""


class Endpoint:
    """A server at a base URL. Its connections belong to the loop of the first request, until it is closed."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], secrets: Sequence[str] = (), *, max_retries: int = 2
    ) -> None:
        problem = base_url_problem(base_url)
        if problem is not None:
            raise ValueError(f"base_url {problem}")
        if not all(text.isascii() and text.isprintable() for item in headers.items() for text in item):
            raise ValueError("a key or header contains characters other than printable ASCII")
        self.base_url = base_url.rstrip("/")
        self.secrets = tuple(sorted(secrets, key=len, reverse=True))  # a secret may contain another
        self._headers = {**headers, "Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._max_retries = max_retries
        self.library = _httpx2()
        self._tls = _tls()  # reads files, so not on the loop
        self._client: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"

    async def close(self) -> None:
        """Close every connection. The next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def post(self, path: str, payload: bytes, deadline: float, accept: str) -> Response | Failure:
        """Send JSON until it is accepted. `deadline` is in the time of the loop, `accept` the one type of an answer.

        The caller must read the body of the response, or a part of it.
        """
        client = self._open_client()
        request = client.build_request("POST", self.base_url + path, content=payload, headers={"Accept": accept})
        try:
            async with asyncio.timeout_at(deadline):
                return await self._accepted(client, request, deadline)
        except TimeoutError:
            return _timeout("no answer before the deadline", "deadline")

    async def _accepted(
        self, client: httpx2.AsyncClient, request: httpx2.Request, deadline: float
    ) -> Response | Failure:
        tries = 0
        while True:
            answer = await self._try(client, request)
            if isinstance(answer, Response) or not answer.retryable or tries >= self._max_retries:
                return answer
            wait = FIRST_BACKOFF * 2**tries if answer.retry_after_ms is None else answer.retry_after_ms / 1000
            if wait > LONGEST_BACKOFF or asyncio.get_running_loop().time() + wait >= deadline:
                return answer
            await asyncio.sleep(wait)
            tries += 1

    async def _try(self, client: httpx2.AsyncClient, request: httpx2.Request) -> Response | Failure:
        try:
            response = await client.send(request, stream=True)
        except self.library.HTTPError as error:
            return self.connection_failure(error)
        except AttributeError:  # of anyio, when the server closes a connection before its first use
            return self.connection_failure(self.library.ConnectError("the connection was closed at once"))
        try:
            failure = await self._refusal(response)
        except BaseException:
            await response.aclose()
            raise
        if failure is None:
            return Response(self, response)
        await response.aclose()
        return failure

    async def _refusal(self, response: httpx2.Response) -> Failure | None:
        """Why a response is not read; None when it is."""
        if not response.is_success:
            body = await self._error_body(response)
            now = time.time()
            return status_failure(response.status_code, response.headers, body, now=now, secrets=self.secrets)
        wanted = response.request.headers["accept"]
        got = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = response.headers.get("content-encoding", "identity")
        if got == wanted and encoding == "identity":
            return None
        words = redact(f"{got or 'something without a type'}, encoded as {encoding}", self.secrets)
        return Failure(Code.MALFORMED_RESPONSE, f"the answer is not {wanted} but {words}", origin=Origin.SYSTEM)

    async def _error_body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        try:
            async with aclosing(response.aiter_raw()) as pieces:
                while len(body) < MAX_ERROR_BODY and (piece := await anext(pieces, None)) is not None:
                    body += piece
        except self.library.HTTPError:
            pass  # the status says enough
        return bytes(body[:MAX_ERROR_BODY])

    def connection_failure(self, error: Exception) -> Failure:
        """The failure of a network error. Without the error object, which holds the headers."""
        words = redact(f"{type(error).__name__}: {error}", self.secrets)
        detail = {"kind": "connection_failed"}
        return Failure(
            Code.UNAVAILABLE, f"connection failed: {words}", origin=Origin.SYSTEM, detail=detail, retryable=True
        )

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = self.library.AsyncClient(
                headers=self._headers,
                verify=self._tls,
                follow_redirects=False,
                timeout=self.library.Timeout(None, connect=CONNECT_SECONDS),
            )
        return self._client


class Response:
    """An answer whose body is still to be read, once. Leaving off before its end closes the connection."""

    def __init__(self, endpoint: Endpoint, response: httpx2.Response) -> None:
        self._endpoint = endpoint
        self._response = response

    async def body(self, deadline: float) -> bytes:
        """All of it; raises `CallFailed`."""
        async with aclosing(self.pieces(deadline, None, MAX_BODY)) as pieces:
            return b"".join([piece async for piece in pieces])

    async def pieces(self, deadline: float, idle: float | None, limit: int) -> AsyncGenerator[bytes, None]:
        """The body as it comes, `limit` bytes at most and no pause longer than `idle`; raises `CallFailed`."""
        size = 0
        async with aclosing(self._response), aclosing(self._response.aiter_raw()) as pieces:
            while (piece := await self._next(pieces, deadline, idle)) is not None:
                size += len(piece)
                if size > limit:
                    message = f"the answer has more than {limit:,} bytes"
                    raise CallFailed(Failure(Code.FRAME_TOO_LARGE, message, origin=Origin.SYSTEM))
                yield piece

    async def _next(self, pieces: AsyncIterator[bytes], deadline: float, idle: float | None) -> bytes | None:
        pause_ends = deadline if idle is None else asyncio.get_running_loop().time() + idle
        try:
            async with asyncio.timeout_at(min(deadline, pause_ends)):
                return await anext(pieces, None)
        except TimeoutError:
            if pause_ends < deadline:
                failure = _timeout(f"no data came for {idle:g} s", "idle")
            else:
                failure = _timeout("it did not end before the deadline", "deadline")
        except self._endpoint.library.HTTPError as error:
            failure = self._endpoint.connection_failure(error)
        raise CallFailed(failure)


def _httpx2() -> ModuleType:
    """The HTTP library, imported here because hosts without language models do not need it."""
    try:
        import httpx2
    except ImportError:
        raise PlugbayError("a language model over HTTP needs httpx2; install plugbay[llm]") from None
    return httpx2


@functools.cache
def _tls() -> Any:
    """The certificates that the system trusts, for all servers: to read them takes 40 ms."""
    return _httpx2().create_ssl_context()


def _timeout(message: str, kind: str) -> Failure:
    return Failure(Code.TIMEOUT, message, origin=Origin.SYSTEM, detail={"kind": kind})


MAX_MESSAGE = 500
"""Characters of a server's message in a failure: enough for a sentence, too few for a page of HTML."""

LONGEST_WAIT_MS = 24 * 3600 * 1000
"""The longest accepted `Retry-After`."""

_OVERFLOW_CODES = frozenset({"context_length_exceeded", "string_above_max_length"})
_OVERFLOW_WORDS = ("context length", "context window", "maximum context", "prompt is too long", "context size")
"""Phrases of compatible servers that have no code for it."""

_CODEC = MsgspecCodec()


def status_failure(
    status: int, headers: Mapping[str, str], body: bytes, *, now: float, secrets: Sequence[str] = ()
) -> Failure:
    """The failure of a response with an error status; `now` is seconds since the epoch."""
    code, words = _error(_decode(body), secrets)
    return _failure(status, code, words, retry_after_ms(headers.get("retry-after"), now))


def stream_failure(error: Any, secrets: Sequence[str] = ()) -> Failure:
    """The failure of an error inside a stream. Its code may be an HTTP status."""
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
    kind, failure_code, retryable = _classify(status, code, words)
    return Failure(
        failure_code,
        f"{kind.replace('_', ' ')} (HTTP {status})" + (f": {words}" if words else ""),
        origin=Origin.SYSTEM,
        detail={"kind": kind, "status": status},
        retryable=retryable,
        retry_after_ms=wait if retryable else None,
    )


def _classify(status: int, code: str, words: str) -> tuple[str, str, bool]:
    """Kind, failure code, and whether the same request may succeed later."""
    if status in (401, 403):
        return "authentication_failed", Code.UNAVAILABLE, False
    if status == 429:
        spent = code == "insufficient_quota"  # waiting does not refill an account
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


def _decode(body: bytes) -> Any:
    try:
        return _CODEC.decode(body)
    except Malformed:
        return None


def _error(body: Any, secrets: Sequence[str]) -> tuple[str, str]:
    """Code and message of `{"error": {"code", "message"}}` or `{"error": "message"}`; both may be empty."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", redact(error, secrets) if isinstance(error, str) else ""
    message = error.get("message")
    code = error.get("code") or error.get("type") or ""
    return str(code), redact(message, secrets) if isinstance(message, str) else ""


def redact(words: str, secrets: Sequence[str]) -> str:
    """`words` for a failure: secrets are removed before the cut, which could leave half of one."""
    for secret in secrets:
        words = words.replace(secret, "***")
    return printable(words[:MAX_MESSAGE].encode("utf-8", "backslashreplace"))
