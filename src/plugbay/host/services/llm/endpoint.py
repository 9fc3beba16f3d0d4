"""One HTTP server and how it is asked: bounded in time and bytes, without redirects, with its key kept secret.

Owns the connections, the retries and every failure of the network. A request is retried only until the server has
accepted it: what follows may have been read already. Refuses to know what is asked and what an answer means.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from plugbay.host.services.llm.openai_errors import clean, status_failure
from plugbay.model.errors import CallFailed, Code, Failure, Origin, PlugbayError

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 10.0
"""For one connection, TLS included. A server that needs longer is down, and the rest of the deadline is for others."""

MAX_BODY = 16 << 20
"""Bytes of a whole answer: 128 vectors of 3,072 numbers take 9 MB, the longest text about one."""

MAX_STREAM = 64 << 20
"""Bytes of a whole stream. The longest replies have 128 Ki tokens, and each comes in an event of about 300 bytes."""

MAX_ERROR_BODY = 64 << 10
"""Bytes that are read of an error; its message is at the start, and an HTML page behind a proxy has no end."""

FIRST_BACKOFF = 0.25
LONGEST_BACKOFF = 5.0
"""Seconds between two tries; doubled each time. A server that asks for more patience is not tried again from here."""


def base_url_problem(url: str) -> str | None:
    """Why a base URL cannot be used, if so. Never repeats it: it might hold a password."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises when it is no number
    except ValueError:
        return "must be a URL like https://api.example.com/v1"
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        return "must be a URL like https://api.example.com/v1"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "must hold no user, password, query or fragment; the key goes into api_key_env"
    return None


class Endpoint:
    """A server at a base URL. Its connections belong to the loop that uses it first, until it is closed."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], secrets: Sequence[str] = (), *, max_retries: int = 2
    ) -> None:
        problem = base_url_problem(base_url)
        if problem is not None:
            raise ValueError(f"base_url {problem}")
        if not all(text.isascii() and text.isprintable() for item in headers.items() for text in item):
            raise ValueError("a key or header holds something that is not printable ASCII")
        self.base_url = base_url.rstrip("/")
        self.secrets = tuple(sorted(secrets, key=len, reverse=True))  # one may hold another
        self._headers = {**headers, "Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._max_retries = max_retries
        self.library = _httpx2()
        self._trust = self.library.create_ssl_context()  # reads files, so here rather than on the loop
        self._client: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"

    async def close(self) -> None:
        """Close every connection. The next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def post(self, path: str, payload: bytes, deadline: float, accept: str) -> Answer | Failure:
        """Send JSON until it is accepted. `deadline` is in the time of the loop, `accept` the one type of an answer.

        Whoever gets an answer has to read its body, or part of it.
        """
        client = self._connected()
        request = client.build_request("POST", self.base_url + path, content=payload, headers={"Accept": accept})
        try:
            async with asyncio.timeout_at(deadline):
                return await self._accepted(client, request, deadline)
        except TimeoutError:
            return _late("no answer before the deadline", "deadline")

    async def _accepted(self, client: httpx2.AsyncClient, request: httpx2.Request, deadline: float) -> Answer | Failure:
        tries = 0
        while True:
            answer = await self._try(client, request)
            if isinstance(answer, Answer) or not answer.retryable or tries >= self._max_retries:
                return answer
            wait = FIRST_BACKOFF * 2**tries if answer.retry_after_ms is None else answer.retry_after_ms / 1000
            if wait > LONGEST_BACKOFF or asyncio.get_running_loop().time() + wait >= deadline:
                return answer
            await asyncio.sleep(wait)
            tries += 1

    async def _try(self, client: httpx2.AsyncClient, request: httpx2.Request) -> Answer | Failure:
        try:
            response = await client.send(request, stream=True)
        except self.library.HTTPError as error:
            return self.broken(error)
        try:
            failure = await self._refusal(response)
        except BaseException:
            await response.aclose()
            raise
        if failure is None:
            return Answer(self, response)
        await response.aclose()
        return failure

    async def _refusal(self, response: httpx2.Response) -> Failure | None:
        """Why an answer is not read, if so."""
        if not response.is_success:
            body = await self._error_body(response)
            now = time.time()
            return status_failure(response.status_code, response.headers, body, now=now, secrets=self.secrets)
        wanted = response.request.headers["accept"]
        got = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = response.headers.get("content-encoding", "identity")
        if got == wanted and encoding == "identity":
            return None
        words = clean(f"{got or 'something of no type'}, encoded as {encoding}", self.secrets)
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

    def broken(self, error: Exception) -> Failure:
        """The failure that an error of the network stands for. Made of words: the error itself holds the headers."""
        words = clean(f"{type(error).__name__}: {error}", self.secrets)
        detail = {"kind": "connection_failed"}
        return Failure(
            Code.UNAVAILABLE, f"connection failed: {words}", origin=Origin.SYSTEM, detail=detail, retryable=True
        )

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = self.library.AsyncClient(
                headers=self._headers,
                verify=self._trust,
                follow_redirects=False,
                timeout=self.library.Timeout(None, connect=CONNECT_SECONDS),
            )
        return self._client


class Answer:
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
                failure = _late(f"nothing came for {idle:g} s", "idle")
            else:
                failure = _late("no end before the deadline", "deadline")
        except self._endpoint.library.HTTPError as error:
            failure = self._endpoint.broken(error)
        raise CallFailed(failure)


def _httpx2() -> ModuleType:
    """The HTTP library, when it is installed: plugins and hosts without language models do without it."""
    try:
        import httpx2
    except ImportError:
        raise PlugbayError("a language model over HTTP needs httpx2; install plugbay[llm]") from None
    return httpx2


def _late(message: str, kind: str) -> Failure:
    return Failure(Code.TIMEOUT, message, origin=Origin.SYSTEM, detail={"kind": kind})
