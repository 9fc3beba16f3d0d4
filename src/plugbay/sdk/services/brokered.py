"""`ctx.actions`, `ctx.files` and `ctx.http`: what a host does for a plugin that may not do it itself.

Owns what an author says and how an answer reads. Knows no threads, no loop, no wire, and not what is allowed: the host
says no with a `ServiceError` whose `code` is `capability_not_allowed`.
"""

from __future__ import annotations

import os

from plugbay.model.operations import FetchUrl, InvokeAction, ReadFile, ReadFolder
from plugbay.model.values import Value
from plugbay.sdk.declaring import seconds
from plugbay.sdk.payloads import as_bytes, from_json
from plugbay.sdk.services.host_client import SERVICE_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from plugbay.sdk.services.host_client import Line

GRACE_SECONDS = 1.0
"""How much longer than an action's own time its answer is waited for: the host's word is better than our silence."""


class Actions:
    """What other plugins, or the host, do when they are asked. Awaitable in an async handler."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def invoke(self, name: str, data: Any = b"", timeout: float = SERVICE_SECONDS) -> Any:
        """Have an action done with bytes, a text or a JSON value; the bytes it answers with.

        An action of this same plugin waits for its turn, unless it was declared `concurrent`.
        """
        op = InvokeAction(name, as_bytes(data), max(int(seconds("timeout", timeout) * 1000), 1))
        return self._line.ask(op, bytes, timeout + GRACE_SECONDS)


class FileEntry(Value):
    """Something in a folder; folders have no size."""

    __slots__ = ("is_dir", "name", "size")

    def __init__(self, name: str, is_dir: bool, size: int) -> None:
        self.name = name
        self.is_dir = is_dir
        self.size = size


class Files:
    """Files outside of the plugin's reach, below the folders it was granted. Awaitable in an async handler."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def read(self, path: str | os.PathLike[str], timeout: float = SERVICE_SECONDS) -> Any:
        """The bytes of a file."""
        return self._line.ask(ReadFile(_absolute(path)), bytes, timeout)

    def list(self, path: str | os.PathLike[str], timeout: float = SERVICE_SECONDS) -> Any:
        """A list with a `FileEntry` for everything in a folder."""
        return self._line.ask(ReadFolder(_absolute(path)), _entries, timeout)


def _absolute(path: str | os.PathLike[str]) -> str:
    """Hosts expand nothing."""
    return os.path.abspath(os.path.expanduser(path))


def _entries(found: Iterable[Mapping[str, Any]]) -> list[FileEntry]:
    return [FileEntry(entry["name"], entry["is_dir"], entry["size"]) for entry in found]


class Response(Value):
    """What a server answered; `headers` are pairs, in its order."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Raises ValueError when it is no JSON."""
        return from_json(self.body)

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case of letters."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class Http:
    """The network, through the host and to the servers it grants. Awaitable in an async handler."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def fetch(
        self,
        url: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        timeout: float = SERVICE_SECONDS,
    ) -> Any:
        """The `Response` to one request; `body` is bytes, a text or a JSON value. Any status is a response."""
        pairs = headers.items() if hasattr(headers, "items") else headers
        sent = None if body is None else as_bytes(body)
        op = FetchUrl(url, method, sent, [(name, value) for name, value in pairs])
        return self._line.ask(op, _response, timeout)


def _response(answer: Mapping[str, Any]) -> Response:
    return Response(answer["status"], [(name, value) for name, value in answer["headers"]], answer["body"])
