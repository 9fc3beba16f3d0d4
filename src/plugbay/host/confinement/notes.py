"""What an operator hears about confinement although no call failed of it: one kind of note for each thing.

Owns the words and which journal counter each has. What is noted is decided elsewhere: a plugin that should be confined
and is not, limits that do not hold for all its processes, a granted path that is not there, a connection that was
refused, an end for want of memory or of room, and fewer open files than it was to have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plugbay.host.confinement.policy import Confinement
from plugbay.host.journal import Journal
from plugbay.process.diagnose import Words
from plugbay.process.limits import most_open_files
from plugbay.process.sandbox.cgroup import DEGRADED
from plugbay.process.status import ExitStatus, signal_name

if TYPE_CHECKING:
    from plugbay.process.child import Child
    from plugbay.process.sandbox.egress.decision import Decision

UNCONFINED = "unconfined"
LIMITS_DEGRADED = "limits_degraded"
NOT_SHOWN = "sandbox_not_shown"
REFUSED = "egress_refused"
OUT_OF_MEMORY = "out_of_memory"
TOO_MUCH_STATE = "too_much_state"
UNCOVERED = "uncovered"
FEWER_OPEN_FILES = "fewer_open_files"

MORE_MEMORY = 'raise its limit if it needs more: limits = { memory = "…" } in [plugins."…".sandbox] of plugbay.toml'


def started(journal: Journal, plugin_id: str, confinement: Confinement, child: Child, open_files: int | None) -> None:
    """A child runs: whether it is confined as it should be, and what is said when it ends. It was to have so many open
    files.
    """
    most = most_open_files()
    if open_files is not None and most is not None and most < open_files:
        text = f"it may have {most:,} open files instead of {open_files:,}: the hard limit of the host is lower"
        journal.note(plugin_id, FEWER_OPEN_FILES, text)
    if confinement.downgrade:
        journal.note(plugin_id, UNCONFINED, f"it runs unconfined, with all rights of this user: {confinement.reason}")
    if child.limits_state == DEGRADED:
        text = "no control group limits it: the host checks its memory every second, not its cpu; see plugbay doctor"
        journal.note(plugin_id, LIMITS_DEGRADED, text)
    for text in confinement.notes:
        journal.note(plugin_id, NOT_SHOWN, text)
    if confinement.policy is not None:
        child.on_exit(lambda _: _ended(journal, plugin_id, child))


def _ended(journal: Journal, plugin_id: str, child: Child) -> None:
    if child.oom:
        journal.note(plugin_id, OUT_OF_MEMORY, "it was killed because it used more memory than it may", level="error")


def killed(journal: Journal, plugin_id: str, kind: str, why: str) -> None:
    """The host ends a child that keeps, uses or sees more than it may."""
    journal.note(plugin_id, kind, why, level="error")


def out_of_memory(status: ExitStatus, memory: int) -> Words:
    """It had so many bytes, and wanted more."""
    who = "it was" if signal_name(status.signal or 0) == "SIGKILL" else "a process of it was"
    return (
        f"{who} killed because it used more than its {memory / 2**20:g} MiB of memory",
        MORE_MEMORY,
    )


def too_much_memory(why: str) -> Words:
    """The host found that it used more than it may."""
    return (f"it was killed because {why}", MORE_MEMORY)


def too_much_state(folder: str, why: str) -> Words:
    """It kept more than it may."""
    return (
        f"it was killed because its own folder {folder} is too full: {why}",
        'remove from it what is not needed, or raise the limit: limits = { state = "…" } in [plugins."…".sandbox] of '
        "plugbay.toml",
    )


def uncovered(path: str) -> Words:
    """A protected path was replaced or made while the child ran."""
    return (
        f"it was killed because {path} came into its sight: the path was made or replaced while the plugin ran",
        "the next start covers it again; to keep running plugins alive, grant folders that do not contain it",
    )


def connections(journal: Journal) -> Callable[[Decision], None]:
    """Who hears of each connection that was allowed or refused, and notes the refused ones."""

    def told(verdict: Decision) -> None:
        if not verdict.allowed:
            where = f"{verdict.host}:{verdict.port}: " if verdict.host else ""
            address = f" ({verdict.address})" if verdict.address else ""
            journal.note(verdict.label, REFUSED, f"{where}{verdict.why}{address}")

    return told
