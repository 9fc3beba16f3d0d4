"""Control groups of version 2: one hierarchy, of which a part may be delegated to us.

Owns the names of its files, what of it is enough, and the one move that may be needed before: a group that has
processes cannot give controllers to groups below it. Refuses to know when groups are made and ended.

If all processes of our group are ours, they move into a leaf below it. If strangers live there as well, such as the
shell that started us, nobody is moved: the groups are made beside ours, where the group above already gives the
controllers to all below it and ours has no memory limit that they would escape.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from plugbay.process.sandbox.cgroup_files import (
    PERIOD_US,
    PROCS,
    UNIFIED,
    Branch,
    Files,
    Layout,
    Places,
    Setting,
    cpu_quota,
)
from plugbay.process.sandbox.policy import Limits

STATE = "full"
NEEDED = ("memory", "pids")
WANTED = "cpu"

LEAF_PREFIX = "plugbay-host-"

MOVES = 5
"""How often we look again for processes of ours that were started while the others were moved."""

ADVICE = (
    "run the host as a systemd service with Delegate=yes, or as "
    "`systemd-run --user --scope -p Delegate=yes plugbay …`, and start nothing else in that unit"
)


def find(files: Files, places: Places, host: str) -> Layout | str:
    """Where groups can be made, or why nowhere. `host` names this process in the name of its leaf."""
    own = places.own(UNIFIED)
    if own is None:
        return f"our own control group is not in sight; {ADVICE}"
    try:
        # The leaf that we, or the host that started us, moved into is no place to be divided again.
        problem = "we are in a leaf" if own.name.startswith(LEAF_PREFIX) else _divide(files, own, host)
        base = own
        if problem:
            base = own.parent
            beside = "there is no group above it" if own in places.tops() else _beside(files, own)
            if beside:
                return f"{problem}, and {beside}; {ADVICE}"
        given = files.words(base / "cgroup.subtree_control")
    except OSError as error:
        return f"the control group {own}: {error.strerror}; {ADVICE}"
    why = "" if WANTED in given else "the controller cpu is not delegated: the use of processors is not limited"
    return Layout(STATE, (Branch(base, (settings,), oom_file="memory.events"),), why)


def settings(limits: Limits) -> tuple[Setting, ...]:
    return (
        Setting("memory.max", str(limits.memory)),
        Setting("memory.swap.max", "0", needed=False),  # missing where swap is not counted
        # One process of a plugin less would be a plugin in an unknown state: all or none.
        Setting("memory.oom.group", "1", needed=False),  # since Linux 4.19
        Setting("pids.max", str(limits.processes)),
        Setting("cpu.max", f"{cpu_quota(limits)} {PERIOD_US}", needed=False),  # missing where cpu is not delegated
    )


def _divide(files: Files, own: Path, host: str) -> str:
    """Let groups below ours have the controllers; why not, or nothing."""
    missing = [name for name in NEEDED if name not in files.words(own / "cgroup.controllers")]
    if missing:
        return f"the control group {own} has no {' and '.join(missing)}"
    try:
        if not _enable(files, own) and not _move_and_enable(files, own, host):
            return f"other processes live in the control group {own}"
    except OSError as error:
        return f"the control group {own} cannot be divided: {error.strerror}"
    return ""


def _enable(files: Files, own: Path) -> bool:
    """False when processes are in the way."""
    control = own / "cgroup.subtree_control"
    try:
        if not files.words(control).issuperset(NEEDED):
            files.write(control, " ".join(f"+{name}" for name in NEEDED))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    try:
        files.write(control, f"+{WANTED}")
    except OSError:  # not delegated; the layout says so
        pass
    return True


def _move_and_enable(files: Files, own: Path, host: str) -> bool:
    """Move what is in our group into a leaf, if all of it is ours."""
    if not _all_ours(files.members(own)):
        return False
    leaf = own / f"{LEAF_PREFIX}{host}"
    if not leaf.exists():  # it does when we replaced ourselves by exec
        files.make(leaf)
    for _ in range(MOVES):
        found = files.members(own)
        if not _all_ours(found):
            break
        _move(files, found, leaf)
        if _enable(files, own):
            return True
    _move(files, files.members(leaf), own)
    files.remove(leaf)
    return False


def _move(files: Files, pids: list[int], folder: Path) -> None:
    for pid in pids:
        try:
            files.write(folder / PROCS, str(pid))
        except ProcessLookupError:
            continue


def _beside(files: Files, own: Path) -> str:
    """Why groups cannot be made beside ours, or nothing."""
    above = own.parent
    try:
        if not files.words(above / "cgroup.subtree_control").issuperset(NEEDED):
            return "the group above does not give memory and pids to those below it"
        if files.read(own / "memory.max").strip() != "max":
            return "groups beside it would escape its memory limit"
    except OSError as error:
        return f"the group above cannot be used: {error.strerror}"
    return "" if os.access(above / PROCS, os.W_OK) else "the group above is not ours to use"


def _all_ours(pids: list[int]) -> bool:
    return all(_descends_from_us(pid) for pid in pids)


def _descends_from_us(pid: int) -> bool:
    """Ourselves, our helpers and children; one that is gone is in nobody's way, one without a number in ours is."""
    ancestor = pid
    while ancestor not in (0, os.getpid()):
        try:
            stat = Path(f"/proc/{ancestor}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return not os.path.exists(f"/proc/{pid}")
        ancestor = int(stat.rpartition(")")[2].split()[1])
    return ancestor != 0
