"""Publishes as KIND says before it answers: accepted, dropped and counted, or frame_too_large."""

from __future__ import annotations

import child
from child import KIND, SERVES, Message, publish, serve, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PUBLISHES: dict[str, tuple[str, bytes]] = {
    "well": ("bad.out", b"hi"),
    "of_17_mib": ("bad.out", b"x" * (17 << 20)),
    "of_12_mib": ("bad.out", b"x" * 12_400_000),
    "other_topic": ("other.topic", b"hi"),
    "fleet_topic": ("fleet.status", b"hi"),
    "empty_topic": ("", b"hi"),
    "unprintable_topic": ("bad.\x1b[2J", b"hi"),
}


def publishes(params: Message) -> Any:
    if KIND in PUBLISHES:
        publish(*PUBLISHES[KIND])
    if KIND == "array":
        tell("host/snapshot/publish", topic="bad.out", payload=[104, 105])
    if KIND == "thousand_topics":
        for number in range(1000):
            publish(f"bad.{number}", b"hi")
    if KIND == "flood":
        for number in range(20_000):
            publish("bad.out", b"%d" % number)
    return child.dispatch(params)


SERVES["plugin/cli_dispatch"] = publishes
serve()
