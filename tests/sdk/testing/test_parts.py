"""Channels and vector backends, as a test speaks of them."""

from __future__ import annotations

from typing import Any

from plugbay.model.operations import SearchVectors, SendOutbound, StartChannel, StopChannel, UpsertVectors
from plugbay.sdk.testing.parts import Channel, VectorStore


class Asked:
    """A host that says the same to everything."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.ops: list[Any] = []

    def ask(self, op: Any, timeout: float | None = None) -> Any:
        self.ops.append(op)
        return self.answer


def test_a_text_is_a_message_and_a_message_is_sent_as_it_is() -> None:
    host = Asked({"message_id": "1", "sent_at_unix": 2})
    channel = Channel(host, "note")
    channel.start()
    assert channel.send("tea?")["message_id"] == "1"
    channel.send({"kind": "custom", "x": 1})
    channel.stop()
    assert host.ops == [
        StartChannel("note", None),
        SendOutbound("note", {"kind": "text", "to": "ada", "body": "tea?"}),
        SendOutbound("note", {"kind": "custom", "x": 1}),
        StopChannel("note"),
    ]


def test_a_query_is_an_embedding_and_whatever_else_is_said() -> None:
    host = Asked({"matches": [1], "count": 2})
    store = VectorStore(host, "shelf")
    assert store.search("c", (0.5,), limit=3, filter={"a": 1}) == [1]
    assert store.upsert("c", [{"id": "a"}]) == store.delete("c", ["a"]) == 2
    assert host.ops[:2] == [
        SearchVectors("shelf", "c", {"embedding": [0.5], "limit": 3, "filter": {"a": 1}}),
        UpsertVectors("shelf", "c", [{"id": "a"}]),
    ]
