"""`Bridge`: MCP over stdio to the host, streamable HTTP to the server, in both eras of the protocol.

Each message of the host is one POST; messages of the server go to the host as they arrive. A failure of the transport
is the answer to its request, with a `Failure` in the error's data. A lost session is replaced if the server greets as
before and the host set nothing up in it; the host then lists again and compares the offer with the approval. Otherwise
the process ends with status 0, and the next call starts it again. No credential is written to the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from plugbay.contracts.mcp import errors, http_headers, messages, remote
from plugbay.contracts.mcp.messages import as_object
from plugbay.mcp_remote.http import JSON, STREAM, EventParser, HttpClient, HttpFailed, Response, StreamEvent, failed
from plugbay.mcp_remote.oauth import Challenge, Login, covers, parse_challenge
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.fetch import Url
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

ACCEPT = f"{JSON}, {STREAM}"

NOTIFY_SECONDS = 30.0
"""Time for the server to accept a notification or an answer."""

SILENT_SECONDS = 300.0
"""Silence after which the stream of the server's own messages is opened again: the connection may be dead."""

FIRST_DELAY, LONGEST_DELAY = 1.0, 30.0
"""Seconds before a lost stream is opened again."""

MAX_EMPTY = 5
"""Streams in a row that end without a message, after which none is opened again."""

DELETE_SECONDS = 1.5
"""Time to end the session; the host closes the program's input two seconds before it sends a signal."""

RENEWAL = "plugbay-renewal"
"""Id of an `initialize` that the bridge sends itself; its answer is not for the host."""

INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'

MAX_RENEWALS = 100
"""Sessions that one process may begin in place of lost ones: a server that loses each would keep both ends busy."""

SHORTEST_SECRET = 6
"""Minimum length of a credential that is searched for in messages; a shorter one is part of too many words."""

HIDDEN = b"***"

STATUS_CODES = {
    400: Code.INVALID_INPUT,
    401: Code.CAPABILITY_NOT_ALLOWED,
    403: Code.CAPABILITY_NOT_ALLOWED,
    404: Code.NOT_FOUND,
    405: Code.NOT_FOUND,
    408: Code.TIMEOUT,
    410: Code.NOT_FOUND,
    413: Code.FRAME_TOO_LARGE,
    429: Code.OVERLOADED,
    503: Code.UNAVAILABLE,
    504: Code.TIMEOUT,
}
"""Failure codes by HTTP status. Any other 5xx is `unavailable`, any other status `plugin_error`."""

RETRYABLE = frozenset({429, 502, 503, 504})

MAX_WAIT_MS = 3_600_000
"""The longest `Retry-After` that is passed on."""

Send = Callable[[bytes], Awaitable[None]]


class StreamEnd(msgspec.Struct):
    """How a stream of the server ended."""

    last_id: str = ""
    """Id of its last event; empty: its events have none."""
    retry: float | None = None
    """Seconds that the server wants before it is opened again."""
    messages: int = 0
    answered: bool = False
    """The awaited answer was in it."""


class SessionGone(Exception):
    """The server does not know the session any more."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(session)


class Bridge:
    """One conversation between a host and a server."""

    def __init__(
        self,
        name: str,
        url: Url,
        headers: Mapping[str, str],
        http: HttpClient,
        send: Send,
        login: Login | None = None,
    ) -> None:
        """`send` writes one message to the host."""
        self._name = name
        self._url = url
        self._where = remote.shown_url(url)
        self._headers = dict(headers)
        self._http = http
        self._send = send
        self._login = login
        self._codec = MsgspecCodec()
        self._session = ""
        self._next_session = ""
        """The session that replaces a lost one as soon as the server has it initialized."""
        self._revision = ""
        """The revision of the handshake era, from the answer to `initialize` on; empty in the modern era."""
        self._greeting: dict[str, Any] = {}
        """The host's `initialize`, to be sent again when the session is lost."""
        self._welcome: dict[str, Any] = {}
        """The server's answer to it."""
        self._has_state = False
        """The host subscribed or set a level in this session, which a new one would not know."""
        self._renewing = asyncio.Lock()
        self._renewals = 0
        self._schemas: dict[str, Any] = {}
        """Input schemas of tools: some arguments are repeated in headers."""
        self._requests: dict[Any, asyncio.Task[None]] = {}
        """Requests of the host without an answer, by id."""
        self._methods: dict[Any, str] = {}
        self._notifying: asyncio.Task[None] | None = None
        """The last notification or answer of the host: each is sent after the one before it."""
        self._listening: asyncio.Task[None] | None = None
        self.gone = asyncio.Event()
        """The session is lost for good."""

    # Messages of the host.

    def take(self, line: bytes) -> None:
        """Take one message of the host. Returns at once."""
        message = as_object(self._codec.decode(line))
        id, method = message.get("id"), message.get("method")
        if isinstance(method, str) and id is not None:
            self._methods[id] = method
            self._has_state |= method in (messages.SUBSCRIBE, messages.SET_LEVEL)
            task = asyncio.ensure_future(self._ask(id, message, line, self._notifying))
            self._requests[id] = task
            task.add_done_callback(lambda _: self._forget(id, task))
        elif method == messages.CANCELLED and not self._revision:
            self._cancel(as_object(message.get("params")).get("requestId"))
        else:
            self._notifying = asyncio.ensure_future(self._notify(message, line, self._notifying))

    def _forget(self, id: Any, task: asyncio.Task[None]) -> None:
        if self._requests.get(id) is task:
            del self._requests[id]
            del self._methods[id]

    def _cancel(self, id: Any) -> None:
        """Close the response of a request. In the modern era that cancels it."""
        task = self._requests.get(id) if isinstance(id, int | str) else None
        if task is not None:
            task.cancel()

    async def _notify(self, message: dict[str, Any], line: bytes, before: asyncio.Task[None] | None) -> None:
        """Send a notification or an answer of the host."""
        await _finished(before)
        try:
            async with asyncio.timeout(NOTIFY_SECONDS), self._exchange("POST", {}, line) as response:
                if response.status >= 300:
                    await self._raise_status(response)
        except SessionGone:
            pass  # it belonged to that session; the next request renews it
        except TimeoutError:
            self._log(f"{self._where} did not accept {message.get('method', 'an answer')} in time")
        except HttpFailed as error:
            self._log(f"{message.get('method', 'an answer')} was not accepted: {error}")
        if message.get("method") == messages.CANCELLED:
            self._cancel(as_object(message.get("params")).get("requestId"))
        elif message.get("method") == messages.INITIALIZED and self._listening is None:
            self._listening = asyncio.ensure_future(self._listen())

    async def _ask(self, id: Any, message: dict[str, Any], line: bytes, before: asyncio.Task[None] | None) -> None:
        """Send a request and pass on everything up to its answer."""
        await _finished(before)
        try:
            try:
                await self._ask_server(id, message, line)
            except SessionGone as lost:
                await self._renew(lost.session)
                await self._ask_server(id, message, line)
        except SessionGone:
            await self._lose_session()
        except HttpFailed as error:
            await self._refuse(id, error.failure)
        except Exception as error:
            await self._refuse(id, Failure(Code.INTERNAL, f"a bug in plugbay: {type(error).__name__}"))
            raise

    async def _ask_server(self, id: Any, message: dict[str, Any], line: bytes) -> None:
        method, params = message["method"], as_object(message.get("params"))
        session = "" if method == messages.INITIALIZE else None
        if method == messages.INITIALIZE and id != RENEWAL:
            self._session = self._revision = ""
            self._greeting = message
        modern = messages.VERSION in as_object(params.get("_meta"))
        extra = http_headers.modern_headers(message, self._schemas.get(str(params.get("name")))) if modern else {}
        async with self._exchange("POST", extra, line, session=session) as response:
            if response.status >= 300:
                await self._pass_error(id, response)
                return
            if id == RENEWAL:
                self._next_session = response.headers.get("mcp-session-id", "")
            elif method == messages.INITIALIZE:
                self._session = response.headers.get("mcp-session-id", "")
            if response.status == 202:
                raise self._malformed("accepted a request without an answer (status 202)")
            if response.media_type == JSON:
                if not await self._pass(await response.body(), id):
                    raise self._malformed("answered with a message that is not the answer")
                return
            if response.media_type != STREAM:
                raise self._no_mcp(response)
            ended = await self._pass_stream(response, id)
        if not ended.answered:
            await self._resume(id, ended)

    async def _resume(self, id: Any, ended: StreamEnd) -> None:
        """The stream ended before the answer: continue after its last event, if events have ids."""
        failures = 0
        while ended.last_id and failures < MAX_EMPTY:
            await asyncio.sleep(min(FIRST_DELAY * failures if ended.retry is None else ended.retry, LONGEST_DELAY))
            failures += 1
            try:
                following = await self._get_stream(ended.last_id, id)
            except HttpFailed:
                continue
            if following is None:
                break
            if following.answered:
                return
            failures = 0 if following.messages else failures
            ended = StreamEnd(following.last_id or ended.last_id, following.retry or ended.retry)
        text = f"the connection to {self._where} ended before the answer"
        raise failed(Code.UNAVAILABLE, text, "the server may have done the work; check before you call again")

    async def _get_stream(self, last_id: str, id: Any, read_seconds: float | None = None) -> StreamEnd | None:
        """Pass on the messages of a stream that continues after an event; None: the server has no such stream."""
        extra = {"Last-Event-ID": last_id} if last_id else {}
        async with self._exchange("GET", extra, read_seconds=read_seconds) as response:
            if response.status != 200 or response.media_type != STREAM:
                return None
            return await self._pass_stream(response, id)

    async def _pass_stream(self, response: Response, id: Any) -> StreamEnd:
        """Pass on the messages of a stream up to the answer to `id`."""
        parser, ended = EventParser(), StreamEnd()
        try:
            async for event in _events(response, parser):
                ended.last_id, ended.messages = event.id, ended.messages + 1
                if await self._pass(event.data, id):
                    ended.answered = True
                    break
        except HttpFailed as error:
            if error.failure.code not in (Code.UNAVAILABLE, Code.TIMEOUT):
                raise
        ended.retry = parser.retry
        return ended

    async def _pass(self, data: bytes, id: Any) -> bool:
        """Pass on one body, which is a message or a batch; whether the answer to `id` was in it."""
        try:
            value = self._codec.decode(data)
        except Malformed as error:
            raise self._malformed(f"sent a message that cannot be read: {error}") from None
        answered = False
        for message in value if isinstance(value, list) else [value]:
            if not isinstance(message, dict):
                raise self._malformed("sent a message that is not an object")
            is_answer = "method" not in message and "id" in message
            if is_answer and id is not None and message["id"] == id:
                self._observe(id, message)
                answered = True
            await self._write(message)
        return answered

    def _observe(self, id: Any, message: dict[str, Any]) -> None:
        """Remember what later requests repeat in their headers."""
        result, method = as_object(message.get("result")), self._methods.get(id)
        if method == messages.INITIALIZE and result:
            self._welcome = result
            self._revision = messages.as_text(result.get("protocolVersion")) or messages.REVISIONS[0]
        elif method == "tools/list":
            for tool in result.get("tools") or ():
                self._schemas[str(as_object(tool).get("name"))] = as_object(tool).get("inputSchema")

    # The stream of the server's own messages.

    async def _listen(self) -> None:
        last_id, empty, delay = "", 0, FIRST_DELAY
        while empty < MAX_EMPTY:
            try:
                ended = await self._get_stream(last_id, None, SILENT_SECONDS)
            except SessionGone as lost:
                if not await self._try_renew(lost.session):
                    return
                last_id = ""
            except HttpFailed as error:
                if error.failure.code == Code.CAPABILITY_NOT_ALLOWED:
                    return
                delay = min(2 * delay, LONGEST_DELAY)
            else:
                if ended is None:  # usually 405: it has none
                    return
                empty = 0 if ended.messages else empty + 1
                last_id, delay = ended.last_id or last_id, FIRST_DELAY if ended.retry is None else ended.retry
            await asyncio.sleep(min(delay, LONGEST_DELAY))

    # A lost session.

    async def _try_renew(self, lost: str) -> bool:
        try:
            await self._renew(lost)
        except SessionGone:
            await self._lose_session()
            return False
        except HttpFailed as error:
            self._log(f"the session could not be renewed: {error}")
        return True

    async def _renew(self, lost: str) -> None:
        """Begin a session in place of a lost one. Raises `SessionGone` if the host has to greet the server again."""
        async with self._renewing:
            if self._session != lost:
                return  # another request has renewed it
            if self._has_state or self._renewals >= MAX_RENEWALS:
                raise SessionGone(lost)
            self._renewals += 1
            before, self._welcome = self._welcome, {}
            self._methods[RENEWAL] = messages.INITIALIZE
            try:
                greeting = {**self._greeting, "id": RENEWAL}
                await self._ask_server(RENEWAL, greeting, self._codec.encode(greeting))
                if self._welcome != before:
                    raise SessionGone(lost)
                async with self._exchange("POST", {}, INITIALIZED, session=self._next_session):
                    pass
            except HttpFailed:
                self._welcome = before
                raise
            self._session = self._next_session
            for changed, kind in messages.LIST_CHANGED.items():
                if kind in as_object(before.get("capabilities")):
                    await self._write({"jsonrpc": "2.0", "method": changed})

    async def _lose_session(self) -> None:
        """Answer everything that waits, and end."""
        if self.gone.is_set():
            return
        self.gone.set()
        text = f"{self._where} ended the session"
        self._log(text)
        for id in list(self._requests):
            hint = "the next call begins a new session"
            failure = Failure(Code.UNAVAILABLE, text, origin=Origin.PLUGIN, detail={"hint": hint}, retryable=True)
            await self._refuse(id, failure)

    async def close(self) -> None:
        """Cancel everything that is open and end the session."""
        tasks = [*self._requests.values(), self._listening, self._notifying]
        for task in filter(None, tasks):
            task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
        if self._session and not self.gone.is_set():
            with contextlib.suppress(HttpFailed, SessionGone, TimeoutError):
                async with asyncio.timeout(DELETE_SECONDS), self._exchange("DELETE", {}):
                    pass

    # HTTP.

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        extra: Mapping[str, str],
        body: bytes | None = None,
        read_seconds: float | None = None,
        session: str | None = None,
    ) -> AsyncIterator[Response]:
        """The response to one request; a login that expired is refreshed once. Raises `HttpFailed`, `SessionGone`.

        `session`: another one than that of the conversation.
        """
        session = self._session if session is None else session
        for attempt in (1, 2):
            token = None if self._login is None else await self._login.token()
            fields = self._fields(method, extra, token, session)
            async with self._http.send(method, self._url, fields, body, read_seconds) as response:
                if response.status == 401 and attempt == 1 and self._login and await self._login.refresh(token):
                    continue
                if response.status in (401, 403):
                    raise HttpFailed(await self._denied(response))
                if response.status == 404 and session:
                    raise SessionGone(session)
                yield response
                return

    def _fields(self, method: str, extra: Mapping[str, str], token: str | None, session: str) -> list[tuple[str, str]]:
        fields = {"Accept": STREAM if method == "GET" else ACCEPT, **self._headers, **extra}
        if method == "POST":
            fields["Content-Type"] = JSON
        if session:
            fields[http_headers.SESSION] = session
        if self._revision:
            fields[http_headers.REVISION] = self._revision
        if token is not None:
            fields = {name: value for name, value in fields.items() if name.lower() != "authorization"}
            fields["Authorization"] = f"Bearer {token}"
        return list(fields.items())

    async def _pass_error(self, id: Any, response: Response) -> None:
        """Answer with the JSON-RPC error in the body of an HTTP error; raises `HttpFailed` if there is none."""
        if response.media_type != JSON:
            await self._raise_status(response)
        try:
            body = await response.body()
            error = as_object(self._codec.decode(body)).get("error")
        except Malformed:
            error = None
        if not isinstance(error, dict) or type(error.get("code")) is not int:
            raise HttpFailed(self._status_failure(response, ""))
        await self._write({"jsonrpc": "2.0", "id": id, "error": error})

    async def _raise_status(self, response: Response) -> None:
        raise HttpFailed(self._status_failure(response, await response.quote()))

    def _status_failure(self, response: Response, quote: str) -> Failure:
        status = response.status
        code = STATUS_CODES.get(status) or (Code.UNAVAILABLE if status >= 500 else Code.PLUGIN_ERROR)
        hints = {404: "check the path of the URL: many servers have /mcp", 405: "check the path of the URL"}
        wait = response.headers.get("retry-after", "")
        after = min(int(wait) * 1000, MAX_WAIT_MS) if wait.isdigit() and len(wait) < 7 else None
        hint = hints.get(status)
        return Failure(
            code,
            f"{self._where} answered with status {status}{f': {quote}' if quote else ''}",
            origin=Origin.PLUGIN,
            detail={"http_status": status, **({"hint": hint} if hint else {})},
            retryable=status in RETRYABLE,
            retry_after_ms=after,
        )

    async def _denied(self, response: Response) -> Failure:
        """The failure for 401 and 403: what the operator does next depends on the credentials that were sent."""
        challenge = parse_challenge(response.headers.get("www-authenticate", ""))
        text, hint = self._denial(response.status, challenge)
        detail = {"http_status": response.status, "hint": hint}
        return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.PLUGIN, detail=detail)

    def _denial(self, status: int, challenge: Challenge) -> tuple[str, str]:
        login = f"plugbay mcp login {self._name}"
        if status == 403 and challenge.error == "insufficient_scope":
            wanted = f' --scope "{challenge.scope}"' if challenge.scope else ""
            return f"{self._where} requires more rights than the login has (insufficient_scope)", f"{login}{wanted}"
        if status == 403:
            return f"{self._where} refused access (status 403)", "check the rights of the account, or the headers"
        if self._login is not None:
            return f"the login for {self._where} has expired or was revoked; run {login}", login
        if any(name.lower() == "authorization" for name in self._headers):
            return f"{self._where} refused the credentials in headers (status 401)", "check the header Authorization"
        return f"{self._where} requires a login; run {login}", f"{login}, or declare headers with a token"

    def _no_mcp(self, response: Response) -> HttpFailed:
        kind = response.media_type[:80] or "no content type"
        what = "a web page" if "html" in kind else kind
        text = f"{self._where} answered with {what} instead of MCP"
        return failed(Code.MALFORMED_RESPONSE, text, "check the path of the URL: many servers have /mcp")

    def _malformed(self, what: str) -> HttpFailed:
        return failed(Code.MALFORMED_RESPONSE, f"{self._where} {what}")

    # Messages to the host.

    async def _refuse(self, id: Any, failure: Failure) -> None:
        _, text, data = errors.to_error(type(None), failure)
        await self._write(
            {"jsonrpc": "2.0", "id": id, "error": {"code": errors.INTERNAL_ERROR, "message": text, "data": data}}
        )

    async def _write(self, message: dict[str, Any]) -> None:
        if message.get("id") == RENEWAL:
            return
        await self._send(self._redact(self._codec.encode(message)) + b"\n")

    def _log(self, text: str) -> None:
        _log(self._redact(text.encode()).decode())

    def _redact(self, data: bytes) -> bytes:
        for secret in self._secrets():
            data = data.replace(secret, HIDDEN)
        return data

    def _secrets(self) -> list[bytes]:
        """The credentials in use, as they would appear in a message that repeats them."""
        sensitive = [value.rpartition(" ")[2] for name, value in self._headers.items() if remote.is_sensitive(name)]
        known = [*sensitive, *(() if self._login is None else self._login.secrets())]
        return [json.dumps(text)[1:-1].encode() for text in known if len(text) >= SHORTEST_SECRET]


async def _events(response: Response, parser: EventParser) -> AsyncIterator[StreamEvent]:
    async for piece in response.pieces():
        for event in parser.feed(piece):
            yield event


async def _finished(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        await asyncio.wait({task})


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # the host keeps the program's stderr


# The program.


def main() -> int:
    """Run the bridge that the environment declares; the exit status."""
    environ = dict(os.environ)
    name = environ.get(remote.NAME_VARIABLE, "")
    url = remote.read_url(environ.get(remote.URL_VARIABLE, ""))
    headers = {
        key.removeprefix(remote.HEADER_VARIABLE): value
        for key, value in environ.items()
        if key.startswith(remote.HEADER_VARIABLE)
    }
    problem = remote.headers_problem(headers)
    if isinstance(url, str):
        _log(f"the URL of {name or 'the server'} {url}")
        return 2
    if problem is not None:
        _log(f"the header {problem[0]} {problem[1]}")
        return 2
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        asyncio.run(_serve(name, url, headers, environ))
    return 0


async def _serve(name: str, url: Url, headers: Mapping[str, str], environ: Mapping[str, str]) -> None:
    reader, writer = await _standard_streams()

    async def send(line: bytes) -> None:
        writer.write(line)
        await writer.drain()

    http = HttpClient(environ)
    folder = environ.get(remote.FOLDER_VARIABLE)
    given = json.loads(environ.get(remote.LOGIN_VARIABLE, "{}"))
    # A login for another URL stays unused: its token would be handed to a stranger.
    usable = covers(str(given.get("resource", "")), url)
    login = Login(given, http, Path(folder) if folder else None) if usable else None
    bridge = Bridge(name, url, headers, http, send, login)
    gone = asyncio.ensure_future(bridge.gone.wait())
    reading = asyncio.ensure_future(_read(reader, bridge))
    try:
        await asyncio.wait({gone, reading}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (gone, reading):
            task.cancel()
        await bridge.close()
        await http.aclose()


async def _read(reader: asyncio.StreamReader, bridge: Bridge) -> None:
    while line := await reader.readline():
        bridge.take(line)


async def _standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2 * messages.MAX_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
