"""Events as plugins receive and publish them."""

from __future__ import annotations

import uuid

from plugbay.sdk.events import Event, completed, event_object


def test_an_event_knows_what_arrived_and_nothing_more() -> None:
    raw = {"id": "1", "timestamp": "t", "source": "s", "session_id": "x", "payload": {"k": 1}, "metadata": {}, "new": 1}
    event = Event("a.b", raw)
    assert (event.topic, event.payload, event.source, event.id) == ("a.b", {"k": 1}, "s", "1")
    assert (event.timestamp, event.session_id, event.correlation_id, event.metadata) == ("t", "x", None, {})
    assert event.raw is raw
    assert Event("a", [1]).payload is None


def test_a_published_event_is_small_unless_more_is_asked_for() -> None:
    event = event_object("a", "me", 1, {"correlation_id": None, "metadata": None})
    assert event == {"topic": "a", "source": "me", "payload": 1}
    assert event_object("a", "me", 1, {"correlation_id": "c", "metadata": {}}) == {
        **event,
        "correlation_id": "c",
        "metadata": {},
    }
    full = completed(event, bytes(range(16)), 0, None)
    assert full == {"id": full["id"], "timestamp": "1970-01-01T00:00:00Z", "session_id": None, **event}
    assert uuid.UUID(full["id"]).version == 4
