"""`OrgLogs`: the output of plugins, stderr and `log` events, in a bounded file for each org and plugin.

A process serves one org, so its stderr is the org's from the first invocation on, with the lines before it. Lines are
redacted before they come here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from plugbay.process.stderr import RotatingLog, StderrDrain, log_name

MAX_BYTES = 1 << 20
"""Bytes of a file; one older file is kept beside it."""

LOG_EVENT = "log"
LEVELS = ("debug", "info", "warn", "error")
"""Levels of a log event; any other is `info`."""


def org_label(org_id: str, plugin_id: str) -> str:
    """The name of a log. Ids have no colon, so no two logs share one."""
    return f"{org_id}:{plugin_id}"


class OrgLogs:
    """The log files of all orgs, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, RotatingLog] = {}

    def attach(self, org_id: str, plugin_id: str, stderr: StderrDrain) -> None:
        """Copy the stderr of a process to the log of its org; a process that is attached stays attached."""
        if stderr.copy is None:
            stderr.copy_to(self._log(org_id, plugin_id))

    def write(self, org_id: str, plugin_id: str, lines: Iterable[str]) -> None:
        """Add lines of a process that did not start."""
        self._log(org_id, plugin_id).write([line.encode() for line in lines], "[start]")

    def write_event(self, org_id: str, plugin_id: str, event: Any) -> None:
        """Add a `log` event of an invocation; other events are not logged."""
        if (
            not isinstance(event, Mapping)
            or event.get("type") != LOG_EVENT
            or not isinstance(event.get("message"), str)
        ):
            return
        level = event.get("level")
        tag = f"[{LOG_EVENT}:{level if level in LEVELS else 'info'}]"
        self._log(org_id, plugin_id).write([line.encode() for line in event["message"].splitlines()], tag)

    def _log(self, org_id: str, plugin_id: str) -> RotatingLog:
        label = org_label(org_id, plugin_id)
        with suppress(OSError):  # the log itself counts lines that it cannot write
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # each time: it may have been removed
        if label not in self._open:
            self._open[label] = RotatingLog(self.folder / log_name(label), MAX_BYTES, keep=1)
        return self._open[label]
