"""Control groups of version 1: one hierarchy for each controller, in the hands of root.

Owns the names of their files and what of them is enough. Refuses to know when groups are made and ended.
"""

from __future__ import annotations

from pathlib import Path

from plugbay.process.sandbox.cgroup_files import UNIFIED, Branch, Layout, Places, Setting, Settings, cpu_quota
from plugbay.process.sandbox.policy import Limits

STATE = "full (v1)"

SOCKETS = "memory.kmem.tcp.limit_in_bytes"

ADVICE = "run the host as root, or boot with version 2 (systemd.unified_cgroup_hierarchy=1) and delegate a group"


def find(places: Places) -> Layout | str:
    """Where groups can be made, or why nowhere."""
    found = {name: base for name in _CONTROLLERS if (base := places.own(name)) is not None}
    missing = [name for name in ("memory", "pids") if name not in found]
    if missing:
        return f"the control groups for {' and '.join(missing)} are not mounted, or our own is not in sight; {ADVICE}"
    lacking = [] if "cpu" in found else ["no control groups for cpu are mounted: the use of processors is not limited"]
    if not (found["memory"] / SOCKETS).exists():
        lacking.append(f"this kernel has no {SOCKETS}: the host checks buffers of sockets every second instead")
    # One hierarchy may have several controllers, as in cpu,cpuacct: then they share a folder.
    bases = dict.fromkeys(found.values())
    return Layout(STATE, tuple(_branch(base, found) for base in bases), "; ".join(lacking))


def killer(places: Places) -> Branch | None:
    """The version 2 hierarchy beside them: without controllers, but it can kill a whole group at once."""
    base = places.own(UNIFIED)
    return None if base is None else Branch(base)


def _memory(limits: Limits) -> tuple[Setting, ...]:
    return (
        Setting("memory.limit_in_bytes", str(limits.memory)),
        # Memory and swap together, so no swap. Must come second; the file is missing where swap is not counted.
        Setting("memory.memsw.limit_in_bytes", str(limits.memory), needed=False),
        # Buffers of TCP and UDP sockets, which the limit above does not count. Holds for sockets that are made later.
        Setting(SOCKETS, str(limits.sockets), needed=False),
    )


def _pids(limits: Limits) -> tuple[Setting, ...]:
    return (Setting("pids.max", str(limits.processes)),)


def _cpu(limits: Limits) -> tuple[Setting, ...]:
    # Refused when a group above us has less: then that less is the limit. The period is the kernel's default.
    return (Setting("cpu.cfs_quota_us", str(cpu_quota(limits)), needed=False),)


_CONTROLLERS: dict[str, Settings] = {"memory": _memory, "pids": _pids, "cpu": _cpu}


def _branch(base: Path, found: dict[str, Path]) -> Branch:
    settings = tuple(_CONTROLLERS[name] for name, where in found.items() if where == base)
    return Branch(base, settings, threads=True, oom_file="memory.oom_control" if base == found["memory"] else "")
