"""HTTP connection to one OCI registry: TLS, timeouts, authorization, and errors.

TLS is required except for loopback and for registries that the operator names. Credentials (of `docker login`) go only
to the registry and to the token service it names, never to redirect targets. With `opened`, only public addresses and
the opened ones are reachable: pass it for requests on behalf of API callers. Digests are checked by `registry`.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import msgspec

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.reference import Reference, Registries, is_loopback, is_named

if TYPE_CHECKING:
    import httpx2

MAX_CONFIG = 1 << 20

_PARAMETER = re.compile(r'([A-Za-z]+)="((?:[^"\\]|\\.)*)"')

CONNECT_SECONDS = 10.0
STALL_SECONDS = 60.0
"""Without a byte in either direction, a transfer fails."""

LONGEST_SECONDS = 3600.0
"""Total time of a connection: the largest package at 15 KiB per second."""

MIN_RATE, RATE_SECONDS = 1024, 30.0
"""Bytes per second that a response must have, on average over these seconds."""

CHUNK = 256 << 10
MAX_TOKEN = 64 << 10
MAX_ERROR = 16 << 10
"""Bytes read of a token response, and of an error response."""

MAX_TAGS = 1 << 20
"""Bytes read of one page of tags."""
TAGS_PER_PAGE, MAX_TAG_PAGES = 1000, 20
"""A registry may put fewer on a page."""

FOLLOWS_REDIRECTS = frozenset({"GET", "HEAD"})
"""Redirects are followed for downloads only; for uploads the registry names the location."""

PULL, PUSH = "pull", "pull,push"

NO_EXCEPTIONS = Registries()


class Challenge(msgspec.Struct, frozen=True):
    """An authentication challenge of a registry."""

    scheme: str
    """`basic` or `bearer`."""
    parameters: Mapping[str, str]


def parse_challenge(header: str) -> Challenge:
    """Parse the first challenge of `WWW-Authenticate`."""
    scheme, _, rest = header.strip().partition(" ")
    found = {name.lower(): re.sub(r"\\(.)", r"\1", value) for name, value in _PARAMETER.findall(rest)}
    return Challenge(scheme.lower(), found)


def docker_config(environment: Mapping[str, str]) -> Path:
    """Path of the file in which `docker login` and other tools store credentials."""
    folder = environment.get("DOCKER_CONFIG") or os.path.join(environment.get("HOME", ""), ".docker")
    return Path(folder) / "config.json"


def credentials(registry: str, config: Path) -> tuple[str, str] | None:
    """User and password for a registry; None when the file has none. Credential helpers are not started."""
    try:
        with open(config, "rb") as file:
            entries = json.loads(file.read(MAX_CONFIG))["auths"]
        entry = entries.get(registry) or entries.get(f"https://{registry}") or {}
        user, colon, password = binascii.a2b_base64(entry["auth"]).decode().partition(":")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return (user, password) if colon else None


def basic(user: str, password: str) -> str:
    """The `Authorization` header for a user and a password."""
    return "Basic " + binascii.b2a_base64(f"{user}:{password}".encode(), newline=False).decode()


Content = Callable[[], Iterable[bytes]]
"""Makes the request body; called again when the request is repeated after a challenge."""


class Watchdog:
    """Ends all connections when their time is over. Timeouts of the HTTP library count from the last byte, so a
    server that sends one byte a minute never reaches them.
    """

    def __init__(self, seconds: float) -> None:
        self.minutes = seconds / 60
        self.expired = False
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self.expire)
        self._timer.daemon = True
        self._timer.start()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by the HTTP library with each step of a request."""
        if event == "connection.connect_tcp.complete":
            # A duplicate, because TLS takes the socket itself away.
            connected = info["return_value"].get_extra_info("socket").dup()
            with self._lock:
                self._sockets.append(connected)
                self._end_if_expired()

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            while self._sockets:
                self._sockets.pop().close()

    def expire(self) -> None:
        """End the time now."""
        with self._lock:
            self.expired = True
            self._end_if_expired()

    def _end_if_expired(self) -> None:
        for connected in self._sockets if self.expired else ():
            with suppress(OSError):  # it has ended before
                connected.shutdown(socket.SHUT_RDWR)


class Connection:
    """Requests to the registry of one reference."""

    def __init__(
        self,
        reference: Reference,
        *,
        plain_http: bool = False,
        actions: str = PULL,
        opened: Collection[str] | None = None,
        registries: Registries = NO_EXCEPTIONS,
        seconds: float | None = None,
    ) -> None:
        """`opened`: each non-public `address:port` that may be reached; None: all addresses may be reached. `seconds`:
        the total time. A registry in `registries.plain_http` is asked without TLS; another one on this machine if
        `plain_http` is set.
        """
        named = reference.registry in registries.plain_http
        if plain_http and not (named or reference.is_local):
            text = f"{reference.registry} is not on this machine, so TLS is required"
            hint = f"leave out --plain-http, or allow it in plugbay.toml: {_plain_setting(reference.registry)}"
            raise PackageRefused(Reason.INSECURE_TRANSPORT, text, hint=hint)
        self._reference = reference
        self._registries = registries
        self._scheme = "http" if plain_http or named else "https"
        self._actions = actions
        self._authorization = ""
        self._client = _client(
            f"{self._scheme}://{reference.registry}", self._check_request, opened, registries.private
        )
        self._watchdog = Watchdog(LONGEST_SECONDS if seconds is None else seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()
        self._watchdog.close()

    def abort(self) -> None:
        """End the current request and all later ones with an error; from any thread."""
        self._watchdog.expire()

    def manifest(self, reference: Reference, media_type: str, limit: int) -> bytes | None:
        """The manifest of a tag or digest; None when there is none. Reads at most `limit` bytes."""
        headers = {"accept": media_type}
        with self._answer("GET", f"manifests/{reference.wanted}", headers=headers, fine=(200, 404)) as answer:
            return None if answer.status_code == 404 else self._read(answer, limit)

    def tags(self) -> list[str]:
        """All tags of the repository; none if the registry does not have it. Raises for more than `MAX_TAG_PAGES`."""
        found: list[str] = []
        for _ in range(MAX_TAG_PAGES):
            last = f"&last={quote(found[-1], safe='')}" if found else ""
            with self._answer("GET", f"tags/list?n={TAGS_PER_PAGE}{last}", fine=(200, 404)) as answer:
                document = {} if answer.status_code == 404 else _json(self._read(answer, MAX_TAGS))
                more = "link" in answer.headers
            page = document.get("tags")
            tags = [tag for tag in page if isinstance(tag, str)] if isinstance(page, list) else []
            found += tags
            if not (more and tags):
                return found
        raise self._failed(f"has more than {len(found):,} tags in {self._reference.repository}")

    def put_manifest(self, tag: str, media_type: str, data: bytes) -> None:
        """Store a manifest under a tag."""
        headers = {"content-type": media_type}
        with self._answer("PUT", f"manifests/{tag}", headers=headers, content=lambda: [data], fine=(201,)):
            pass

    def has_blob(self, digest: str) -> bool:
        with self._answer("HEAD", f"blobs/{digest}", fine=(200, 404)) as answer:
            return bool(answer.status_code == 200)

    def put_blob(self, digest: str, size: int, content: Content) -> None:
        """Upload a blob in one request."""
        with self._answer("POST", "blobs/uploads/", fine=(202,)) as answer:
            place = answer.url.join(answer.headers.get("location", "")).copy_merge_params({"digest": digest})
        headers = {"content-type": "application/octet-stream", "content-length": str(size)}
        with self._answer("PUT", str(place), headers=headers, content=content, fine=(201,)):
            pass

    @contextmanager
    def blob(self, digest: str) -> Iterator[Iterator[bytes]]:
        """The bytes of a blob; neither digest nor size is checked."""
        with self._answer("GET", f"blobs/{digest}", fine=(200,)) as answer:
            yield self._chunks(answer)

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
        """Send one request; repeat it once after an authentication challenge."""
        url = where if "://" in where else f"/v2/{self._reference.repository}/{where}"
        answer = self._send(method, url, headers, content)
        if answer.status_code == 401 and self._is_registry(answer.url) and not self._is_authorized(answer):
            answer.close()
            self._authorization = self._authorize(parse_challenge(answer.headers.get("www-authenticate", "")))
            answer = self._send(method, url, headers, content)
        with closing(answer), self._report_errors("closed the connection too early"):
            if answer.status_code not in fine:
                raise self._refused(answer)
            yield answer

    def _send(self, method: str, url: str, headers: dict[str, str] | None, content: Content | None) -> httpx2.Response:
        with self._report_errors("cannot be reached"):
            request = self._client.build_request(method, url, headers=headers, content=content() if content else None)
            if self._is_registry(request.url) and self._authorization:
                request.headers["authorization"] = self._authorization
            return self._client.send(request, stream=True, follow_redirects=method in FOLLOWS_REDIRECTS)

    def _is_registry(self, url: httpx2.URL) -> bool:
        """Whether a URL is on the registry itself, not on a redirect target."""
        ours = self._client.base_url
        return (url.scheme, url.netloc) == (ours.scheme, ours.netloc)

    def _is_authorized(self, answer: httpx2.Response) -> bool:
        return self._authorization != "" and answer.request.headers.get("authorization") == self._authorization

    def _authorize(self, challenge: Challenge) -> str:
        """The `Authorization` header for a challenge; empty when there are no credentials for it."""
        known = credentials(self._reference.registry, docker_config(os.environ))
        if challenge.scheme != "bearer":
            return basic(*known) if known else ""
        asked = {
            "service": challenge.parameters.get("service", ""),
            "scope": f"repository:{self._reference.repository}:{self._actions}",
        }
        headers = {"authorization": basic(*known)} if known else {}
        found = self._token(challenge.parameters.get("realm", ""), asked, headers)
        token = found.get("token") or found.get("access_token")
        return f"Bearer {token}" if isinstance(token, str) else ""

    def _token(self, realm: str, asked: dict[str, str], headers: dict[str, str]) -> dict[str, Any]:
        """The response of the registry's token service; empty when it refuses."""
        with self._report_errors("has a token service that cannot be reached"):
            request = self._client.build_request("GET", realm, params=asked, headers=headers)
            with closing(self._client.send(request, stream=True, follow_redirects=True)) as answer:
                return _json(self._read(answer, MAX_TOKEN)) if answer.status_code == 200 else {}

    def _check_request(self, request: httpx2.Request) -> None:
        """Raises for requests without TLS; redirects are checked too. Lets the watchdog see their connections."""
        url = request.url
        local = self._scheme == "http" and self._reference.is_local and is_loopback(url.host)
        named = is_named(self._registries.plain_http, url.host, url.port or 80)
        if url.scheme != "https" and not (local or named):
            text = f"{self._reference.registry} redirects to {url.host} without TLS"
            raise PackageRefused(Reason.INSECURE_TRANSPORT, text)
        request.extensions["trace"] = self._watchdog.trace

    def _chunks(self, answer: httpx2.Response) -> Iterator[bytes]:
        """The body in chunks; raises if it comes too slowly."""
        began, received = time.monotonic(), 0
        for piece in answer.iter_raw():
            received += len(piece)
            passed = time.monotonic() - began
            if passed >= RATE_SECONDS:
                if received < MIN_RATE * passed:
                    raise self._failed(f"sends less than {MIN_RATE:,} bytes a second")
                began, received = time.monotonic(), 0
            yield piece
        if self._watchdog.expired:
            raise self._out_of_time()

    def _read(self, answer: httpx2.Response, limit: int) -> bytes:
        data = b""
        for piece in self._chunks(answer):
            data += piece
            if len(data) > limit:
                text = f"{answer.url.host} sends more than {limit:,} bytes; a few hundred are expected"
                raise PackageRefused(Reason.TOO_LARGE, text, limit=limit)
        return data

    def _complaint(self, answer: httpx2.Response) -> str:
        """The error text of a registry, if it follows the protocol."""
        try:
            errors = _json(self._read(answer, MAX_ERROR)).get("errors")
        except PackageRefused:
            return ""  # not JSON, perhaps the error page of a proxy; the status is enough
        first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
        return f": {first['code']}: {first.get('message', '')}" if "code" in first else ""

    def _refused(self, answer: httpx2.Response) -> PackageRefused:
        registry = self._reference.registry
        if not self._is_registry(answer.url):
            return self._failed(f"redirects to {answer.url.host}, which answered {answer.status_code}")
        if answer.status_code in {401, 403}:
            text = f"{registry} does not allow you to {self._actions.split(',')[-1]} {self._reference.repository}"
            return PackageRefused(Reason.UNAUTHORIZED, text, hint=f"log in with: docker login {registry}")
        if answer.status_code == 404:
            return PackageRefused(
                Reason.NOT_FOUND, f"{registry} has no such tag or digest in {self._reference.repository}"
            )
        return self._failed(f"answered {answer.status_code}{self._complaint(answer)}")

    @contextmanager
    def _report_errors(self, what: str) -> Iterator[None]:
        """Turn exceptions of the HTTP library into `PackageRefused`; UnicodeError comes from invalid host names."""
        import httpx2

        try:
            yield
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            if self._watchdog.expired:
                raise self._out_of_time() from error
            words = re.sub(r"^\[Errno -?\d+\] ", "", str(error))
            raise self._failed(
                f"{what}: {words or type(error).__name__}", "check its name, and that it runs"
            ) from error

    def _out_of_time(self) -> PackageRefused:
        return self._failed(
            f"takes more than {self._watchdog.minutes:.0f} minutes for one package, or the pull was cancelled"
        )

    def _failed(self, text: str, hint: str = "") -> PackageRefused:
        if self._reference.is_local and self._scheme == "https":
            setting = _plain_setting(self._reference.registry)
            hint = f"for a registry on this machine without a certificate, use --plain-http or {setting}"
        return PackageRefused(Reason.REGISTRY_FAILED, f"{self._reference.registry} {text}", hint=hint)


def _plain_setting(registry: str) -> str:
    return f'[registries."{registry}"] plain_http = true'


def _client(
    registry: str,
    on_request: Callable[[httpx2.Request], None],
    opened: Collection[str] | None,
    private: Collection[str],
) -> httpx2.Client:
    try:
        import httpx2

        from plugbay.packages.checked_transport import CheckedTransport, trusted_certificates
    except ImportError:
        text = "registries need the library httpx2, which is not installed"
        raise PackageRefused(Reason.MISSING_EXTRA, text, hint="pip install 'plugbay[oci]'") from None
    return httpx2.Client(
        base_url=registry,
        transport=None if opened is None else CheckedTransport(opened, private),
        verify=trusted_certificates(),
        # No proxy for loopback: without TLS it could read along. And no proxy past the address check.
        trust_env=opened is None and registry.startswith("https://"),
        timeout=httpx2.Timeout(STALL_SECONDS, connect=CONNECT_SECONDS),
        event_hooks={"request": [on_request]},
        headers={"user-agent": "plugbay", "accept-encoding": "identity"},
    )


def _json(data: bytes) -> dict[str, Any]:
    import json

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
