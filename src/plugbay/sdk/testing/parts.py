"""Channels and vector backends of a plugin, as a test uses them.

Owns the words for what each can do. What carries them is the host's. For tests alone.
"""

from __future__ import annotations

from plugbay.model.operations import (
    DeleteVectors,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Protocol

    from plugbay.model.operations import PluginOp

    class Asks(Protocol):
        def ask(self, op: PluginOp, timeout: float | None = None) -> Any: ...


class Channel:
    """One kind of channel."""

    def __init__(self, host: Asks, kind: str) -> None:
        self._host = host
        self._kind = kind

    def start(self, instance: str | None = None) -> None:
        self._host.ask(StartChannel(self._kind, instance))

    def send(self, message: Mapping[str, Any] | str, to: str = "ada") -> dict[str, Any]:
        """The receipt of a message, or of a text to somebody: `{message_id, sent_at_unix}`."""
        whole = {"kind": "text", "to": to, "body": message} if isinstance(message, str) else dict(message)
        return dict(self._host.ask(SendOutbound(self._kind, whole)))

    def stop(self) -> None:
        self._host.ask(StopChannel(self._kind))


class VectorStore:
    """One vector backend."""

    def __init__(self, host: Asks, name: str) -> None:
        self._host = host
        self._name = name

    def upsert(self, collection: str, records: Sequence[Mapping[str, Any]]) -> int:
        """How many of `{id, content, embedding, metadata}` were stored."""
        return int(self._host.ask(UpsertVectors(self._name, collection, list(map(dict, records))))["count"])

    def search(self, collection: str, embedding: Sequence[float], limit: int = 10, **query: Any) -> list[Any]:
        whole = {"embedding": list(embedding), "limit": limit, **query}
        return list(self._host.ask(SearchVectors(self._name, collection, whole))["matches"])

    def delete(self, collection: str, ids: Sequence[str]) -> int:
        return int(self._host.ask(DeleteVectors(self._name, collection, list(ids)))["count"])
