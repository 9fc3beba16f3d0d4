"""`Event`: one event of the host's bus, as plugins receive and publish it."""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

OPTIONAL = ("correlation_id", "metadata")
"""Fields of an event that are optional."""


class Event(Value):
    """One event. `raw` is the object as it arrived; missing fields are None."""

    __slots__ = (
        "correlation_id",
        "id",
        "metadata",
        "payload",
        "raw",
        "session_id",
        "source",
        "timestamp",
        "topic",
    )

    def __init__(self, topic: str, raw: Any) -> None:
        known = raw if isinstance(raw, dict) else {}
        self.topic = topic
        self.raw = raw
        self.payload = known.get("payload")
        self.source = known.get("source")
        self.id = known.get("id")
        self.timestamp = known.get("timestamp")
        self.session_id = known.get("session_id")
        self.correlation_id = known.get("correlation_id")
        self.metadata = known.get("metadata")


def event_object(topic: str, source: str, payload: Any, optional: Mapping[str, Any]) -> dict[str, Any]:
    """An event as it is published: the host completes the rest."""
    given = {key: optional[key] for key in OPTIONAL if optional.get(key) is not None}
    return {"topic": topic, "source": source, "payload": payload, **given}


def completed(event: dict[str, Any], entropy: bytes, seconds: float, session_id: str | None) -> dict[str, Any]:
    """The same event for hosts that complete nothing: with an id from 16 random bytes, and the time in UTC."""
    from time import gmtime, strftime

    timestamp = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(seconds))
    return {"id": _uuid4(entropy), "timestamp": timestamp, "session_id": session_id, **event}


def _uuid4(entropy: bytes) -> str:
    """A random UUID without the `uuid` module, which costs more than everything else here."""
    marked = entropy[:6] + bytes([entropy[6] & 0x0F | 0x40, entropy[7], entropy[8] & 0x3F | 0x80]) + entropy[9:]
    digits = marked.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
