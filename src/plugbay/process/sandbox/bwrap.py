"""The arguments of bubblewrap, from a plan of plain values. Pure.

Every word of a plan stands where bubblewrap takes a value, in a list whose words are ended by NUL and that is passed
through a descriptor: no text of a manifest becomes an option, and neither the machine's process list nor the plugin
itself can read it. The plugin's own command never comes here at all: it follows `--` on the command line.

The order of mounts is part of the meaning, because a later one covers an earlier one: first the files of the system, an
empty /tmp, then the sources of the policy, the deeper the later, and last /proc and /dev, which nothing may replace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plugbay.process.diagnose import LaunchFailed, SandboxUnavailable

HOSTNAME = "plugin"
_FENCES = (
    # Not --unshare-all, which goes on without a user namespace where it gets none.
    "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup --disable-userns "
    "--assert-userns-disabled --die-with-parent --new-session --clearenv"
).split()


@dataclass(frozen=True, slots=True)
class Bind:
    """Something of the machine, and where it is seen."""

    source: str | int
    """A path, or a descriptor that bubblewrap closes."""
    path: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One sandbox, with every decision made."""

    uid: int
    """User and group number inside."""
    seccomp: int
    status: int
    block: int
    """Descriptors: the system call filter, reports of bubblewrap, the pipe it waits on before the program runs."""
    cwd: str
    tmp: int
    """Bytes of /tmp, and as many again of /dev/shm."""
    env: Mapping[str, str] = field(default_factory=dict)
    system: tuple[Bind, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links: where each leads, and its path."""
    files: tuple[tuple[int, str], ...] = ()
    """Files that exist only inside: a descriptor with the content, which bubblewrap copies, and the path."""
    binds: tuple[Bind, ...] = ()
    hidden: tuple[str, ...] = ()
    """Folders within shown ones that are empty; binds within them are visible."""
    masked: tuple[str, ...] = ()
    """Files of /proc that cannot be opened."""
    own_network: bool = True
    """False: the network in which bubblewrap is started."""


def arguments(plan: Plan) -> bytes:
    """The content of `--args` for bubblewrap. Raises ValueError for a word with a NUL."""
    words = _words(plan)
    text = "\0".join([*words, ""])
    if text.count("\0") != len(words):
        raise ValueError("a path or a variable contains a NUL character")
    return os.fsencode(text)


def _words(plan: Plan) -> list[str]:
    words = [*_FENCES, "--uid", str(plan.uid), "--gid", str(plan.uid), "--hostname", HOSTNAME]
    words += ["--unshare-net"] if plan.own_network else []
    for name, value in plan.env.items():
        words += ["--setenv", name, value]
    for bind in plan.system:
        words += _bind(bind)
    words += ["--size", str(plan.tmp), "--tmpfs", "/tmp"]
    for target, path in plan.links:  # after /tmp, in which a program may lie
        words += ["--symlink", target, path]
    for fd, path in plan.files:  # on the root itself, which is made read-only at the end: a mount costs ten times more
        words += ["--perms", "0444", "--file", str(fd), path]
    mounts: list[Bind | str] = [*plan.hidden, *plan.binds]
    for mount in sorted(mounts, key=_depth):
        words += ["--tmpfs", mount] if isinstance(mount, str) else _bind(mount)
    for path in plan.hidden:
        words += ["--remount-ro", path]
    # bubblewrap covers /proc/sys only if the folder itself is writable, which it is not; the files in it are.
    words += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    # Process 1 is bubblewrap, as the plugin's own user: a writer of its memory could make it outlive the host.
    words += ["--size", str(plan.tmp), "--tmpfs", "/proc/1", "--remount-ro", "/proc/1"]
    for path in plan.masked:  # a device, which a bind without devices does not open
        words += ["--ro-bind", "/dev/null", path]
    # The tmpfs of /dev has no size, so nothing may be written to it; programs expect /dev/shm to take files.
    words += ["--dev", "/dev", "--size", str(plan.tmp), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    words += ["--remount-ro", "/", "--chdir", plan.cwd]
    return [*words, "--seccomp", str(plan.seccomp), "--json-status-fd", str(plan.status), "--block-fd", str(plan.block)]


def _bind(bind: Bind) -> list[str]:
    option = "--bind" if bind.writable else "--ro-bind"
    if isinstance(bind.source, int):
        return [f"{option}-fd", str(bind.source), bind.path]
    return [option, bind.source, bind.path]


def _depth(mount: Bind | str) -> tuple[int, int]:
    """Inner mounts come after outer ones; at the same place a writable one, then a cover."""
    path, rank = (mount, 2) if isinstance(mount, str) else (mount.path, int(mount.writable))
    return len([part for part in path.split("/") if part]), rank


NAMESPACES = (
    "allow user namespaces: sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1 on older "
    "Debian, an AppArmor profile for bwrap on Ubuntu (or kernel.apparmor_restrict_unprivileged_userns=0), "
    "and in a container a seccomp profile that lets unshare and mount through"
)
INSTALL = "install bubblewrap 0.8.0-2+deb12u1, 0.10 or newer (apt-get install bubblewrap)"
_RULES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), cause, hint)
    for pattern, cause, hint in (
        (r"(?i)unknown option (\S+)", "this bubblewrap does not know {0}", INSTALL),
        (
            r"Can't chdir to (.+): (.+)",
            "the working directory {0} is not visible inside ({1})",
            "start the plugin in its own folder, or grant it that folder",
        ),
        (r"Exceeded maximum number of arguments", "there are too many variables in its environment", "set fewer"),
        (
            r"(?i)(new namespace|uid map|gid map|unshare|user ?namespaces?|max_user_namespaces|userns)",
            "user namespaces cannot be used",
            NAMESPACES,
        ),
        (r"(?i)seccomp|system call filter", "the system call filter cannot be loaded", "install plugbay again"),
        (
            r"Race condition",
            "a path that it may see was replaced during the start",
            "try again; find the program that renames its folders",
        ),
    )
)
_NOT_RUN = re.compile(r"^bwrap: execvp (.+): (.+)$")


def explain_setup_failure(argv: Sequence[str], said: str) -> LaunchFailed:
    """The error for a start that ended before the program ran. A program that cannot be run is the plugin's failure."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    detail = {"command": list(argv), "said": lines[-5:]}
    for line in reversed(lines):
        refused = _NOT_RUN.match(line)
        if refused is not None:
            return LaunchFailed(
                f"{argv[0]} cannot be run inside its sandbox: {refused[2]}",
                "the program, its interpreter or its libraries may be hidden from the plugin, or unreadable for its "
                "user: add them to read or run of its sandbox settings, or use chmod o+rx",
                detail,
            )
    for line in reversed(lines):
        for pattern, cause, hint in _RULES:
            found = pattern.search(line)
            if found is not None:
                return SandboxUnavailable(
                    f"the sandbox cannot be set up: {cause.format(*found.groups())}", hint, detail
                )
    last = lines[-1] if lines else "bubblewrap ended without a message"
    return SandboxUnavailable(f"the sandbox cannot be set up: {last}", "run plugbay doctor", detail)
