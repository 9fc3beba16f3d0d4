"""`Journal`: what an operator should know although no call failed of it. Counted per plugin, logged, kept for a while.

The first of its kind of each plugin is a warning, the ones after it are debug lines, so a plugin that misbehaves a
thousand times a second is visible and cannot flood the log; after a while it is counted and not told any more. Text
that came from a plugin is made printable here.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from plugbay.host.rate import Bucket
from plugbay.model.text import printable

LOG = logging.getLogger("plugbay.host")

MAX_TEXT = 500
"""Bytes of one note; whoever needs more looks at the wire."""

KEPT = 200
"""Notes of each plugin that are kept for whoever looks: a few screens full, and at most 400 KiB."""

REMARKS_PER_SECOND = 20.0
"""Of the host's on one plugin, once there were as many as are kept: what comes faster nobody reads, and each costs what
a call does."""

OWN_LINE = "log."
"""How the kind begins of what a plugin wrote itself; every other note is a remark of the host's."""

LEVELS = ("trace", "debug", "info", "warn", "error")
"""From the least to the most important."""


class Note(NamedTuple):
    """One thing that happened, ready to be shown."""

    at: float
    """Seconds since the epoch, UTC."""
    level: str
    """One of `LEVELS`."""
    kind: str
    text: str


Listener = Callable[[str, Note], object]


class Journal:
    """Notes about plugins."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[str, Counter[str]] = {}
        self._recent: dict[str, deque[Note]] = {}
        self._buckets: dict[str, Bucket] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the plugin's id and each note, as it is made; returns a function that ends this."""
        self._listeners.append(listener)

        def cancel() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return cancel

    def note(self, plugin_id: str, kind: str, text: str, times: int = 1, *, level: str = "warn") -> None:
        """Something happened `times` times; `kind` is one of the few words an operator looks for."""
        counts = self._counts.setdefault(plugin_id, Counter())
        severity = logging.DEBUG if counts[kind] else logging.WARNING
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
        """Whether so much was remarked on this plugin that once more is only counted."""
        if kind.startswith(OWN_LINE):
            return False
        bucket = self._buckets.get(plugin_id)
        if bucket is None:
            bucket = self._buckets[plugin_id] = Bucket(REMARKS_PER_SECOND, KEPT)
        return not bucket.take(now)

    def _keep(self, plugin_id: str, note: Note) -> None:
        """A remark that says what the last one says takes its place: no flood pushes out what came before it."""
        recent = self._recent.setdefault(plugin_id, deque(maxlen=KEPT))
        if recent and recent[-1][1:] == note[1:] and not note.kind.startswith(OWN_LINE):
            recent.pop()
        recent.append(note)

    def counts(self, plugin_id: str) -> dict[str, int]:
        """How often each kind of thing has happened to this plugin."""
        return dict(self._counts.get(plugin_id, {}))

    def recent(self, plugin_id: str) -> list[Note]:
        """The last notes about this plugin, oldest first."""
        return list(self._recent.get(plugin_id, ()))


def in_words(facts: Mapping[str, Any]) -> str:
    """The facts of an event as a line for people: `code timeout: no answer`, `exit code 1: the last lines it wrote`."""
    said = facts["message"] if "message" in facts else " / ".join(facts.get("stderr_tail", ()))
    others = [f"{key.replace('_', ' ')} {facts[key]}" for key in facts if key not in ("message", "stderr_tail")]
    return ": ".join(filter(None, (", ".join(others), said)))
