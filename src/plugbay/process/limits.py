"""Resource limits of a child's process, set from outside. Control groups limit the whole process tree.

The limits are set by the parent right after the child's exec, because setting them in the child before exec would need
`preexec_fn`, and that turns a 0.2 ms vfork into a fork that copies the host's page tables. Between exec and the call
lies a short race: files and processes of the child in it are not limited. It is microseconds on an idle machine and a
few milliseconds on a busy one, less than an interpreter needs to start. Where that matters, a confined program is held
back until its limits are set.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

MIB = 1024 * 1024

OPEN_FILES = 4096
"""Enough for a Node server that watches a large tree; stops a plugin that leaks before it hurts the machine."""

HOST_OPEN_FILES = 65_536
"""Of a host: enough for 16,000 plugins."""

OOM_SCORE = 500
"""A plugin counts as if it used half of the memory more than it does: a host must have grown far beyond its plugins
before the kernel kills it first."""

FILE_SIZE = 256 * MIB
"""The size of a plugin's state folder: no single file has a reason to be larger."""

CPU_GRACE_SECONDS = 5
"""Between SIGXCPU, which says why, and SIGKILL, which does not."""


@dataclass(frozen=True, slots=True)
class Rlimits:
    """One field per limit; None leaves the host's own limit alone."""

    core: int | None = 0
    """No core dumps: they hold secrets and fill disks."""
    open_files: int | None = OPEN_FILES
    file_size: int | None = FILE_SIZE
    processes: int | None = None
    """Counts all processes of the user, not of the plugin, and root ignores it; so off unless asked for."""
    cpu_seconds: int | None = None
    address_space: int | None = None
    """Off unless asked for: runtimes such as node and go reserve far more than they use."""
    data: int | None = None
    """Private writable memory (Linux 4.7 and newer), whether it is touched or not."""


def apply(pid: int, limits: Rlimits) -> None:
    """Limit a running process; one that is already gone is not an error.

    A limit above the process's hard limit is clamped to it. Raises PermissionError when the process changed
    its user (a set-uid program), because a limit that silently does not hold is worse than a child that does
    not start.
    """
    prlimit = getattr(resource, "prlimit", None)
    if prlimit is None:  # only Linux can limit another process
        return
    try:
        for which, soft, hard in _wanted(limits):
            _, allowed = prlimit(pid, which)
            prlimit(pid, which, (_lower(soft, allowed), _lower(hard, allowed)))
    except ProcessLookupError:
        return


def prefer_for_oom(pid: int) -> None:
    """Have the kernel kill this process and its later children before the host, if memory runs out.

    Of all plugins it takes the largest. Without this, a host with much in flight may be the largest process of its
    control group. A program that has a higher score already keeps it.
    """
    path = f"/proc/{pid}/oom_score_adj"
    with suppress(OSError, ValueError):  # it has ended, or this is not Linux; the limits hold without it
        at = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # `open` takes three times as long, twice
        try:
            if int(os.read(at, 16)) < OOM_SCORE:
                os.pwrite(at, b"%d" % OOM_SCORE, 0)
        finally:
            os.close(at)


def most_open_files() -> int | None:
    """The most open files that any child can have: the host's own hard limit; None: there is no limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def raise_open_files() -> None:
    """Raise this process's soft limit of open files as far as its hard one allows.

    For programs that are a host: each plugin takes four descriptors, so the usual soft limit of 1,024, meant for
    programs that use `select`, ends at 240 plugins. Children get limits of their own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _lower(HOST_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _wanted(limits: Rlimits) -> Iterator[tuple[int, int, int]]:
    """Resource number, soft value, hard value, for every limit that is set."""
    values = (
        (resource.RLIMIT_CORE, limits.core, 0),
        (resource.RLIMIT_NOFILE, limits.open_files, 0),
        (resource.RLIMIT_FSIZE, limits.file_size, 0),
        (resource.RLIMIT_NPROC, limits.processes, 0),
        (resource.RLIMIT_CPU, limits.cpu_seconds, CPU_GRACE_SECONDS),
        (resource.RLIMIT_AS, limits.address_space, 0),
        (resource.RLIMIT_DATA, limits.data, 0),
    )
    for which, value, grace in values:
        if value is not None:
            yield which, value, value + grace


def _lower(value: int, allowed: int) -> int:
    return value if allowed == resource.RLIM_INFINITY else min(value, allowed)
