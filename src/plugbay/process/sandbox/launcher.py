"""`Sandbox` prepares a `Jail` for each start: everything that can be decided and opened before a process exists.

Applies a policy: opens the sources, chooses the user, writes the arguments of bubblewrap. If a part is missing the
start fails; a plugin is never run unconfined instead.

`prepare`, the start itself and `Jail.admit` belong on one pool thread. From the first to the last that thread is in the
plugin's place: it sees the sources laid out, is in the plugin's control groups and, when the host is root, is its user
and in its network. So there is nothing to be done between it and `bwrap --args FD -- argv`, and no moment in which that
runs as root. The thread stays without the rights it gave up for that, and without the host's view of the mounts.
`--die-with-parent` ties the sandbox to it, so it must live as long as the host.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, fcntl
from pathlib import Path

from plugbay.model.protected import is_within, protecting
from plugbay.model.users import SANDBOX_USER
from plugbay.process.diagnose import SandboxUnavailable
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox import bwrap, mounts, seccomp, system, users
from plugbay.process.sandbox.bwrap import INSTALL
from plugbay.process.sandbox.cgroup import DEGRADED, Cgroups
from plugbay.process.sandbox.jail import Jail
from plugbay.process.sandbox.mounts import View, covering
from plugbay.process.sandbox.network import Networks
from plugbay.process.sandbox.policy import Policy, Reach
from plugbay.process.sandbox.policy import SandboxSettings as SandboxSettings
from plugbay.process.sandbox.sources import Source, home_folders, normalised, open_source, refused
from plugbay.process.sandbox.user_limits import UserLimits

TMP = "/tmp"

READ, WRITE, LINK, COPY, MADE, EMPTY, UNREADABLE = SHOWN = (
    "read-only",
    "writable",
    "link",
    "copy",
    "made",
    "empty",
    "unreadable",
)
"""How a path appears inside: as outside, as a link or a copy, made for the sandbox alone, or covered."""

Keep = Callable[[int], int]
"""Closes a descriptor when it is no longer needed."""

_SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE


@dataclass(frozen=True, slots=True)
class Program:
    """The program to run inside."""

    argv: tuple[str, ...]
    """Element 0 is an absolute path."""
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """All that it finds in its environment, besides PWD, which bubblewrap sets to `cwd`."""
    label: str = ""
    """The plugin's id, which decides its user."""
    verify: Callable[[str | None], None] | None = None
    """Checks the files of the package; raises LaunchFailed."""


class Sandbox:
    """One for all starts of a host; used by several threads at a time."""

    __slots__ = ("_homes", "cgroups", "networks", "settings", "user_limits")

    def __init__(self, settings: SandboxSettings | None = None, cgroups: Cgroups | None = None) -> None:
        self.settings = settings or SandboxSettings()
        self.cgroups = cgroups or Cgroups()
        self.networks = Networks()
        self.user_limits = UserLimits()
        self._homes = home_folders(os.environ)

    def close(self) -> None:
        """End what was kept ready for further starts."""
        self.networks.close()
        self.user_limits.close()

    @property
    def limits_state(self) -> str:
        """`full`, `full (v1)` or `degraded`; the first question looks at the machine."""
        return self.cgroups.state

    @property
    def why(self) -> str:
        """The reason why limits are degraded."""
        return self.cgroups.why

    def prepare(self, program: Program, policy: Policy, limits: Rlimits, marks: Mapping[str, str]) -> Jail:
        """Everything up to the start. `marks` are for the monitor, by which the warden finds it; not for the plugin.

        Raises SandboxUnavailable, OSError, or ValueError for a NUL somewhere; then nothing stays open.
        """
        uid = users.uid_of(program.label, self.settings)
        if uid is not None:
            users.check_mapped(uid, self.settings)
        if self.settings.require_limits and self.limits_state == DEGRADED:
            raise SandboxUnavailable("limits of memory and processes are required, but cannot be set here", self.why)
        launcher = tool("bwrap")
        networks = None if uid is None or policy.network.reach is Reach.HOST else self.networks
        user_limits = self.user_limits if uid is None else None
        jail = Jail(program.argv, program.label, policy, limits, self.cgroups, uid, networks, user_limits)
        try:
            arguments = self._write_arguments(jail, program, policy, uid)
            jail.argv = (launcher, "--args", str(arguments), "--", *program.argv)
            # LC_ALL, because `explain_setup_failure` reads the messages of bubblewrap in English.
            jail.env = {"LC_ALL": "C", **marks}
            jail.assume_identity()
        except BaseException:
            jail.close()
            raise
        return jail

    def _write_arguments(self, jail: Jail, program: Program, policy: Policy, uid: int | None) -> int:
        """Open everything; the descriptor of bubblewrap's arguments."""
        if uid is not None:
            mounts.enter(kept=self.cgroups.bases)
            users.drop_privileges()
        _make_state(policy.state, uid)
        fence = _fence(program, policy)
        view = self._view(jail.keep, program, policy, uid, fence)
        jail.guarded = view.guarded
        with users.as_user(uid):
            copied = [(jail.hand_over(jail.keep(fd)), path) for fd, path in system.copied()]
        own_network = policy.network.reach is not Reach.HOST
        code = seccomp.program(network=policy.network.reach is not Reach.NONE)
        home = TMP if policy.state is None else str(policy.state)
        user = policy.user if policy.user is not None else os.geteuid() if uid is None else uid
        files = system.files(home, user, own_network=own_network)
        # From here on this thread does not see /tmp, where plugbay itself may be: everything has been read.
        places = self._places(jail, [source for source, _ in view.shown], uid)
        binds = [
            bwrap.Bind(place, name, source.writable) for place, (source, name) in zip(places, view.shown, strict=True)
        ]
        # A device, which a bind without devices does not open.
        binds += [bwrap.Bind(os.devnull, name) for name in view.unreadable]
        plan = bwrap.Plan(
            uid=user,
            seccomp=_memory_file(jail, "filter", code),
            status=jail.reports.status,
            block=jail.reports.block,
            cwd=str(program.cwd),
            tmp=policy.limits.tmp,
            env=program.env,
            system=system.binds(own_network=own_network) if fence is None else fence.binds,
            links=system.links() if fence is None else fence.links,
            files=(*copied, *((_memory_file(jail, "file", content), path) for path, content in files.items())),
            binds=tuple(binds),
            hidden=view.empty,
            masked=system.masked(),
            own_network=own_network and uid is None,  # with a user of its own it is started in one: `Networks`
        )
        return _memory_file(jail, "arguments", bwrap.arguments(plan))

    def _places(self, jail: Jail, sources: list[Source], uid: int | None) -> Sequence[str | int]:
        """Where bubblewrap finds the sources."""
        if uid is not None:
            return jail.lay_out(sources)
        return [jail.hand_over(source.fd) for source in sources]

    def visible(self, program: Program, policy: Policy) -> list[tuple[str, str]]:
        """Everything that the program would see: how, one of `SHOWN`, and the path inside. Nothing is made or started.

        Raises SandboxUnavailable or OSError.
        """
        with ExitStack() as stack:

            def keep(fd: int) -> int:
                stack.callback(os.close, fd)
                return fd

            there = [path for path in policy.write if os.path.lexists(path)]
            state = policy.state if policy.state is not None and os.path.lexists(policy.state) else None
            made = [path for path in (*policy.write, policy.state) if path not in (*there, state, None)]
            fence = _fence(program, policy)
            view = self._view(
                keep,
                program,
                replace(policy, write=tuple(there), state=state),
                users.uid_of(program.label, self.settings),
                fence,
            )
        own_network = policy.network.reach is not Reach.HOST
        binds = system.binds(own_network=own_network) if fence is None else fence.binds
        seen = [(READ, bind.path) for bind in binds]
        seen += [(LINK, path) for _, path in (system.links() if fence is None else fence.links)]
        seen += [(COPY, path) for path in system.COPIED if os.access(path, os.R_OK)]
        seen += [(MADE, path) for path in system.files(TMP, SANDBOX_USER, own_network=own_network)]
        seen += [(MADE, path) for path in (TMP, "/proc", "/dev")]
        seen += [(WRITE if source.writable else READ, name) for source, name in view.shown]
        seen += [(WRITE, str(path)) for path in made]
        seen += [(EMPTY, path) for path in view.empty]
        return [*seen, *((UNREADABLE, path) for path in (*view.unreadable, *system.masked()))]

    def _view(self, keep: Keep, program: Program, policy: Policy, uid: int | None, fence: system.Fence | None) -> View:
        """Open all sources and find the paths to cover. Raises SandboxUnavailable or OSError."""
        sources = list(self._sources(keep, program, policy, fence))
        with users.as_user(uid):
            for source in sources:
                _check_rights(source, policy, uid)
            view = covering(keep, sources, policy.hidden)
        _verify_package(program, policy, sources)
        return view

    def _sources(self, keep: Keep, program: Program, policy: Policy, fence: system.Fence | None) -> Iterator[Source]:
        """The sources of the policy and the program. A source within another one is left out."""
        hidden, state = set(policy.hidden), () if policy.state is None else (policy.state,)
        own = [*map(os.path.realpath, (policy.package, *state)), *policy.own]
        written = dict.fromkeys((*policy.write, *state))
        ruled = [self._open(keep, str(path), writable=True) for path in written]
        for source in ruled:
            _check_links(source, ruled)
            _check_hidden(source, hidden, own)
        yield from ruled
        shown: list[str] = []
        named = dict.fromkeys(map(str, (policy.package, *policy.read, *self.settings.read)))
        if fence is not None:
            named = dict.fromkeys(map(system.place, named))
            needed = dict.fromkeys(fence.needed)
        else:
            needed = dict.fromkeys(system.needed(program.argv, program.env, program.cwd))
            for run in policy.run:
                needed |= dict.fromkeys(system.needed((str(run),), program.env))
        for path in (*named, *needed):
            clean = normalised(path)
            visible = system.is_system(path) if fence is None else fence.shows(clean)
            if not visible and not any(is_within(clean, other) for other in shown):
                source = self._open(keep, path, links=path in needed)
                if path in named:
                    _check_links(source, ruled)
                _check_hidden(source, hidden, (*own, *system.host_python()) if path in needed else own)
                shown += [source.path] if source.folder and source.path == source.resolved else []
                yield source

    def _open(self, keep: Keep, path: str, *, writable: bool = False, links: bool = False) -> Source:
        source = open_source(path, self._homes, writable=writable, links=links)
        keep(source.fd)
        return source


def _fence(program: Program, policy: Policy) -> system.Fence | None:
    """The programs and libraries of a fenced plugin; None: all programs of the system."""
    if not policy.fenced:
        return None
    commands = [program.argv, *((str(run),) for run in (*policy.run, *policy.tools))]
    return system.fence(commands, program.env, program.cwd, own_network=policy.network.reach is not Reach.HOST)


def tool(name: str) -> str:
    """The path of a program that the sandbox needs. Raises SandboxUnavailable."""
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise SandboxUnavailable(f"{name} is not installed; confinement needs it", INSTALL)
    if os.stat(found).st_mode & stat.S_ISUID:
        hint = f"run: chmod u-s {found}; it needs no special rights where user namespaces are allowed"
        raise SandboxUnavailable(f"{found} is set-uid root, which confines less than user namespaces do", hint)
    return found


def _make_state(folder: Path | None, uid: int | None) -> None:
    """Make the plugin's own folder, which no other user can read."""
    if folder is None or folder.is_symlink():  # a link is refused where it is opened
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    if uid is not None:
        os.chown(folder, uid, uid, follow_symlinks=False)


def _check_rights(source: Source, policy: Policy, uid: int | None) -> None:
    """Refuse a grant that exceeds the rights of the plugin's user. Runs as that user."""
    user = "the host's user" if uid is None else f"its user {uid}"
    if source.writable and not users.may(source.fd, os.W_OK | (os.X_OK if source.folder else 0)):
        number = os.getuid() if uid is None else uid
        hint = f"run: setfacl -R -m u:{number}:rwX {source.path}, or chown -R {number} {source.path}"
        raise refused(source.path, f"may be written by the plugin, but {user} has no right to", hint)
    if source.path == str(policy.package) and not users.may(source.fd, os.R_OK | os.X_OK):
        hint = f"run: chmod -R o+rX {source.path}"
        raise refused(source.path, f"is the plugin's folder, but {user} may not read it", hint)


def _verify_package(program: Program, policy: Policy, sources: Sequence[Source]) -> None:
    """Check the files of the package in the folder that will be shown, which is already open: another folder that takes
    its name from here on is not the plugin's.
    """
    if program.verify is not None:
        package = normalised(str(policy.package))
        shown = next((source for source in sources if package in (source.path, source.resolved)), None)
        program.verify(None if shown is None else f"/proc/self/fd/{shown.fd}")


def _check_links(source: Source, ruled: Sequence[Source]) -> None:
    """Refuse a path through a link in a folder that the plugin may write: the plugin could choose the target."""
    for around in ruled:
        below = source.path.startswith(f"{around.path}/")
        if below and not source.resolved.startswith(f"{around.resolved}/"):
            why = f"is a link in {around.path}, where the plugin may write; it leads to {source.resolved}"
            raise refused(source.path, why, "use the target of the link")


def _check_hidden(source: Source, hidden: Container[str], own: Sequence[str]) -> None:
    """Check the list again: a link may have changed since the policy was made."""
    entry = protecting(source.resolved, hidden, own)
    if entry is not None:
        why = f"must not be visible to a plugin: it is in {entry}, which belongs to the host or to another plugin"
        raise refused(source.path, why, "no grant allows that: remove the grant, or move the file")


def _memory_file(jail: Jail, name: str, content: bytes) -> int:
    """A sealed file in memory for bubblewrap."""
    fd = jail.hand_over(jail.keep(os.memfd_create(f"plugbay-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)))
    if os.pwrite(fd, content, 0) != len(content):  # not `write`: bubblewrap reads from where the descriptor stands
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    fcntl(fd, F_ADD_SEALS, _SEALS)
    return fd
