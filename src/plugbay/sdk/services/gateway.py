"""`ctx.gateway`: the host's API, with the rights of one call.

    chain = ctx.gateway.get("/v1/chains/ch_123")
    run = ctx.gateway.post("/v1/runs", {"session_id": …})

A request goes to the host only and follows no redirect, carries one idempotency key however often it is sent, ends with
the call, and its token appears in no error and no `repr`. Loads `urllib` with the first request, which takes 60 ms.
"""

from __future__ import annotations

from itertools import count

from plugbay.sdk.declarations import seconds
from plugbay.sdk.errors import HandlerError
from plugbay.sdk.services.cancellation import DEADLINE, cancelled_error
from plugbay.wire.strict_json import Malformed, stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

REQUEST_SECONDS = 30.0
"""Default of the seconds without an answer of the gateway; the call's deadline may be earlier."""

MAX_ANSWER = 32 << 20
"""Bytes of an answer: four times the largest that can be passed on to the host."""

READS = ("GET", "HEAD")
"""Methods that change nothing, so that it does not matter how often they are sent."""


class GatewayError(HandlerError):
    """The gateway refused or failed a request. `code` is its error code, `status` the HTTP status, 0 without an answer.

    Let through, it is the handler's own answer: one that may be tried again if the gateway's may.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        details: Any = None,
        request_id: str | None = None,
        retryable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms)
        self.status = status
        self.code = code or f"gateway.status_{status}"
        self.details = details
        self.request_id = request_id
        self.retryable = retryable


class GatewayDenied(GatewayError):
    """The token lacks the scope, or a limit of the policy was reached, or it is no longer good."""


class GatewayNotFound(GatewayError):
    """It does not exist, or it belongs to another org."""


class GatewayConflict(GatewayError):
    """The request conflicts with the current state."""


class GatewayUnavailable(GatewayError):
    """Not now: it could not be reached, did not answer in time, or has too much to do."""


_BY_STATUS = {401: GatewayDenied, 403: GatewayDenied, 404: GatewayNotFound, 409: GatewayConflict}
_NOT_NOW = (408, 425, 429)


class Gateway:
    """A client for plain handlers. `scopes` are the scopes of the token."""

    __slots__ = ("_base_url", "_keys", "_remaining", "_token", "scopes")

    def __init__(
        self,
        base_url: str,
        token: str,
        scopes: tuple[str, ...],
        invocation_id: str,
        remaining: Callable[[], float | None],
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._keys = (f"{invocation_id}:{number}" for number in count(1))
        self._remaining = remaining
        self.scopes = scopes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base_url!r}, scopes={self.scopes!r})"

    def get(self, path: str, params: Mapping[str, Any] | None = None, *, timeout: float = REQUEST_SECONDS) -> Any:
        """The JSON that is there; `params` go into the query."""
        return self.request("GET", path, params=params, timeout=timeout)

    def post(
        self, path: str, json: Any = None, *, idempotency_key: str | None = None, timeout: float = REQUEST_SECONDS
    ) -> Any:
        """Send a POST request; returns the answer."""
        return self.request("POST", path, json, idempotency_key=idempotency_key, timeout=timeout)

    def patch(
        self, path: str, json: Any = None, *, idempotency_key: str | None = None, timeout: float = REQUEST_SECONDS
    ) -> Any:
        """Send a PATCH request; returns the answer."""
        return self.request("PATCH", path, json, idempotency_key=idempotency_key, timeout=timeout)

    def delete(self, path: str, *, idempotency_key: str | None = None, timeout: float = REQUEST_SECONDS) -> Any:
        """Send a DELETE request; returns the answer."""
        return self.request("DELETE", path, idempotency_key=idempotency_key, timeout=timeout)

    def request(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> Any:
        """Any method. A request that changes data carries a key, so that it is done once even if it is sent again.

        Default keys are numbered within the call. A harness that continues after a break, and may repeat requests,
        passes its own keys.
        """
        return self._prepare(method, path, json, params, idempotency_key, timeout)()

    def _prepare(
        self,
        method: str,
        path: str,
        json: Any,
        params: Mapping[str, Any] | None,
        idempotency_key: str | None,
        timeout: float,
    ) -> Callable[[], Any]:
        """A function that sends this request; its key is settled now, in the order of the calls."""
        seconds("timeout", timeout)
        if not path.startswith("/"):
            raise ValueError(f"a path of the gateway begins with a slash, unlike {path!r}")
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if method not in READS:
            headers["Idempotency-Key"] = idempotency_key or next(self._keys)
        body = None if json is None else stdlib_codec().encode(json)
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = self._base_url + path + _query(params)

        def send() -> Any:
            left = self._remaining()
            if left == 0.0:
                raise cancelled_error(DEADLINE)
            return _answer(method, url, headers, body, timeout if left is None else min(timeout, left))

        return send


class AwaitableGateway(Gateway):
    """The same for async handlers: every request is awaited."""

    __slots__ = ()

    async def request(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> Any:
        import asyncio

        return await asyncio.to_thread(self._prepare(method, path, json, params, idempotency_key, timeout))


def _query(params: Mapping[str, Any] | None) -> str:
    if not params:
        return ""
    from urllib.parse import urlencode

    return f"?{urlencode({name: value for name, value in params.items() if value is not None}, doseq=True)}"


def _answer(method: str, url: str, headers: dict[str, str], body: bytes | None, timeout: float) -> Any:
    """The answer of the gateway; raises `GatewayError`."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    try:
        with _opener().open(Request(url, body, headers, method=method), timeout=timeout) as response:
            return _value(response.read(MAX_ANSWER + 1))
    except HTTPError as error:
        with error:
            raise _refused(error.code, error.read(MAX_ANSWER), error.headers) from None
    except (OSError, HTTPException) as error:  # it cannot be reached, broke off, or took too long
        why = getattr(error, "reason", None) or error
        raise GatewayUnavailable(
            f"the gateway did not answer: {why}", code="gateway.unreachable", retryable=True
        ) from None


def _opener() -> Any:
    """Sends requests and follows no redirect: the token would go along."""
    from urllib.request import HTTPRedirectHandler, build_opener

    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    return build_opener(Stay)


def _value(data: bytes) -> Any:
    if len(data) > MAX_ANSWER:
        raise GatewayError(f"the gateway's answer is longer than {MAX_ANSWER} bytes", code="gateway.invalid_answer")
    try:
        return stdlib_codec().decode(data) if data.strip() else None
    except Malformed as error:
        raise GatewayError(f"the gateway's answer cannot be read: {error}", code="gateway.invalid_answer") from None


def _refused(status: int, data: bytes, headers: Any) -> GatewayError:
    """An error as the gateway words it: `{"error": {"code", "message", "retryable", "retry_after", "details"}}`."""
    try:
        envelope = _value(data)
    except GatewayError:
        envelope = None
    said = envelope.get("error") if isinstance(envelope, dict) else None
    said = said if isinstance(said, dict) else {}
    not_now = status >= 500 or status in _NOT_NOW
    kind = GatewayUnavailable if not_now else _BY_STATUS.get(status, GatewayError)
    return kind(
        _text(said, "message") or f"the gateway answered with status {status}",
        status=status,
        code=_text(said, "code"),
        details=said.get("details"),
        request_id=_text(said, "request_id") or headers.get("X-Request-ID"),
        retryable=said["retryable"] if isinstance(said.get("retryable"), bool) else not_now,
        retry_after_ms=_milliseconds(said.get("retry_after"), headers.get("Retry-After")),
    )


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""


def _milliseconds(said: Any, header: str | None) -> int | None:
    """Seconds in the answer, or in its header."""
    if isinstance(said, int | float) and not isinstance(said, bool) and said >= 0:
        return int(said * 1000)
    return int(header) * 1000 if header is not None and header.isdigit() else None
