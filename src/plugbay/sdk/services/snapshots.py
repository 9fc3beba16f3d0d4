"""`ctx.snapshots`: the last value of each topic, which the host keeps and tells to whoever listens.

Owns what an author says and hears. Knows no threads, no loop, no wire.
"""

from __future__ import annotations

from plugbay.model.operations import GetSnapshot, PublishSnapshot, SubscribeSnapshot
from plugbay.model.values import Value
from plugbay.sdk.payloads import as_bytes, from_json, from_msgpack
from plugbay.sdk.services.host_client import SERVICE_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from plugbay.sdk.services.host_client import Line


class Snapshot(Value):
    """What was published under a topic. `version` counts everything ever published; 0 where the host does not say."""

    __slots__ = ("data", "topic", "version")

    def __init__(self, topic: str, data: bytes, version: int = 0) -> None:
        self.topic = topic
        self.data = data
        self.version = version

    def text(self) -> str:
        return self.data.decode()

    def json(self) -> Any:
        """Raises ValueError when it is no JSON."""
        return from_json(self.data)

    def msgpack(self) -> Any:
        """Raises ValueError when it is no MessagePack."""
        return from_msgpack(self.data)


class Snapshots:
    """The host's store of snapshots. Everything is awaitable in an async handler."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def publish(self, topic: str, value: Any) -> Any:
        """Put bytes, a text or a JSON value under a topic, in the place of what is there.

        No host says whether it wanted it: one that did not grant the event bus drops it without a word.
        """
        return self._line.tell(PublishSnapshot(topic, as_bytes(value)))

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
        """Publish more than fits in one piece, which a `ChunkCollector` of the same version puts together again.

        `aggregates` go with the first piece; `items` is one long list, named `field`, or several by name. `defaults`
        stand for the aggregates in the other pieces, for readers that insist on them.
        """
        from time import time_ns

        from plugbay.sdk.services.chunks import split

        pieces = split(
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
            told = self._line.tell(PublishSnapshot(topic, piece))
        return told

    def get(self, topic: str, timeout: float = SERVICE_SECONDS) -> Any:
        """The `Snapshot` that was last published under the topic; None before the first."""

        def read(kept: Mapping[str, Any]) -> Snapshot | None:
            return None if kept["data"] is None else Snapshot(topic, kept["data"], kept["version"])

        return self._line.ask(GetSnapshot(topic), read, timeout)

    def subscribe(self, topic: str, timeout: float = SERVICE_SECONDS) -> Any:
        """Hear what is published under one more topic, for as long as this process lives.

        Nothing that was published before is told: `get` it. `@plugin.on_snapshot` handlers hear it.
        """
        return self._line.ask(SubscribeSnapshot(topic), lambda _: None, timeout)
