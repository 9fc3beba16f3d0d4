"""Journal notes and messages about confinement.

Owns the texts and the journal counter of each: a plugin that runs unconfined, limits that do not cover all processes,
granted paths that do not exist, refused connections, kills for memory or disk use, and a lower limit of open files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plugbay.host.confinement.policy import Confinement
from plugbay.host.journal import Journal
from plugbay.process.diagnose import Words
from plugbay.process.limits import most_open_files
from plugbay.process.sandbox.cgroup import DEGRADED
from plugbay.process.status import ExitStatus, OutOfMemory, signal_name
from plugbay.process.usage import memory_limit

if TYPE_CHECKING:
    from plugbay.process.child import Child
    from plugbay.process.sandbox.egress.decision import Decision

UNCONFINED = "unconfined"
LIMITS_DEGRADED = "limits_degraded"
NOT_SHOWN = "sandbox_not_shown"
REFUSED = "egress_refused"
NOT_FORWARDED = "egress_not_forwarded"
NOT_LIMITED = "inotify_not_limited"
OUT_OF_MEMORY = "out_of_memory"
TOO_MUCH_STATE = "too_much_state"
UNCOVERED = "uncovered"
FEWER_OPEN_FILES = "fewer_open_files"

MORE_MEMORY = 'raise its limit if it needs more: limits = { memory = "…" } in [plugins."…".sandbox] of plugbay.toml'

LESS_MEMORY = (
    "give the host more memory, run fewer plugins at once, or give this one a limit below that: "
    'limits = { memory = "…" } in [plugins."…".sandbox] of plugbay.toml'
)


def note_start(
    journal: Journal, plugin_id: str, confinement: Confinement, child: Child, open_files: int | None
) -> None:
    """Note how a new process deviates from the confinement it should have, and register a note for its end.

    `open_files` is the limit that was configured.
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
    if child.jail is not None and child.jail.not_forwarded:
        text = f"only programs that use the proxy variables reach its network: {child.jail.not_forwarded}"
        journal.note(plugin_id, NOT_FORWARDED, text)
    if child.jail is not None and child.jail.not_limited:
        text = f"it can use up the inotify watches of this user: {child.jail.not_limited}"
        journal.note(plugin_id, NOT_LIMITED, text)
    for text in confinement.notes:
        journal.note(plugin_id, NOT_SHOWN, text)
    memory = None if confinement.policy is None else confinement.policy.limits.memory
    child.on_exit(lambda status: _note_exit(journal, plugin_id, child, status, memory))


def _note_exit(journal: Journal, plugin_id: str, child: Child, status: ExitStatus, memory: int | None) -> None:
    if child.oom:
        journal.note(
            plugin_id, OUT_OF_MEMORY, describe_oom(status, child.oom, memory, memory_limit())[0], level="error"
        )


def note_kill(journal: Journal, plugin_id: str, kind: str, why: str) -> None:
    """Note that the host killed a process."""
    journal.note(plugin_id, kind, why, level="error")


def describe_oom(status: ExitStatus, oom: OutOfMemory, memory: int | None, around: int | None = None) -> Words:
    """Cause and hint: the kernel killed it for lack of memory.

    `memory` is its own limit, `around` that of the host's control group; None: there is none.
    """
    who = "it was" if signal_name(status.signal or 0) == "SIGKILL" else "one of its processes was"
    if oom is OutOfMemory.OWN_LIMIT and memory is not None:
        return f"{who} killed because it used more than its {_mib(memory)} of memory", MORE_MEMORY
    place = "the machine" if around is None else f"the host's control group, which has {_mib(around)},"
    sure = "" if oom is OutOfMemory.AROUND else "probably "
    return f"{who} {sure}killed because {place} ran out of memory", LESS_MEMORY


def _mib(number: int) -> str:
    return f"{number / 2**20:g} MiB"


def describe_memory_excess(why: str) -> Words:
    """Cause and hint: a check of the host found too much memory in use."""
    return (f"it was killed because {why}", MORE_MEMORY)


def describe_state_excess(folder: str, why: str) -> Words:
    """Cause and hint: its state folder is over its quota."""
    return (
        f"it was killed because its own folder {folder} is too full: {why}",
        'delete unneeded files from it, or raise the limit: limits = { state = "…" } in [plugins."…".sandbox] of '
        "plugbay.toml",
    )


def describe_uncovered(path: str) -> Words:
    """Cause and hint: a protected path was created or replaced while it ran."""
    return (
        f"it was killed because {path} became visible to it: the path was created or replaced while the plugin ran",
        "the next start hides it again; to avoid such a kill, grant folders that do not contain it",
    )


def egress_listener(journal: Journal) -> Callable[[Decision], None]:
    """A listener for decisions of egress proxies that notes refused connections."""

    def listen(decision: Decision) -> None:
        if not decision.allowed:
            journal.note(decision.label, REFUSED, str(decision))

    return listen
