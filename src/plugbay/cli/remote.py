"""Client of a running plugbay server: finds the server, sends requests, maps errors to exit statuses.

Uses `http.client` with one connection per request, so it needs no extra dependency.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from plugbay.cli import local_host, lookup
from plugbay.cli.exit_codes import Exit, Refusal, to_failure
from plugbay.cli.paths import directories
from plugbay.cli.render import output

if TYPE_CHECKING:
    import http.client

    from plugbay.host.discovery.folders import Found
    from plugbay.server.occupancy import RunningServer

SERVER_VARIABLE, TOKEN_VARIABLE = "PLUGBAY_SERVER", "PLUGBAY_TOKEN"

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 3700.0
"""Longer than the longest call that a host allows."""

MAX_ANSWER = 128 << 20

NO_QUERY: Mapping[str, Any] = MappingProxyType({})
STATUSES = {400: Exit.USAGE, 401: Exit.DENIED, 403: Exit.DENIED, 404: Exit.NOT_FOUND, 422: Exit.USAGE}
BY_CODE = {"plugin.not_started": Exit.LAUNCH}
HINTS = {
    "plugin.not_found": "plugbay ps lists the plugins",
    "plugin.not_started": "plugbay logs ID shows its output",
    "auth.key_unknown": "the operator token is in operator.token of the server's --data folder",
}


class NoServer(Refusal):
    """No server was found, or it does not answer."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(to_failure(message, hint, Exit.NOT_FOUND))


class SeveralServers(Refusal):
    """Several servers run, and none or more than one was started in this folder."""

    def __init__(self, found: list[RunningServer]) -> None:
        folders = {server.folder for server in found}
        where = "several of them were" if len(folders) == 1 else "none of them was"
        options = [f"--server {server.url} ({_describe_origin(server)})" for server in found]
        text = f"{len(found)} plugbay servers run, and {where} started in this folder"
        super().__init__(to_failure(text, "name one: " + ", or ".join(options), Exit.USAGE), status=Exit.USAGE)


class RemoteRefused(Refusal):
    """The server answered with an error."""

    def __init__(self, http_status: int, error: dict[str, Any], url: str = "") -> None:
        self.http_status = http_status
        code = str(error.get("code"))
        reason = f"{error.get('message', 'it gave no reason')} ({error.get('code', http_status)})"
        text = f"the server {url} refused: {reason}" if url else reason
        status = BY_CODE.get(code, STATUSES.get(http_status, Exit.FAILURE))
        failure = (error.get("details") or {}).get("failure") or {}
        detail = {name: value for name, value in (failure.get("detail") or {}).items() if name != "hint"}
        hint = HINTS.get(code) or (failure.get("detail") or {}).get("hint", "")
        super().__init__(to_failure(text, hint, status, **detail), status=status)


def find(server: str | None = None, token_file: Path | None = None, *, quiet: bool = False) -> ServerClient:
    """The named server, or the one of this folder; raises `NoServer`, `SeveralServers`.

    Prints which server is used unless it is the argument `server`, or `quiet`.
    """
    from plugbay.server.occupancy import running_servers, select_servers

    url, servers = server or os.environ.get(SERVER_VARIABLE), running_servers(directories()["state"])
    if url is not None:
        url = _with_scheme(url)
        known = [found for found in servers if found.url == url.rstrip("/")]
        if server is None and not quiet:
            output.using(f"the server {url}, named by {SERVER_VARIABLE}")
        return ServerClient(url, _token(token_file, known[0].token_file if known else None))
    chosen = select_servers(servers, Path.cwd())
    if not chosen:
        raise NoServer(
            "no plugbay server runs on this machine", "plugbay serve DIR starts one; --server URL names a remote one"
        )
    if len(chosen) > 1:
        raise SeveralServers(chosen)
    (found,) = chosen
    if not quiet:
        origin = "" if found.folder == os.getcwd() else f", {_describe_origin(found)}"
        output.using(f"the server {found.url}{origin}")
    return ServerClient(found.url, _token(token_file or Path(found.token_file)))


def _with_scheme(url: str) -> str:
    """A URL; `HOST:PORT` is one of this machine without TLS, or of another one with TLS."""
    from urllib.parse import urlsplit

    from plugbay.packages.reference import is_loopback

    if "://" in url:
        return url
    return f"http://{url}" if is_loopback(urlsplit(f"//{url}").hostname or "") else f"https://{url}"


def find_by_id(plugin_id: str, *, quiet: bool) -> Found | None:
    """The installed plugin of this id, or the one in a folder of the server that runs on this machine.

    Prints its folder unless `quiet`.
    """
    found, owner = local_host.find_installed(plugin_id), ""
    if found is None:
        try:
            client = find(quiet=True)
            plugin = client.get(plugin_path(plugin_id))
        except Refusal:
            return None
        found, owner = lookup.find(Path(plugin["folder"]), plugin["contract"]), f" of the server {client.url}"
    if not quiet:
        output.using(f"the folder {found.root}{owner}")
    return found


def _describe_origin(server: RunningServer) -> str:
    return f"started in {server.folder}" if server.folder else f"with its data in {server.data}"


def is_path(word: str) -> bool:
    """Whether an argument can only be a path; `acme/devkit` can also be an id."""
    return word.startswith((".", "/", "~")) or word.endswith("/") or word.count("/") > 1


def _token(file: Path | None, kept: str | None = None) -> str:
    """The token from the file, else from the environment variable, else from `kept`, the file of a local server."""
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
        if token:
            return token
        if kept is None:
            raise NoServer(
                "a server that was not started on this machine needs a token",
                f"--token-file FILE or the variable {TOKEN_VARIABLE} has it",
            )
        file = Path(kept)
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        hint = "--token-file names another file; the operator token is operator.token in the server's --data folder"
        raise NoServer(f"the token cannot be read: {file}: {error.strerror}", hint) from None


def plugin_path(plugin_id: str, rest: str = "") -> str:
    """The API path of a plugin, followed by `rest`."""
    from urllib.parse import quote

    return f"/api/v1/plugins/{quote(plugin_id, safe='/')}{rest}"


class ServerClient:
    """Sends authenticated requests to one server."""

    def __init__(self, url: str, token: str) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NoServer(f"{url!r} is not the URL of a server, such as http://127.0.0.1:8787")
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._netloc = parts.netloc.rpartition("@")[2]
        self._base = parts.path.rstrip("/")
        self._token = token

    def request(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] = NO_QUERY, **options: Any
    ) -> Any:
        """The decoded answer; None if it is empty. `options` are those of `_send`."""
        import msgspec

        data = self._fetch(method, path, body, query, **options)
        try:
            return msgspec.json.decode(data) if data else None
        except msgspec.DecodeError:
            raise NoServer(f"the server {self.url} sent an invalid response") from None

    def get(self, path: str, *, wait: float = ANSWER_SECONDS, **query: Any) -> Any:
        """The decoded answer; the server is lost if it sends nothing for `wait` seconds."""
        return self.request("GET", path, None, query, wait=wait)

    def post(self, path: str, body: Any = None) -> Any:
        return self.request("POST", path, body)

    def delete(self, path: str, **query: Any) -> Any:
        return self.request("DELETE", path, None, query)

    def upload(self, path: str, data: bytes, headers: Mapping[str, str]) -> Any:
        """The decoded answer to a POST of bytes; `headers` have their content type."""
        return self.request("POST", path, data, headers=headers)

    def download(self, path: str, **query: Any) -> bytes:
        """The bytes of an answer."""
        return self._fetch("GET", path, None, query)

    def events(
        self, method: str, path: str, body: Any = None, *, wait: float = ANSWER_SECONDS, **query: Any
    ) -> Iterator[tuple[str, Any]]:
        """The name and the decoded data of each server-sent event. The server has accepted when this returns."""
        return self._read_events(*self._send(method, path, body, query, wait=wait))

    def _read_events(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
    ) -> Iterator[tuple[str, Any]]:
        import http.client

        import msgspec

        try:
            name = ""
            for line in answer:
                field, _, value = line.decode("utf-8").rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, msgspec.json.decode(value)
        except (http.client.HTTPException, OSError):
            raise NoServer(f"the server {self.url} closed the connection") from None
        finally:
            connection.close()

    def _fetch(self, method: str, path: str, body: Any, query: Mapping[str, Any], **options: Any) -> bytes:
        import http.client

        connection, answer = self._send(method, path, body, query, **options)
        try:
            return answer.read(MAX_ANSWER)
        except (http.client.HTTPException, OSError):
            raise NoServer(f"the server {self.url} sent an invalid response") from None
        finally:
            connection.close()

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any],
        *,
        wait: float = ANSWER_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request and read the head of the response; raises `RemoteRefused` for an error status.

        A body is sent as JSON, or as it is with its own `headers`.
        """
        import http.client
        from urllib.parse import urlencode

        import msgspec

        opener = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = opener(self._netloc, timeout=CONNECT_SECONDS)
        wanted = {name: value for name, value in query.items() if value is not None}
        target = f"{self._base}{path}" + (f"?{urlencode(wanted, doseq=True)}" if wanted else "")
        data = body
        if body is not None and headers is None:
            data, headers = msgspec.json.encode(body), {"content-type": "application/json"}
        headers = {"authorization": f"Bearer {self._token}", **(headers or {})}
        try:
            connection.connect()
            connection.sock.settimeout(wait)
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            why = getattr(error, "strerror", None) or type(error).__name__
            raise NoServer(f"the server {self.url} does not respond: {why}") from None
        if answer.status >= 400:
            refusal = _refusal(answer.read(MAX_ANSWER))
            connection.close()
            raise RemoteRefused(answer.status, refusal, self.url)
        return connection, answer


def _refusal(body: bytes) -> dict[str, Any]:
    import msgspec

    try:
        error = msgspec.json.decode(body)["error"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
