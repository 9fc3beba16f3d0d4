"""`Journal`: incidents and log lines of plugins, for operators: counted, logged, and the latest ones kept.

The first note of a kind and plugin is logged as a warning, later ones at debug level, and a flood is only counted. So a
misbehaving plugin is visible and cannot flood the log. Text of plugins is made printable here.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from plugbay.host.limits import TokenBucket
from plugbay.model.text import printable

LOG = logging.getLogger("plugbay.host")

MAX_TEXT = 500
"""Maximum bytes of one note."""

KEPT = 200
"""Notes kept for each plugin: a few screens full, at most 400 KiB."""

NOTES_PER_SECOND = 20.0
"""Notes of the host about one plugin, after a burst of `KEPT`. Excess notes are only counted: a note costs as much time
as a call."""

OWN_LINE = "log."
"""Prefix of the kind of a plugin's own log lines; all other notes are the host's."""

LEVELS = ("trace", "debug", "info", "warn", "error")
"""From the least to the most important."""


class Note(NamedTuple):
    """One note, printable."""

    at: float
    """Seconds since the epoch, UTC."""
    level: str
    """One of `LEVELS`."""
    kind: str
    text: str


Listener = Callable[[str, Note], object]
"""Called with the plugin's id and the note."""


class Journal:
    """The notes about all plugins of a host."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[str, Counter[str]] = {}
        self._recent: dict[str, deque[Note]] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the plugin's id and each note, as it is made; returns a function that ends this."""
        self._listeners.append(listener)

        def cancel() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return cancel

    def note(
        self,
        plugin_id: str,
        kind: str,
        text: str,
        times: int = 1,
        *,
        level: str = "warn",
        severity: int = logging.WARNING,
    ) -> None:
        """Add a note about something that happened `times` times. `kind` is the name of its counter.

        `severity` is that of the first note of its kind in the log.
        """
        counts = self._counts.setdefault(plugin_id, Counter())
        severity = logging.DEBUG if counts[kind] else severity
        counts[kind] += times
        now = self._clock()
        if severity == logging.DEBUG and self._is_flood(plugin_id, kind, now):
            return
        shown = printable(text[:MAX_TEXT].encode("utf-8", "backslashreplace")[:MAX_TEXT])
        made = Note(now, level, kind, shown)
        self._keep(plugin_id, made)
        for listener in tuple(self._listeners):
            listener(plugin_id, made)
        LOG.log(severity, "%s: %s: %s", plugin_id, kind, shown, extra={"kind": kind})

    def _is_flood(self, plugin_id: str, kind: str, now: float) -> bool:
        """Whether there are so many notes about this plugin that this one is only counted."""
        if kind.startswith(OWN_LINE):
            return False
        bucket = self._buckets.get(plugin_id)
        if bucket is None:
            bucket = self._buckets[plugin_id] = TokenBucket(NOTES_PER_SECOND, KEPT)
        return not bucket.take(now)

    def _keep(self, plugin_id: str, note: Note) -> None:
        """Keep a note. It replaces an equal note before it, so that repetitions do not push out older notes."""
        recent = self._recent.setdefault(plugin_id, deque(maxlen=KEPT))
        if recent and recent[-1][1:] == note[1:] and not note.kind.startswith(OWN_LINE):
            recent.pop()
        recent.append(note)

    def counts(self, plugin_id: str) -> dict[str, int]:
        """The counters of this plugin, by kind."""
        return dict(self._counts.get(plugin_id, {}))

    def recent(self, plugin_id: str) -> list[Note]:
        """The last notes about this plugin, oldest first."""
        return list(self._recent.get(plugin_id, ()))


def describe_facts(facts: Mapping[str, Any]) -> str:
    """The facts of an event as one line: `code timeout: no answer`, `exit code 1: the last lines of stderr`."""
    message = facts["message"] if "message" in facts else " / ".join(facts.get("stderr_tail", ()))
    others = [f"{key.replace('_', ' ')} {facts[key]}" for key in facts if key not in ("message", "stderr_tail")]
    return ": ".join(filter(None, (", ".join(others), message)))
