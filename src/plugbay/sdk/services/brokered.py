"""Services that the host performs for a plugin: `ctx.actions`, `ctx.files`, `ctx.http` and `ctx.snapshots`.

The host checks each request; a refusal is a `ServiceError` with the code `capability_not_allowed`. Payloads are
bytes, texts or JSON, and MessagePack is read too. Values that exceed one frame are published in chunks
`{"version", "published_ns", "partial", "chunk_index", "is_final", "data"}`: the first carries the aggregates, each one
more of the lists, and a `ChunkCollector` joins them. msgspec is loaded inside functions only.
"""

from __future__ import annotations

import os
from _collections_abc import Mapping

from plugbay.model.errors import Code
from plugbay.model.operations import (
    FetchUrl,
    GetSnapshot,
    InvokeAction,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    SubscribeSnapshot,
)
from plugbay.model.sizes import MAX_PAYLOAD
from plugbay.model.values import Value
from plugbay.sdk.declarations import seconds
from plugbay.sdk.errors import ServiceError
from plugbay.sdk.services.host_client import SERVICE_SECONDS
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from plugbay.sdk.services.host_client import HostClient

    Lists = Mapping[str, Sequence[Any]]

GRACE_SECONDS = 1.0
"""Seconds to wait beyond the timeout of an action, so that the host's own error arrives."""


class Actions:
    """Actions of other plugins and of the host. Awaitable in an async handler."""

    __slots__ = ("_client",)

    def __init__(self, client: HostClient) -> None:
        self._client = client

    def invoke(self, name: str, data: Any = b"", timeout: float = SERVICE_SECONDS) -> Any:
        """Invoke an action with bytes, a text or a JSON value; returns bytes.

        An action of this same plugin waits for its turn, unless it was declared `concurrent`.
        """
        op = InvokeAction(name, as_bytes(data), max(int(seconds("timeout", timeout) * 1000), 1))
        return self._client.ask(op, bytes, timeout + GRACE_SECONDS)


class FileEntry(Value):
    """An entry of a folder; folders have no size."""

    __slots__ = ("is_dir", "name", "size")

    def __init__(self, name: str, is_dir: bool, size: int) -> None:
        self.name = name
        self.is_dir = is_dir
        self.size = size


class Files:
    """Files outside of the plugin's reach, below the folders it was granted. Awaitable in an async handler."""

    __slots__ = ("_client",)

    def __init__(self, client: HostClient) -> None:
        self._client = client

    def read(self, path: str | os.PathLike[str], timeout: float = SERVICE_SECONDS) -> Any:
        """The bytes of a file."""
        return self._client.ask(ReadFile(_absolute(path)), bytes, timeout)

    def list(self, path: str | os.PathLike[str], timeout: float = SERVICE_SECONDS) -> Any:
        """A list with a `FileEntry` for everything in a folder."""
        return self._client.ask(ReadFolder(_absolute(path)), _entries, timeout)


def _absolute(path: str | os.PathLike[str]) -> str:
    """Hosts expand nothing."""
    return os.path.abspath(os.path.expanduser(path))


def _entries(found: Iterable[Mapping[str, Any]]) -> list[FileEntry]:
    return [FileEntry(entry["name"], entry["is_dir"], entry["size"]) for entry in found]


class Response(Value):
    """The response of a server; `headers` are pairs, in its order."""

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
        """Raises ValueError for invalid JSON."""
        return from_json(self.body)

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case of letters."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class Http:
    """The network, through the host and to the servers it grants. Awaitable in an async handler."""

    __slots__ = ("_client",)

    def __init__(self, client: HostClient) -> None:
        self._client = client

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
        return self._client.ask(op, _response, timeout)


def _response(answer: Mapping[str, Any]) -> Response:
    return Response(answer["status"], [(name, value) for name, value in answer["headers"]], answer["body"])


class Snapshot(Value):
    """The last value of a topic. `version` counts all publishes; 0 if the host does not send it."""

    __slots__ = ("data", "topic", "version")

    def __init__(self, topic: str, data: bytes, version: int = 0) -> None:
        self.topic = topic
        self.data = data
        self.version = version

    def text(self) -> str:
        return self.data.decode()

    def json(self) -> Any:
        """Raises ValueError for invalid JSON."""
        return from_json(self.data)

    def msgpack(self) -> Any:
        """Raises ValueError for invalid MessagePack."""
        return from_msgpack(self.data)


class Snapshots:
    """The host's store of snapshots. Everything is awaitable in an async handler."""

    __slots__ = ("_client",)

    def __init__(self, client: HostClient) -> None:
        self._client = client

    def publish(self, topic: str, value: Any) -> Any:
        """Publish bytes, a text or a JSON value under a topic; it replaces the last value.

        The host does not answer: without a grant of the event bus it silently drops the snapshot. A value that does not
        fit one message raises `ServiceError` (`frame_too_large`); `publish_chunked` is for those.
        """
        return self._client.tell(_publish(topic, as_bytes(value)))

    def publish_chunked(
        self,
        topic: str,
        items: Sequence[Any] | Mapping[str, Sequence[Any]],
        aggregates: Mapping[str, Any] | None = None,
        *,
        version: int,
        field: str = "items",
        defaults: Mapping[str, Any] | None = None,
        partial: bool = False,
        encoding: str = "msgpack",
    ) -> Any:
        """Publish a value larger than one chunk, which a `ChunkCollector` of the same version joins again.

        `aggregates` go with the first piece; `items` is one long list, named `field`, or several by name. `defaults`
        stand for the aggregates in the other pieces, for readers that insist on them.
        """
        from time import time_ns

        pieces = split_chunks(
            items,
            aggregates,
            version=version,
            published_ns=time_ns(),
            field=field,
            defaults=defaults,
            partial=partial,
            encoding=encoding,
        )
        told: Any = None
        for piece in pieces:
            told = self._client.tell(_publish(topic, piece))
        return told

    def get(self, topic: str, timeout: float = SERVICE_SECONDS) -> Any:
        """The `Snapshot` that was last published under the topic; None before the first."""

        def read(kept: Mapping[str, Any]) -> Snapshot | None:
            return None if kept["data"] is None else Snapshot(topic, kept["data"], kept["version"])

        return self._client.ask(GetSnapshot(topic), read, timeout)

    def subscribe(self, topic: str, timeout: float = SERVICE_SECONDS) -> Any:
        """Subscribe to one more topic, for as long as this process lives.

        Starts with the next publish; use `get` for the current value. `@plugin.on_snapshot` handlers are called.
        """
        return self._client.ask(SubscribeSnapshot(topic), lambda _: None, timeout)


def _publish(topic: str, data: bytes) -> PublishSnapshot:
    """The publish; raises `ServiceError` for data that a host would drop without a message."""
    if len(data) > MAX_PAYLOAD:
        text = f"the snapshot of {topic} has {len(data):,} bytes; at most {MAX_PAYLOAD:,} fit one message"
        hint = "ctx.snapshots.publish_chunked sends a longer list in pieces; one item must fit a piece"
        raise ServiceError(Code.FRAME_TOO_LARGE, f"{text}; {hint}")
    return PublishSnapshot(topic, data)


def as_bytes(value: Any) -> bytes:
    """Bytes as they are, a text as UTF-8, nothing as nothing, and everything else as JSON."""
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return to_json(value)


def to_json(value: Any) -> bytes:
    """Raises ValueError for a value without a JSON form."""
    return stdlib_codec().encode(value)


def from_json(data: bytes) -> Any:
    """Raises ValueError for invalid JSON."""
    return stdlib_codec().decode(data)


def to_msgpack(value: Any) -> bytes:
    encoded: bytes = _msgspec().msgpack.encode(value)
    return encoded


def from_msgpack(data: bytes) -> Any:
    """Raises ValueError for invalid MessagePack."""
    return _msgspec().msgpack.decode(data)


def raw_msgpack(data: bytes) -> Any:
    """MessagePack to be spliced into more of it as it is."""
    return _msgspec().Raw(data)


def _msgspec() -> Any:
    try:
        import msgspec
    except ModuleNotFoundError as error:
        raise ImportError("MessagePack needs msgspec: pip install 'plugbay-sdk[msgpack]'", name=error.name) from None
    return msgspec


def decode_payload(data: bytes) -> Any:
    """JSON or MessagePack, whichever it is: an object of JSON begins with a brace, and no object of the other does."""
    return from_json(data) if data.lstrip()[:1] == b"{" else from_msgpack(data)


CHUNK_BYTES = 2 << 20
"""Target size of a chunk. In base64 it stays below 2.7 MiB, far below the frame limit of 16 MiB."""

MAX_CHUNKS = 1_024
"""Chunks of one publish that are joined: 2 GiB, more than any screen shows."""


# Splitting.


def split_chunks(
    items: Sequence[Any] | Lists,
    aggregates: Mapping[str, Any] | None = None,
    *,
    version: int,
    published_ns: int,
    field: str = "items",
    defaults: Mapping[str, Any] | None = None,
    partial: bool = False,
    encoding: str = "msgpack",
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[bytes]:
    """The pieces of one publish, each encoded. An item that is larger than a piece is a piece of its own."""
    writer = _WRITERS[encoding]()
    lists = items if isinstance(items, Mapping) else {field: items}
    envelope = {"version": version, "published_ns": published_ns, "partial": partial}
    slices = _slices(writer, lists, dict(aggregates or {}), dict(defaults or {}), chunk_bytes)
    for index, (data, is_final) in enumerate(slices):
        yield writer.envelope({**envelope, "chunk_index": index, "is_final": is_final}, data)


def _slices(
    writer: Writer, lists: Lists, first: dict[str, Any], defaults: dict[str, Any], most: int
) -> Iterator[tuple[bytes, bool]]:
    """The encoded `data` of each piece, and whether it is the last. Each item is encoded once."""
    fields, room = first, most - len(writer.encode(first))
    taken: dict[str, list[bytes]] = {name: [] for name in lists}
    is_first = True
    for name, item in ((name, item) for name, items in lists.items() for item in items):
        encoded = writer.encode(item)
        if len(encoded) > room and (is_first or any(taken.values())):
            yield writer.data(fields, taken), False
            fields, taken, room, is_first = defaults, {name: [] for name in lists}, most, False
        taken[name].append(encoded)
        room -= len(encoded)
    yield writer.data(fields, taken), True


class JsonWriter:
    """Pieces as JSON."""

    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        return to_json(value)

    def data(self, fields: Mapping[str, Any], lists: Mapping[str, Sequence[bytes]]) -> bytes:
        members = {name: to_json(value) for name, value in fields.items()}
        members |= {name: b"[%b]" % b",".join(items) for name, items in lists.items()}
        return self._object(members)

    def envelope(self, fields: Mapping[str, Any], data: bytes) -> bytes:
        return self._object({**{name: to_json(value) for name, value in fields.items()}, "data": data})

    def _object(self, members: Mapping[str, bytes]) -> bytes:
        return b"{%b}" % b",".join(b"%b:%b" % (to_json(name), value) for name, value in members.items())


class MsgpackWriter:
    """Pieces as MessagePack: maps with named fields, as the published plugins read them."""

    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        return to_msgpack(value)

    def data(self, fields: Mapping[str, Any], lists: Mapping[str, Sequence[bytes]]) -> bytes:
        spliced = {name: [raw_msgpack(item) for item in items] for name, items in lists.items()}
        return to_msgpack({**fields, **spliced})

    def envelope(self, fields: Mapping[str, Any], data: bytes) -> bytes:
        return to_msgpack({**fields, "data": raw_msgpack(data)})


if TYPE_CHECKING:
    Writer = JsonWriter | MsgpackWriter

_WRITERS: dict[str, type[Writer]] = {"json": JsonWriter, "msgpack": MsgpackWriter}


# Joining.


class Mismatch(Value):
    """The publisher writes another version than this plugin reads."""

    __slots__ = ("expected", "got")

    def __init__(self, expected: int, got: Any) -> None:
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"the publisher writes version {self.got}, and this plugin reads version {self.expected}"


class ChunkCollector:
    """Joins the chunks of one topic; the value is complete after the last one.

    A chunk without its predecessor is dropped: aggregates without their lists, or lists with a gap, are worse than
    the previous value. A first chunk starts again.
    """

    __slots__ = ("_index", "_parts", "_published_ns", "data", "dropped", "mismatch", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.data: dict[str, Any] | None = None
        """The last complete publish."""
        self.mismatch: Mismatch | None = None
        """Set by a chunk of another version, until a publish of this version is complete."""
        self.dropped = 0
        """Chunks that could not be used."""
        self._parts: dict[str, Any] | None = None
        self._published_ns: Any = None
        self._index = 0

    @property
    def collecting(self) -> bool:
        """Whether a publish has begun and not ended."""
        return self._parts is not None

    def add(self, piece: Any) -> dict[str, Any] | None:
        """Take a `Snapshot`, its bytes, or an envelope that was read already; the whole, when this was the last."""
        envelope = _envelope(piece)
        if "version" in envelope and envelope["version"] != self.version:
            self.mismatch = Mismatch(self.version, envelope["version"])
            return None
        if not (_is_usable(envelope) and self._take(envelope)):
            self.dropped += 1
            return None
        return self._complete() if envelope.get("is_final", True) else None

    def _take(self, envelope: Mapping[str, Any]) -> bool:
        """Whether the piece is the first, or the next."""
        index, data = envelope.get("chunk_index", 0), envelope["data"]
        if index == 0:
            self._parts, self._published_ns = _copy_lists(data), envelope.get("published_ns")
        elif self._parts is None or envelope.get("published_ns") != self._published_ns or index <= self._index:
            return False  # of another publish, or a duplicate: the current publish may still become complete
        elif index > self._index + 1 or index >= MAX_CHUNKS:
            self._parts = None
            return False
        else:
            _append(self._parts, data)
        self._index = index
        return True

    def _complete(self) -> dict[str, Any] | None:
        self.data, self._parts, self.mismatch = self._parts, None, None
        return self.data


def _envelope(piece: Any) -> dict[str, Any]:
    """The envelope of a chunk; empty if it is not an object."""
    try:
        said = piece if isinstance(piece, dict) else decode_payload(getattr(piece, "data", piece))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _is_usable(envelope: Mapping[str, Any]) -> bool:
    index = envelope.get("chunk_index", 0)
    return "version" in envelope and isinstance(envelope.get("data"), dict) and type(index) is int and index >= 0


def _copy_lists(data: Mapping[str, Any]) -> dict[str, Any]:
    """The first piece, with lists that are ours to extend."""
    return {name: list(value) if isinstance(value, list) else value for name, value in data.items()}


def _append(parts: dict[str, Any], data: Mapping[str, Any]) -> None:
    """Append every list; other fields of later chunks are ignored."""
    for name, value in _copy_lists(data).items():
        if isinstance(value, list) and isinstance(parts.setdefault(name, value), list) and parts[name] is not value:
            parts[name] += value
