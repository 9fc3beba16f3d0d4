"""OAuth 2.1 as MCP has it: from a server's refusal to tokens, and their refresh.

`plugbay mcp login` discovers, registers and authorizes, and saves a login. The bridge uses a `Login`: it refreshes the
tokens and keeps new ones in the plugin's own folder. Every URL that a server names is checked before it is used, and no
message contains a token, a code or a secret.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec

from plugbay.contracts.mcp import remote
from plugbay.contracts.mcp.messages import REVISIONS, as_object, as_text
from plugbay.mcp_remote.http import JSON, STREAM, HttpClient, HttpFailed, failed
from plugbay.model.errors import Code
from plugbay.model.fetch import Url
from plugbay.model.guarded import Guarded
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

MAX_DOCUMENT = 256 << 10
"""Bytes of a metadata document or a token response."""

READ_SECONDS = 20.0
"""Silence of an authorization server after which a request to it fails."""

EARLY_SECONDS = 30.0
"""A token is refreshed this long before it expires."""

CALLBACK_PATH = "/callback"
MAX_CALLBACK = 16 << 10
"""Bytes of the request that a browser sends to the callback."""

OFFLINE = "offline_access"
"""The scope with which some authorization servers issue refresh tokens."""

S256 = "S256"
BASIC, POST, PUBLIC = "client_secret_basic", "client_secret_post", "none"
"""Methods of client authentication at the token endpoint."""

_PARAMETER = re.compile(r'([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
_CODEC = MsgspecCodec()


class Challenge(msgspec.Struct, frozen=True):
    """The parts of a `WWW-Authenticate` header with the scheme Bearer; all empty if there is none."""

    error: str = ""
    scope: str = ""
    resource_metadata: str = ""


def parse_challenge(header: str) -> Challenge:
    """Read a `WWW-Authenticate` header. Nothing in it is trusted."""
    found = re.search(r"\bBearer\b", header, re.IGNORECASE)
    if found is None:
        return Challenge()
    pairs = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(header[found.end() :])}
    scope = pairs.get("scope", "")
    return Challenge(
        error=pairs.get("error", "")[:100],
        scope=scope if _SCOPE.fullmatch(scope) and len(scope) <= 1000 else "",
        resource_metadata=pairs.get("resource_metadata", ""),
    )


# Discovery.


class Authority(msgspec.Struct, frozen=True):
    """The authorization server of an MCP server, and the resource that tokens are for."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    resource: str
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    scopes: tuple[str, ...] = ()
    """The scopes that the server asks for."""
    has_offline: bool = False
    """The authorization server knows the scope `offline_access`."""
    auth_methods: tuple[str, ...] = (BASIC,)
    takes_client_urls: bool = False
    """It accepts the URL of a client id metadata document as a client id."""
    sends_issuer: bool = False
    """It names itself in each authorization response."""


class Discovery:
    """Finds the authorization server of one MCP server."""

    def __init__(self, http: HttpClient, server: Url, headers: Iterable[tuple[str, str]] = ()) -> None:
        """`headers` of requests to the server itself."""
        self._http = http
        self._server = server
        self._headers = [(name, value) for name, value in headers if name.lower() != "authorization"]
        self._where = remote.shown_url(server)

    async def find(self) -> Authority:
        """Ask the server and read the metadata that it names; raises `HttpFailed`."""
        challenge = await self._challenge()
        protected = await self._protected_resource(challenge)
        resource = self._check_resource(protected)
        listed = protected.get("authorization_servers")
        named = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
        # Servers of the first revision with OAuth have no metadata of their own and are the authorization server.
        issuer = named[0] if named else self._server.origin
        metadata = await self._authorization_server(issuer)
        return self._authority(issuer, metadata, resource, self._scopes(challenge, protected))

    async def _challenge(self) -> Challenge:
        greeting = {
            "protocolVersion": REVISIONS[0],
            "capabilities": {},
            "clientInfo": {"name": "plugbay", "version": "0"},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}).encode()
        fields = [*self._headers, ("Accept", f"{JSON}, {STREAM}"), ("Content-Type", JSON)]
        async with self._http.send("POST", self._server, fields, body, READ_SECONDS) as response:
            if response.status < 300:
                text = f"{self._where} needs no login: it answers without one"
                raise failed(Code.INVALID_INPUT, text, "plugbay mcp approve reads its offer")
            return parse_challenge(response.headers.get("www-authenticate", ""))

    async def _protected_resource(self, challenge: Challenge) -> dict[str, Any]:
        path = self._server.path.partition("?")[0].rstrip("/")
        known = f"{self._server.origin}/.well-known/oauth-protected-resource"
        places = [challenge.resource_metadata] if challenge.resource_metadata else [f"{known}{path}", known]
        for place in dict.fromkeys(places):
            found = await self._document(place)
            if found is not None:
                return found
        return {}

    def _check_resource(self, protected: Mapping[str, Any]) -> str:
        """The resource that the metadata is for, which must be this server or lie above it."""
        if not protected:
            return f"{self._server.origin}{self._server.path.partition('?')[0]}"
        named = as_text(protected.get("resource"))
        if covers(named, self._server):
            return named
        text = f"the metadata of {self._where} is for another resource, {named[:200]!r}; the login would be for that"
        raise failed(Code.MALFORMED_RESPONSE, text, "tell the operator of that server; check the URL")

    async def _authorization_server(self, issuer: str) -> dict[str, Any]:
        url = self._trusted(issuer, "the authorization server")
        path = url.path.partition("?")[0].rstrip("/")
        places = [
            f"{url.origin}/.well-known/oauth-authorization-server{path}",
            f"{url.origin}/.well-known/openid-configuration{path}",
            f"{url.origin}{path}/.well-known/openid-configuration",
        ]
        for place in dict.fromkeys(places):
            found = await self._document(place)
            if found is not None:
                if as_text(found.get("issuer")).rstrip("/") != issuer.rstrip("/"):
                    text = f"the metadata of {issuer} has another issuer, {as_text(found.get('issuer'))[:200]!r}"
                    raise failed(Code.MALFORMED_RESPONSE, text)
                return found
        text = f"{issuer} has no metadata of an authorization server"
        raise failed(Code.NOT_FOUND, text, "if the server takes a token in a header, declare that instead of a login")

    def _authority(self, issuer: str, metadata: Mapping[str, Any], resource: str, scopes: tuple[str, ...]) -> Authority:
        if S256 not in _texts(metadata.get("code_challenge_methods_supported")):
            text = f"{issuer} does not support PKCE with {S256}, which MCP requires"
            raise failed(Code.CAPABILITY_NOT_DECLARED, text)
        endpoints = {
            name: as_text(metadata.get(name))
            for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint")
        }
        for name, text in endpoints.items():
            if text or name in ("authorization_endpoint", "token_endpoint"):
                self._trusted(text, name)
        return Authority(
            issuer=issuer,
            resource=resource,
            scopes=scopes,
            has_offline=OFFLINE in _texts(metadata.get("scopes_supported")),
            auth_methods=_texts(metadata.get("token_endpoint_auth_methods_supported")) or (BASIC,),
            takes_client_urls=metadata.get("client_id_metadata_document_supported") is True,
            sends_issuer=metadata.get("authorization_response_iss_parameter_supported") is True,
            **endpoints,
        )

    def _scopes(self, challenge: Challenge, protected: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(challenge.scope.split()) or _texts(protected.get("scopes_supported"))

    def _trusted(self, text: str, what: str) -> Url:
        """A URL that a server named; raises `HttpFailed` unless it has TLS, or all of this is on a local address."""
        url = remote.read_url(text)
        if isinstance(url, Url) and (url.scheme == "https" or self._server.scheme == "http"):
            return url
        why = url if isinstance(url, str) else "must begin with https://"
        raise failed(Code.MALFORMED_RESPONSE, f"{self._where} names a URL for {what} that cannot be used: it {why}")

    async def _document(self, place: str) -> dict[str, Any] | None:
        """A metadata document; None if there is none at this place."""
        url = self._trusted(place, "metadata")
        async with self._http.send("GET", url, [("Accept", JSON)], None, READ_SECONDS) as response:
            if response.status != 200 or response.media_type not in (JSON, "application/octet-stream", "text/plain"):
                return None
            return _read_json(await response.body(MAX_DOCUMENT), url)


def covers(resource: str, server: Url) -> bool:
    """Whether tokens for a resource may be sent to a server: it is the resource, or lies below it."""
    url = remote.read_url(resource)
    if isinstance(url, str) or url.origin != server.origin:
        return False
    above, path = (each.path.partition("?")[0].rstrip("/") for each in (url, server))
    return path == above or path.startswith(f"{above}/")


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _read_json(data: bytes, url: Url) -> dict[str, Any]:
    try:
        value = _CODEC.decode(data)
    except Malformed:
        value = None
    if not isinstance(value, dict):
        raise failed(Code.MALFORMED_RESPONSE, f"{remote.shown_url(url)} did not answer with a JSON object")
    return value


# The client.


class Client(Guarded, msgspec.Struct, frozen=True):
    """The client that plugbay is for an authorization server."""

    HIDDEN = ("secret",)
    id: str
    secret: str = ""
    auth_method: str = PUBLIC


def known_client(authority: Authority, id: str, secret: str) -> Client:
    """A client that the operator registered."""
    if not secret:
        return Client(id)
    return Client(id, secret, BASIC if BASIC in authority.auth_methods else POST)


async def register(http: HttpClient, authority: Authority, redirect: str, scopes: Sequence[str]) -> Client:
    """Register a client dynamically (RFC 7591); raises `HttpFailed`."""
    if not authority.registration_endpoint:
        text = f"{authority.issuer} does not support client registration"
        raise failed(
            Code.CAPABILITY_NOT_DECLARED, text, "register plugbay there and declare [mcp.NAME.oauth] client_id"
        )
    method = next((each for each in (PUBLIC, POST, BASIC) if each in authority.auth_methods), PUBLIC)
    wish = {
        "client_name": "plugbay",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if scopes:
        wish["scope"] = " ".join(scopes)
    url = _url(authority.registration_endpoint)
    fields = [("Content-Type", JSON), ("Accept", JSON)]
    async with http.send("POST", url, fields, json.dumps(wish).encode(), READ_SECONDS) as response:
        if response.status not in (200, 201):
            text = f"{authority.issuer} refused to register a client (status {response.status})"
            raise failed(
                Code.CAPABILITY_NOT_ALLOWED, text, "register plugbay there and declare [mcp.NAME.oauth] client_id"
            )
        made = _read_json(await response.body(MAX_DOCUMENT), url)
    id, secret = as_text(made.get("client_id")), as_text(made.get("client_secret"))
    if not id:
        raise failed(Code.MALFORMED_RESPONSE, f"{authority.issuer} registered a client without an id")
    return Client(id, secret, as_text(made.get("token_endpoint_auth_method")) or (method if secret else PUBLIC))


# Authorization.


class Attempt(Guarded, msgspec.Struct, frozen=True):
    """One authorization request, with the values that its response must match."""

    HIDDEN = ("state", "verifier")
    authority: Authority
    client: Client
    redirect: str
    scopes: tuple[str, ...]
    state: str = msgspec.field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = msgspec.field(default_factory=lambda: secrets.token_urlsafe(64))

    @property
    def url(self) -> str:
        """The URL for the user's browser."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.redirect,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": S256,
            "resource": self.authority.resource,
            **({"scope": " ".join(self.scopes)} if self.scopes else {}),
        }
        mark = "&" if "?" in self.authority.authorization_endpoint else "?"
        return f"{self.authority.authorization_endpoint}{mark}{urlencode(query)}"

    def is_answered_by(self, response: Mapping[str, str]) -> bool:
        """Whether an authorization response belongs to this request."""
        return hmac.compare_digest(response.get("state", "").encode(), self.state.encode())

    def code(self, response: Mapping[str, str]) -> str:
        """The code of the response; raises `HttpFailed` if it is a refusal or comes from another issuer (RFC 9207)."""
        issuer = response.get("iss", "")
        if (issuer or self.authority.sends_issuer) and issuer.rstrip("/") != self.authority.issuer.rstrip("/"):
            text = f"the response comes from another issuer than {self.authority.issuer}; it is not used"
            raise failed(Code.CAPABILITY_NOT_ALLOWED, text)
        if "error" in response:
            why = "".join(filter(str.isprintable, response.get("error_description") or response["error"]))[:200]
            raise failed(Code.CAPABILITY_NOT_ALLOWED, f"{self.authority.issuer} refused the login: {why}")
        if not response.get("code"):
            raise failed(Code.MALFORMED_RESPONSE, f"{self.authority.issuer} answered without a code")
        return response["code"]

    async def exchange(self, http: HttpClient, code: str) -> dict[str, Any]:
        """The login for the code, as `plugbay mcp login` saves it; raises `HttpFailed`."""
        login: dict[str, Any] = {
            "id": secrets.token_hex(8),
            "issuer": self.authority.issuer,
            "token_endpoint": self.authority.token_endpoint,
            "revocation_endpoint": self.authority.revocation_endpoint,
            "resource": self.authority.resource,
            "client_id": self.client.id,
            "client_secret": self.client.secret,
            "auth_method": self.client.auth_method,
        }
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect,
            "code_verifier": self.verifier,
            "resource": self.authority.resource,
        }
        tokens = await request_tokens(http, login, form)
        granted = tokens.pop("scope") or " ".join(self.scopes)
        return {**login, "scopes": granted.split(), **tokens}


class TokenRefused(Exception):
    """The token endpoint refused the grant."""


async def request_tokens(http: HttpClient, login: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """Ask the token endpoint of a login; raises `HttpFailed`, with `TokenRefused` as its cause for a refused grant."""
    url = _url(str(login["token_endpoint"]))
    fields, more = _client_authentication(login)
    body = urlencode({**form, **more}).encode()
    fields += [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", JSON)]
    async with http.send("POST", url, fields, body, READ_SECONDS) as response:
        data = await response.body(MAX_DOCUMENT)
        if response.status >= 500:
            text = f"{remote.shown_url(url)} answered with status {response.status}"
            raise failed(Code.UNAVAILABLE, text, retryable=True)
        said = _read_json(data, url)
        if response.status != 200:
            error = "".join(filter(str.isprintable, as_text(said.get("error"))))[:100] or f"status {response.status}"
            refusal = failed(Code.CAPABILITY_NOT_ALLOWED, f"{login['issuer']} refused to issue a token: {error}")
            raise refusal from TokenRefused()
    token = as_text(said.get("access_token"))
    if (
        not token.isascii()
        or not token.isprintable()
        or not token
        or as_text(said.get("token_type")).lower() != "bearer"
    ):
        raise failed(Code.MALFORMED_RESPONSE, f"{login['issuer']} issued no bearer token")
    seconds = said.get("expires_in")
    return {
        "access_token": token,
        "refresh_token": as_text(said.get("refresh_token")),
        "expires_at": time.time() + seconds if isinstance(seconds, int | float) and seconds > 0 else None,
        "scope": as_text(said.get("scope")),
    }


def _client_authentication(login: Mapping[str, Any]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Headers and form fields that authenticate the client."""
    id, secret = str(login["client_id"]), str(login.get("client_secret") or "")
    if secret and login.get("auth_method") == BASIC:
        pair = f"{quote(id, safe='')}:{quote(secret, safe='')}"
        return [("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")], {"client_id": id}
    return [], {"client_id": id, **({"client_secret": secret} if secret else {})}


async def revoke(http: HttpClient, login: Mapping[str, Any]) -> bool:
    """Revoke the tokens of a login at its authorization server; False if that has no way to. Raises `HttpFailed`."""
    if not login.get("revocation_endpoint"):
        return False
    url = _url(str(login["revocation_endpoint"]))
    for kind in ("refresh_token", "access_token"):
        if not login.get(kind):
            continue
        fields, more = _client_authentication(login)
        body = urlencode({"token": login[kind], "token_type_hint": kind, **more}).encode()
        fields.append(("Content-Type", "application/x-www-form-urlencoded"))
        async with http.send("POST", url, fields, body, READ_SECONDS) as response:
            if response.status != 200:
                return False
    return True


def _url(text: str) -> Url:
    url = remote.read_url(text)
    if isinstance(url, str):
        raise failed(Code.INVALID_INPUT, f"a URL of the authorization server {url}")
    return url


# The redirect to this machine.

PAGE = "<!doctype html><meta charset=utf-8><title>plugbay</title><p style='font: 1.2em sans-serif; margin: 3em'>{}</p>"


class Callback:
    """Waits on a loopback port for the browser that returns from the authorization server."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._accepts: Callable[[Mapping[str, str]], bool] = lambda response: False
        self._found: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self.redirect = ""

    async def open(self, port: int = 0) -> None:
        """Listen; raises `HttpFailed` if the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=MAX_CALLBACK)
        except OSError as error:
            text = f"port {port} of 127.0.0.1 cannot be used: {os.strerror(error.errno or 0)}"
            raise failed(Code.UNAVAILABLE, text, "change redirect_port in [mcp.NAME.oauth]") from None
        self.redirect = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{CALLBACK_PATH}"

    async def wait(self, accepts: Callable[[Mapping[str, str]], bool], seconds: float) -> dict[str, str]:
        """The first response that `accepts` takes; others are answered with an error. Raises `TimeoutError`."""
        self._accepts = accepts
        async with asyncio.timeout(seconds):
            return await self._found

    @property
    def is_answered(self) -> bool:
        """Whether a response has come."""
        return self._found.done()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._answer(head.split(b"\r\n")[0].decode("latin-1"))
            body = PAGE.format(text).encode()
            headers = f"content-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\nconnection: close"
            writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode() + body)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _answer(self, line: str) -> tuple[str, str]:
        """Status and text for a request line."""
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        if method != "GET" or target.path != CALLBACK_PATH:
            return "404 Not Found", "There is nothing here."
        response = {name: values[0] for name, values in parse_qs(target.query, keep_blank_values=True).items()}
        if self._found.done() or not self._accepts(response):
            return "400 Bad Request", "There is no running login for this request."
        self._found.set_result(response)
        return "200 OK", "The terminal shows the result. You can close this page."


# Tokens in use.


class Login:
    """The tokens of one login, refreshed as needed."""

    def __init__(self, facts: Mapping[str, Any], http: HttpClient, folder: Path | None) -> None:
        """`facts`: as `plugbay mcp login` saved them; `folder`: where refreshed tokens are kept."""
        self._facts = dict(facts)
        self._http = http
        self._folder = folder
        self._lock = asyncio.Lock()
        self._tokens: dict[str, Any] = {key: facts.get(key) for key in ("access_token", "refresh_token", "expires_at")}
        self._adopt_kept()

    def secrets(self) -> list[str]:
        """Values that must not be shown."""
        known = (self._facts.get("client_secret"), self._tokens["access_token"], self._tokens["refresh_token"])
        return [text for text in known if isinstance(text, str) and text]

    async def token(self) -> str | None:
        """The access token, refreshed if it is about to expire. Raises `HttpFailed`."""
        expires = self._tokens["expires_at"]
        if isinstance(expires, int | float) and time.time() > expires - EARLY_SECONDS:
            await self.refresh(self._tokens["access_token"])
        token = self._tokens["access_token"]
        return token if isinstance(token, str) else None

    async def refresh(self, stale: str | None) -> bool:
        """Replace the token `stale`; False if the login has ended. Raises `HttpFailed` if that cannot be known now."""
        async with self._lock, self._locked():
            if self._tokens["access_token"] != stale:
                return True
            self._adopt_kept()
            if self._tokens["access_token"] != stale:
                return True  # another process has refreshed it
            refresh = self._tokens["refresh_token"]
            if not refresh:
                return False
            form = {"grant_type": "refresh_token", "refresh_token": refresh, "resource": self._facts["resource"]}
            try:
                tokens = await request_tokens(self._http, self._facts, form)
            except HttpFailed as error:
                if isinstance(error.__cause__, TokenRefused):
                    return False
                raise
            tokens["refresh_token"] = tokens["refresh_token"] or refresh
            self._tokens = {key: tokens[key] for key in self._tokens}
            self._keep()
            return True

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Exclude other processes with the same login: a refresh token may be good for one use only."""
        if self._folder is None:
            yield
            return
        at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            await asyncio.to_thread(fcntl.flock, at, fcntl.LOCK_EX)
            yield
        finally:
            os.close(at)

    def _adopt_kept(self) -> None:
        """Use the tokens that a process before this one has refreshed, if they are of this login."""
        kept = {} if self._folder is None else read_tokens(self._folder)
        if kept.get("login") == self._facts.get("id") and kept.get("access_token"):
            self._tokens = {key: kept.get(key) for key in self._tokens}

    def _keep(self) -> None:
        if self._folder is None:
            return
        path, fresh = self._folder / remote.TOKENS_FILE, self._folder / f".{remote.TOKENS_FILE}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump({"login": self._facts.get("id"), **self._tokens}, file)
        os.replace(fresh, path)


def read_tokens(folder: Path) -> dict[str, Any]:
    """The refreshed tokens in a folder; empty if there are none."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(folder / remote.TOKENS_FILE, flags), "rb") as file:
            return as_object(_CODEC.decode(file.read(MAX_DOCUMENT)))
    except (OSError, Malformed):
        return {}
