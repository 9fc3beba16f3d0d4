"""Events on pages, and the starts and failures of a plugin. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plugbay.server.dashboard.loader import lifecycle_event
from plugbay.server.dashboard.text import as_json, time_of_day
from plugbay.server.dashboard.views.tones import BAD, CALM, WARN
from plugbay.server.domain.operator_plugins import LIFECYCLE_TOPICS, NumberedEvent

SHORT = 160
"""Characters of an event's payload that are shown beside it; more is a click away."""


MAX_PAYLOAD = 8_000
"""Characters of an event's payload that are shown at all."""


class EventRow(msgspec.Struct, frozen=True):
    """An event of the bus."""

    id: str
    at: str
    time: str
    topic: str
    source: str
    short: str
    whole: str
    """Indented, if there is more than `short`."""


def concerns(event: NumberedEvent, plugin: str) -> bool:
    """Whether an event is of this plugin: published by it, or about its life. Every event is of no plugin."""
    return not plugin or event.data["source"] == plugin or event.topic.startswith(f"{LIFECYCLE_TOPICS}{plugin}.")


def event_row(event: NumberedEvent) -> EventRow:
    """An event with a shortened payload."""
    data = event.data
    short = as_json(data["payload"], spread=False)
    whole = as_json(data["payload"], most=MAX_PAYLOAD) if len(short) > SHORT else ""
    at = str(data["timestamp"])
    shown = f"{short[:SHORT]}…" if whole else short
    return EventRow(event.id, at, time_of_day(at), event.topic, str(data["source"]), shown, whole)


LIFECYCLE_TONES = {"crashed": BAD, "hung": BAD, "gave_up": BAD, "start_failed": BAD, "shutdown_failed": WARN}


SHOWN_LIFECYCLE = 20


class LifecycleRow(msgspec.Struct, frozen=True):
    """A start, an end or a failure of a plugin."""

    at: float
    word: str
    tone: str
    facts: str


def lifecycle_rows(events: Iterable[NumberedEvent]) -> tuple[LifecycleRow, ...]:
    """The history of a plugin, newest first."""
    found = [each for each in map(lifecycle_event, events) if each is not None]
    return tuple(
        LifecycleRow(each.at, each.word.replace("_", " "), LIFECYCLE_TONES.get(each.word, CALM), each.facts)
        for each in found[: -SHOWN_LIFECYCLE - 1 : -1]
    )
