"""`Journal`: what an operator should know although no call failed of it. Counted per plugin, and logged.

The first of its kind of each plugin is a warning, the ones after it are debug lines, so a plugin that misbehaves a
thousand times a second is visible and cannot flood the log. Text that came from a plugin is made printable here.
"""

from __future__ import annotations

import logging
from collections import Counter

from plugbay.model.text import printable

LOG = logging.getLogger("plugbay.host")

MAX_TEXT = 500
"""Bytes of one note; whoever needs more looks at the wire."""


class Journal:
    """Notes about plugins."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def note(self, plugin_id: str, kind: str, text: str, times: int = 1) -> None:
        """Something happened `times` times; `kind` is one of the few words an operator looks for."""
        counts = self._counts.setdefault(plugin_id, Counter())
        level = logging.DEBUG if counts[kind] else logging.WARNING
        counts[kind] += times
        if LOG.isEnabledFor(level):
            shown = printable(text.encode("utf-8", "backslashreplace")[:MAX_TEXT])
            LOG.log(level, "%s: %s: %s", plugin_id, kind, shown)

    def counts(self, plugin_id: str) -> dict[str, int]:
        """How often each kind of thing has happened to this plugin."""
        return dict(self._counts.get(plugin_id, {}))
