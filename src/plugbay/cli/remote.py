"""A server that runs, as commands talk to it: found, asked, and understood when it refuses.

Owns where a command looks for a server, and how its refusals become exit statuses. Needs nothing that plugbay itself
does not: one connection of the standard library for each question.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli.exit_codes import Exit
from plugbay.cli.paths import directories
from plugbay.model.errors import PlugbayError

if TYPE_CHECKING:
    import http.client

SERVER_VARIABLE, TOKEN_VARIABLE = "PLUGBAY_SERVER", "PLUGBAY_TOKEN"

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 3700.0
"""More than the longest call that a host allows."""

MAX_ANSWER = 128 << 20

STATUSES = {400: Exit.USAGE, 401: Exit.DENIED, 403: Exit.DENIED, 404: Exit.NOT_FOUND, 422: Exit.USAGE}
BY_CODE = {"plugin.not_started": Exit.LAUNCH}
HINTS = {
    "plugin.not_found": "plugbay ps shows which there are",
    "plugin.not_started": "plugbay logs ID shows what it wrote",
    "auth.key_unknown": "the server's own key is in operator.token of its --data folder",
}

Server = Annotated[
    str | None, typer.Option(metavar="URL", help="The server to ask, instead of the one started last here.")
]
TokenFile = Annotated[Path | None, typer.Option(metavar="FILE", help="A file with the key to ask it with.")]


class NoServer(PlugbayError):
    """There is no server to ask."""

    exit_status = Exit.NOT_FOUND

    def __init__(self, message: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(message)


class RemoteRefused(PlugbayError):
    """The server has answered, and does not do what it was asked."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        self.status = status
        self.error = error
        code = str(error.get("code"))
        self.exit_status = BY_CODE.get(code, STATUSES.get(status, Exit.FAILURE))
        self.hint = HINTS.get(code, "")
        super().__init__(f"{error.get('message', 'the server gave no reason')} ({error.get('code', status)})")


def find(server: str | None = None, token_file: Path | None = None) -> Remote:
    """The server that is meant, or the one that runs here; raises `NoServer`."""
    url = server or os.environ.get(SERVER_VARIABLE)
    if url is None:
        from plugbay.control.occupancy import look

        found = look(directories()["state"])
        if found is None:
            raise NoServer(
                "no plugbay server runs here", "plugbay serve DIR starts one, --server URL names one elsewhere"
            )
        url, token_file = found.url, token_file or Path(found.token_file)
    return Remote(url, _token(token_file))


def might_be_meant(path: str) -> bool:
    """Whether a word that names a folder here could just as well be an id, and there is a server to know it."""
    from plugbay.control.occupancy import look

    return "/" not in path and not path.startswith(".") and look(directories()["state"]) is not None


def _token(file: Path | None) -> str:
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not token:
            raise NoServer(
                "a server that was not started here is asked with a key, and none was given",
                f"--token-file FILE, or the variable {TOKEN_VARIABLE}",
            )
        return token
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        hint = "--token-file names the file with the key; a server's own is operator.token in its --data folder"
        raise NoServer(f"the key cannot be read: {file}: {error.strerror}", hint) from None


def plugin_path(plugin_id: str, rest: str = "") -> str:
    """The path of a plugin of the host, or of something of it."""
    from urllib.parse import quote

    return f"/api/v1/plugins/{quote(plugin_id, safe='/')}{rest}"


class Remote:
    """One server."""

    def __init__(self, url: str, token: str) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NoServer(f"{url!r} is no address of a server; it is like http://127.0.0.1:8787")
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._netloc = parts.netloc.rpartition("@")[2]
        self._base = parts.path.rstrip("/")
        self._token = token

    def get(self, path: str, **query: Any) -> Any:
        return self._asked("GET", path, None, query)

    def post(self, path: str, body: Any = None) -> Any:
        return self._asked("POST", path, body, {})

    def events(self, method: str, path: str, body: Any = None, **query: Any) -> Iterator[tuple[str, Any]]:
        """What the server tells, piece by piece: the name of each event, and what it says."""
        import http.client

        import msgspec

        connection, answer = self._answer(method, path, body, query)
        try:
            name = ""
            for line in answer:
                field, _, value = line.decode("utf-8").rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, msgspec.json.decode(value)
        except (http.client.HTTPException, OSError):
            raise NoServer(f"the server {self.url} went away") from None
        finally:
            connection.close()

    def _asked(self, method: str, path: str, body: Any, query: dict[str, Any]) -> Any:
        import http.client

        import msgspec

        connection, answer = self._answer(method, path, body, query)
        try:
            return msgspec.json.decode(answer.read(MAX_ANSWER))
        except (http.client.HTTPException, OSError, msgspec.DecodeError):
            raise NoServer(f"the server {self.url} answered with what is no answer") from None
        finally:
            connection.close()

    def _answer(
        self, method: str, path: str, body: Any, query: dict[str, Any]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The head of an answer that is no refusal; its body is still to be read."""
        import http.client
        from urllib.parse import urlencode

        import msgspec

        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._netloc, timeout=CONNECT_SECONDS)
        wanted = {name: value for name, value in query.items() if value is not None}
        target = f"{self._base}{path}" + (f"?{urlencode(wanted)}" if wanted else "")
        headers = {"authorization": f"Bearer {self._token}"}
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            headers["content-type"] = "application/json"
        try:
            connection.connect()
            connection.sock.settimeout(ANSWER_SECONDS)
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            why = getattr(error, "strerror", None) or type(error).__name__
            raise NoServer(f"the server {self.url} does not answer: {why}") from None
        if answer.status >= 400:
            refusal = _refusal(answer.read(MAX_ANSWER))
            connection.close()
            raise RemoteRefused(answer.status, refusal)
        return connection, answer


def _refusal(body: bytes) -> dict[str, Any]:
    import msgspec

    try:
        error = msgspec.json.decode(body)["error"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
