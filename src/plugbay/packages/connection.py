"""HTTP with one OCI registry: the six requests that packages need, and nothing else of the protocol.

Owns TLS, timeouts, authorization, and what a status of a registry means. Knows no digests' truth: `registry` checks
what comes. TLS always, but for a registry on this machine; credentials go to the registry and nowhere else, whatever
it redirects to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Self

from plugbay.packages import login
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.reference import Reference

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 10.0
STALL_SECONDS = 60.0
"""Without a byte in either direction, a transfer is given up."""

CHUNK = 256 << 10
MAX_TOKEN = 64 << 10
MAX_COMPLAINT = 16 << 10
"""Bytes read of a token, and of what a registry has to say about an error."""

PULL, PUSH = "pull", "pull,push"

Content = Callable[[], Iterable[bytes]]
"""A body, to be sent once more after a challenge."""


class Connection:
    """Requests to the registry of one reference."""

    def __init__(self, reference: Reference, *, plain_http: bool = False, actions: str = PULL) -> None:
        if plain_http and not reference.is_local:
            text = f"{reference.registry} is not on this machine, so it is asked over TLS only"
            raise PackageRefused(Reason.INSECURE_TRANSPORT, text, hint="leave out --plain-http")
        self._reference = reference
        self._scheme = "http" if plain_http else "https"
        self._actions = actions
        self._base = f"{self._scheme}://{reference.registry}"
        self._authorization = ""
        self._client = _client(self._require_secure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def manifest(self, reference: Reference, media_type: str, limit: int) -> bytes | None:
        """The manifest under a tag or digest; None when there is none. Never more than `limit` bytes."""
        headers = {"accept": media_type}
        with self._answer("GET", f"manifests/{reference.wanted}", headers=headers, fine=(200, 404)) as answer:
            return None if answer.status_code == 404 else _read(answer, limit)

    def put_manifest(self, tag: str, media_type: str, data: bytes) -> None:
        """Put a manifest under a tag."""
        headers = {"content-type": media_type}
        with self._answer("PUT", f"manifests/{tag}", headers=headers, content=lambda: [data], fine=(201,)):
            pass

    def has_blob(self, digest: str) -> bool:
        with self._answer("HEAD", f"blobs/{digest}", fine=(200, 404)) as answer:
            return bool(answer.status_code == 200)

    def put_blob(self, digest: str, size: int, content: Content) -> None:
        """Upload a blob in one go."""
        with self._answer("POST", "blobs/uploads/", fine=(202,)) as answer:
            place = answer.url.join(answer.headers.get("location", ""))
        place = place.copy_merge_params({"digest": digest})
        headers = {"content-type": "application/octet-stream", "content-length": str(size)}
        with self._answer("PUT", str(place), headers=headers, content=content, fine=(201,)):
            pass

    @contextmanager
    def blob(self, digest: str) -> Iterator[Iterator[bytes]]:
        """The bytes of a blob as they come; unchecked, and as many as the registry sends."""
        with self._answer("GET", f"blobs/{digest}", fine=(200,)) as answer:
            try:
                yield answer.iter_raw(CHUNK)
            except _errors() as error:
                raise self._failed(f"the transfer broke off: {str(error) or type(error).__name__}") from error

    @contextmanager
    def _answer(
        self,
        method: str,
        where: str,
        *,
        fine: tuple[int, ...],
        headers: dict[str, str] | None = None,
        content: Content | None = None,
    ) -> Iterator[httpx2.Response]:
        """One request, repeated once when the registry first wants to know who asks."""
        url = where if "://" in where else f"{self._base}/v2/{self._reference.repository}/{where}"
        answer = self._send(method, url, headers, content)
        if answer.status_code == 401 and not self._is_tried(answer):
            answer.close()
            self._authorization = self._authorize(login.parse_challenge(answer.headers.get("www-authenticate", "")))
            answer = self._send(method, url, headers, content)
        try:
            if answer.status_code not in fine:
                raise self._refused(answer)
            yield answer
        finally:
            answer.close()

    def _send(self, method: str, url: str, headers: dict[str, str] | None, content: Content | None) -> httpx2.Response:
        request = self._client.build_request(method, url, headers=headers, content=content() if content else None)
        if request.url.netloc.decode() == self._reference.registry and self._authorization:
            request.headers["authorization"] = self._authorization
        try:
            return self._client.send(request, stream=True)
        except _errors() as error:
            raise self._failed(f"cannot be reached: {str(error) or type(error).__name__}") from error

    def _is_tried(self, answer: httpx2.Response) -> bool:
        return self._authorization != "" and answer.request.headers.get("authorization") == self._authorization

    def _authorize(self, challenge: login.Challenge) -> str:
        """What to send from now on; empty when the registry wants something we do not have."""
        known = login.credentials(self._reference.registry, login.docker_config(os.environ))
        if challenge.scheme != "bearer":
            return login.basic(*known) if known else ""
        asked = {
            "service": challenge.parameters.get("service", ""),
            "scope": f"repository:{self._reference.repository}:{self._actions}",
        }
        headers = {"authorization": login.basic(*known)} if known else {}
        found = self._token(challenge.parameters.get("realm", ""), asked, headers)
        token = found.get("token") or found.get("access_token")
        return f"Bearer {token}" if isinstance(token, str) else ""

    def _token(self, realm: str, asked: dict[str, str], headers: dict[str, str]) -> dict[str, Any]:
        """What the registry's token service answers; nothing when it refuses."""
        try:
            request = self._client.build_request("GET", realm, params=asked, headers=headers)
            with closing(self._client.send(request, stream=True)) as answer:
                return _json(_read(answer, MAX_TOKEN)) if answer.status_code == 200 else {}
        except _errors() as error:
            raise self._failed(f"has a token service that cannot be reached: {error}") from error

    def _require_secure(self, request: httpx2.Request) -> None:
        """Also for what a registry redirects to."""
        if request.url.scheme != "https" and self._scheme == "https":
            text = f"{self._reference.registry} sends us to {request.url.host} without TLS"
            raise PackageRefused(Reason.INSECURE_TRANSPORT, text)

    def _refused(self, answer: httpx2.Response) -> PackageRefused:
        registry = self._reference.registry
        if answer.status_code in {401, 403}:
            text = f"{registry} does not let us {self._actions.split(',')[-1]} {self._reference.repository}"
            return PackageRefused(Reason.UNAUTHORIZED, text, hint=f"docker login {registry} tells it who you are")
        if answer.status_code == 404:
            return PackageRefused(Reason.NOT_FOUND, f"{registry} has no such thing in {self._reference.repository}")
        return self._failed(f"answered {answer.status_code}{_complaint(answer)}")

    def _failed(self, text: str) -> PackageRefused:
        hint = ""
        if self._reference.is_local and self._scheme == "https":
            hint = "a registry on this machine that has no certificate is asked with --plain-http"
        return PackageRefused(Reason.REGISTRY_FAILED, f"{self._reference.registry} {text}", hint=hint)


def _client(on_request: Callable[[httpx2.Request], None]) -> httpx2.Client:
    try:
        import httpx2
    except ImportError:
        text = "registries need the library httpx2, which is not installed"
        raise PackageRefused(Reason.MISSING_EXTRA, text, hint="pip install 'plugbay[oci]'") from None
    return httpx2.Client(
        follow_redirects=True,
        timeout=httpx2.Timeout(STALL_SECONDS, connect=CONNECT_SECONDS),
        event_hooks={"request": [on_request]},
        headers={"user-agent": "plugbay", "accept-encoding": "identity"},
    )


def _errors() -> tuple[type[Exception], ...]:
    """Everything the library raises about the other side."""
    import httpx2

    return (httpx2.HTTPError, httpx2.InvalidURL)


def _read(answer: httpx2.Response, limit: int) -> bytes:
    data = b""
    for piece in answer.iter_raw(CHUNK):
        data += piece
        if len(data) > limit:
            text = f"{answer.url.host} sends more than {limit:,} bytes where a few hundred are expected"
            raise PackageRefused(Reason.TOO_LARGE, text, limit=limit)
    return data


def _complaint(answer: httpx2.Response) -> str:
    """What the registry says about it, if it says so as the protocol has it."""
    errors = _json(_read(answer, MAX_COMPLAINT)).get("errors")
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    return f": {first['code']}: {first.get('message', '')}" if "code" in first else ""


def _json(data: bytes) -> dict[str, Any]:
    import json

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
