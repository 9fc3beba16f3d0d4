"""`Jail`: one confined start, from the command that makes the sandbox to the end of everything in it.

Owns the work done while bubblewrap waits, the signals that must reach the plugin and not its monitor, and the clean-up.
`admit` and `close` block, for milliseconds or for as long as a slow machine takes, and are for pool threads; `serve`
and `cut_off` are for the loop, and the rest costs nothing.

`Reports` holds the descriptors that bubblewrap reports to and waits on. bubblewrap starts a monitor, the process we
know, whose child is the first process of the new pid namespace; that one sets everything up, waits, and then forks the
plugin. It reports `child-pid` when the first process exists, and `exit-code` at the end if the plugin's program was run
at all. It does not report when the program begins to run; that shows in the command line of the process, which is the
monitor's until then. Reports come through a pair of datagram sockets, because no one reads them when the plugin ends:
writing to a pipe would then kill the monitor. The monitor waits on a pipe that it can also write to, so that our death
is not taken for the permission to go on.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from plugbay.process import limits, pidfd
from plugbay.process.diagnose import LaunchFailed, SandboxUnavailable
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox import mounts, network
from plugbay.process.sandbox.bwrap import explain_setup_failure
from plugbay.process.sandbox.cgroup import DEGRADED, Cgroup, Cgroups
from plugbay.process.sandbox.egress.listener import DIRECT_PORT, Sockets, open_inside
from plugbay.process.sandbox.egress.netlink import forwarding
from plugbay.process.sandbox.network import Networks
from plugbay.process.sandbox.policy import Policy, Reach
from plugbay.process.sandbox.sources import Source
from plugbay.process.sandbox.user_limits import UserLimits
from plugbay.process.sandbox.users import as_user
from plugbay.process.status import ExitStatus, OutOfMemory

if TYPE_CHECKING:
    import asyncio

    from plugbay.process.sandbox.egress.decision import Decision
    from plugbay.process.sandbox.egress.proxy import Proxy

    OnDecision = Callable[[Decision], None]

READY_SECONDS = 5.0
"""For the first process to exist; milliseconds, unless the machine is overloaded."""
RUN_SECONDS = 15.0
"""For the program to be run: as long as a slow file system may take."""
FIRST_LOOK_MS, LONGEST_LOOK_MS = 1, 16
"""Between two looks for the program, doubled each time; it usually runs after one millisecond."""
REST_SECONDS = 0.0005
"""For the rest of a report that has begun. It comes in nine pieces, and waking up for each would take the processor
from the sender."""
_CHILD_PID = re.compile(rb'"child-pid": (\d+).*\}\n', re.DOTALL)
_EXIT_CODE = b'"exit-code"'


class Reports:
    """The sockets and pipes that bubblewrap reports to and waits on: our ends and its ends."""

    __slots__ = ("_gate", "_received", "_socket", "block", "status")

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._received = b""
        self.status = theirs.detach()
        self.block = self._gate = -1
        try:
            reading, self._gate = os.pipe()
            try:
                self.block = os.open(f"/proc/self/fd/{reading}", os.O_RDWR | os.O_CLOEXEC)
            finally:
                os.close(reading)
        except BaseException:
            self.close()
            raise

    def close_their_ends(self) -> None:
        """Close bubblewrap's ends, once it has them."""
        for fd in (self.status, self.block):
            if fd >= 0:
                os.close(fd)
        self.status = self.block = -1

    def close(self) -> None:
        self.close_their_ends()
        self._socket.close()
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def first_process(self, monitor: int, watch: int | None) -> int | None:
        """The pid of the first process inside; None when the monitor ended without one, or it took too long."""
        deadline = time.monotonic() + READY_SECONDS
        while (found := _CHILD_PID.search(self._received)) is None:
            if self._received:
                time.sleep(REST_SECONDS)
            ended = pidfd.has_ended(monitor)
            if self._receive():
                continue
            if ended or time.monotonic() >= deadline:
                return None
            self._pause(watch, LONGEST_LOOK_MS)
        return int(found[1])

    def release(self) -> None:
        """Let bubblewrap go on and run the program."""
        os.write(self._gate, b"!")

    def program(self, monitor: int, first: int, watch: int | None) -> int | None:
        """The pid of the program, once it runs; 0 when it ran and is gone; None when it was never run."""
        deadline = time.monotonic() + RUN_SECONDS
        before = _read(f"/proc/{monitor}/cmdline")
        pause = FIRST_LOOK_MS
        while time.monotonic() < deadline:
            ended = pidfd.has_ended(monitor)
            self._receive()
            pid = first_child(first)
            # A dead process has an empty command line, whether it ran the program or not.
            if pid and _read(f"/proc/{pid}/cmdline") not in (b"", before):
                return pid
            if ended:
                return 0 if _EXIT_CODE in self._received else None
            self._pause(watch, pause)
            pause = min(pause * 2, LONGEST_LOOK_MS)
        return None

    def _receive(self) -> bool:
        """Receive reports; whether there were any."""
        heard = len(self._received)
        while (piece := _attempt(self._socket)) is not None:
            self._received += piece
        return len(self._received) > heard

    def _pause(self, watch: int | None, milliseconds: int) -> None:
        """Wait for a report or for the monitor's end, but no longer than this."""
        poll = select.poll()
        for fd in (self._socket.fileno(), *(() if watch is None else (watch,))):
            poll.register(fd, select.POLLIN)
        poll.poll(milliseconds)


def first_child(pid: int) -> int:
    """The oldest child of a process; 0 when there is none. The monitor has the first process, that has the plugin."""
    return int((_read(f"/proc/{pid}/task/{pid}/children").split() or [b"0"])[0])


def status_of(pid: int) -> dict[str, bytes]:
    """The fields of /proc/PID/status; empty if the process does not exist."""
    lines = (line.partition(b":") for line in _read(f"/proc/{pid}/status").splitlines())
    return {name.decode(): value.strip() for name, _, value in lines}


def parent_of(pid: int) -> int:
    """The pid of a process's parent; 0 when there is no such process."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _attempt(sock: socket.socket) -> bytes | None:
    try:
        return sock.recv(4096) or None
    except OSError:
        return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


OWN_PROCESSES = 2
"""bubblewrap's monitor and the first process inside; they count, and are not the plugin's."""
DATA_FACTOR = 2
"""Without control groups, one process may map so many times its memory. Stacks of threads and arenas of allocators are
mapped whole and touched in part, so less would stop programs that use little; the host measures the memory in use."""
LAST_SIGNAL = 64
DOCTOR = "run plugbay doctor; this bubblewrap may be broken"
STDERR_BYTES = 64 * 1024
"""The size of a pipe; bubblewrap writes one line."""
_REQUIRED_STATUS = {
    "Seccomp": b"2",
    "NoNewPrivs": b"1",
    **dict.fromkeys(("CapPrm", "CapEff", "CapBnd", "CapAmb"), b"0" * 16),
}
"""Fields of /proc/PID/status of a confined process."""


class Jail:
    """Made by `Sandbox.prepare`; the thread that made it starts the command and calls `admit`."""

    __slots__ = (
        "_cgroups",
        "_command",
        "_first",
        "_group",
        "_identity",
        "_inherited",
        "_laid_out",
        "_limits",
        "_monitor",
        "_networks",
        "_opened",
        "_sockets",
        "_user_limits",
        "argv",
        "env",
        "guarded",
        "label",
        "not_forwarded",
        "not_limited",
        "policy",
        "proxy",
        "reports",
        "uid",
    )

    def __init__(
        self,
        command: Sequence[str],
        label: str,
        policy: Policy,
        limits: Rlimits,
        cgroups: Cgroups,
        uid: int | None = None,
        networks: Networks | None = None,
        user_limits: UserLimits | None = None,
    ) -> None:
        """`networks`: where it gets a network of its own, if bubblewrap does not make it one. `user_limits` is for a
        program that runs as the host's user.
        """
        self.policy = policy
        self.uid = uid
        """The user it runs as; None: the host's user."""
        self.label = label
        self.argv: tuple[str, ...] = ()
        self.env: dict[str, str] = {}
        """Command and environment of bubblewrap."""
        self.not_forwarded = ""
        """Why only programs that know of the proxy reach the plugin's network."""
        self.not_limited = ""
        """Why the plugin can use up the inotify instances and watches of the host's user."""
        self.proxy: Proxy | None = None
        self.guarded: tuple[tuple[str, str], ...] = ()
        """Hidden paths in shown folders: the path outside, the name inside."""
        self.reports = Reports()
        self._command = tuple(command)
        self._limits = limits
        self._cgroups = cgroups
        self._networks = networks
        self._group: Cgroup | None = None
        self._sockets: Sockets | None = None
        self._user_limits = user_limits
        self._opened: list[int] = []
        self._inherited: list[int] = []
        self._identity = ExitStack()
        self._laid_out = False
        self._monitor = self._first = 0

    @property
    def pass_fds(self) -> tuple[int, ...]:
        """The descriptors that bubblewrap inherits. Its arguments must name each of them: it closes no other."""
        return (*self._inherited, self.reports.status, self.reports.block)

    @property
    def limits_state(self) -> str:
        return self._cgroups.state

    @property
    def first(self) -> int:
        """The pid of the first process inside, which lives as long as the sandbox; 0 before there is one."""
        return self._first

    def uncovered(self) -> str | None:
        """A hidden path that the plugin sees by now; None when there is none. Blocks."""
        return mounts.uncovered(self._first, self.guarded)

    @property
    def leader(self) -> int:
        """The pid of the plugin's own process; 0 when it is gone."""
        return first_child(self._first) if self._is_alive() else 0

    def keep(self, fd: int) -> int:
        """Close this descriptor when bubblewrap has started, or when there is no start after all."""
        self._opened.append(fd)
        return fd

    def hand_over(self, fd: int) -> int:
        """Let bubblewrap inherit this descriptor, which its arguments must name."""
        self._inherited.append(fd)
        return fd

    def lay_out(self, sources: Sequence[Source]) -> list[str]:
        """Bind the sources for bubblewrap; `admit` undoes it. Returns their paths."""
        paths = mounts.lay_out(sources)
        self._laid_out = True
        return paths

    def assume_identity(self) -> None:
        """Switch the calling thread to the plugin's user, control groups and network; `admit` switches it back.

        So bubblewrap starts in that place, without a program in between. Raises
        SandboxUnavailable or OSError.
        """
        self._group = self._cgroups.create(self.label)
        self._identity.callback(self._group.leave)
        self._group.enter()
        if self._networks is not None:
            self._identity.enter_context(self._networks.enter_new())
        self._identity.enter_context(as_user(self.uid))

    def admit(self, monitor: int, watch: int | None, stderr: int) -> None:
        """Put the sandbox under its limits and let the program run in it.

        `watch` is a pidfd of the monitor. Raises LaunchFailed or OSError; then the caller kills the monitor with its
        group, to which the first process belongs as long as it waits: it would not die with the monitor.
        """
        self._monitor = monitor
        self._identity.close()
        self._close_opened()
        assert self._group is not None
        try:
            with _joining(self._group, monitor):
                leader = self._admit(self._group, monitor, watch, stderr)
                if self._networks is not None:
                    self._networks.prepare_next()
            if leader:
                with suppress(ProcessLookupError):  # it has ended meanwhile
                    self._group.join(monitor, self._first, leader)
        except OSError as error:
            said = _read_stderr(stderr)
            if said:  # a process was gone when it was needed, and bubblewrap has said why
                raise explain_setup_failure(self._command, said) from error
            raise
        finally:
            self.reports.close()

    def _admit(self, group: Cgroup, monitor: int, watch: int | None, stderr: int) -> int:
        """The pid of the program, which runs under its limits; 0 when it has ended already."""
        group.limit(replace(self.policy.limits, processes=self.policy.limits.processes + OWN_PROCESSES))
        first = self.reports.first_process(monitor, watch)
        if first is None:
            raise self._not_run(monitor, stderr, f"it did not start within {READY_SECONDS:g} s")
        self._first = first
        if self.policy.network.reach is not Reach.HOST and network.namespace_of(first) == network.namespace_of("self"):
            raise SandboxUnavailable("the program would share the network of the host, so it was not run", DOCTOR)
        group.hold(monitor, first)
        with as_user(self.uid):  # as root it would take a right that containers do not have
            limits.apply(first, _combined(self._limits, self.policy, self.limits_state))
        limits.prefer_for_oom(first)
        if self.policy.network.proxied:
            self._sockets = open_inside(first, forwarding(DIRECT_PORT, self.policy.network.loopback))
            self.not_forwarded = self._sockets.why
        if self._user_limits is not None:
            self.not_limited = self._user_limits.apply(first)
        self.reports.release()
        leader = self.reports.program(monitor, first, watch)
        self._clear_places()  # not before: the kernel would have bubblewrap wait for it
        if leader is None:
            raise self._not_run(monitor, stderr, "its program did not start")
        if leader:
            _check_confined(leader)
        return leader

    def terminate(self) -> None:
        """SIGTERM to the plugin and its group; bubblewrap's monitor would die of it, and take the plugin with it."""
        leader = self.leader
        if not leader:
            return
        pidfd.signal_group(self._first, signal.SIGTERM)  # the first process itself is immune
        with suppress(ProcessLookupError):
            if os.getpgid(leader) != self._first:
                os.kill(leader, signal.SIGTERM)

    def translate(self, status: ExitStatus) -> ExitStatus:
        """How the plugin ended, from how the monitor did: it says 128 + n when the plugin died of signal n."""
        number = (status.code or 0) - 128
        return ExitStatus(signal=number) if 0 < number <= LAST_SIGNAL else status

    def serve(self, loop: asyncio.AbstractEventLoop, on_decision: OnDecision | None) -> None:
        """In the loop: start the proxy, if the plugin has a network. `on_decision` gets each decision."""
        if self._sockets is not None:
            from plugbay.process.sandbox.egress.proxy import Proxy  # heavy; only for plugins with a network

            sockets, self._sockets = self._sockets, None
            self.proxy = Proxy(loop, sockets, self.policy.network, self.label, on_decision)

    def close_network(self) -> None:
        """In the loop: close the proxy and its connections."""
        if self.proxy is not None:
            self.proxy.close()
            self.proxy = None

    def out_of_memory(self) -> OutOfMemory:
        """Whether the kernel killed a process inside for lack of memory, and whose memory that was."""
        if self._group is None or not self._group.oom_kills():
            return OutOfMemory.NO
        return OutOfMemory.OWN_LIMIT if self._group.reached_limit() else OutOfMemory.AROUND

    def close(self) -> None:
        """Kill all processes inside and release all resources."""
        self._identity.close()
        self._close_opened()
        self.reports.close()
        self._clear_places()
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None
        if self._group is not None:
            self._group.close()

    def _is_alive(self) -> bool:
        """Whether the number of the first process is still its own: as long as the monitor is its parent."""
        return self._first > 0 and parent_of(self._first) == self._monitor

    def _not_run(self, monitor: int, stderr: int, what: str) -> LaunchFailed:
        """The reason why the program did not run: the monitor has ended, or it hangs."""
        if pidfd.has_ended(monitor):
            return explain_setup_failure(self._command, _read_stderr(stderr))
        return SandboxUnavailable(f"the sandbox hangs: {what}", "the machine is overloaded, or a disk does not respond")

    def _close_opened(self) -> None:
        self.reports.close_their_ends()
        while self._opened:
            os.close(self._opened.pop())

    def _clear_places(self) -> None:
        if self._laid_out:
            self._laid_out = False
            mounts.clear()


@contextmanager
def _joining(group: Cgroup, monitor: int) -> Iterator[None]:
    """Let the monitor join its control groups on a thread meanwhile. The kernel makes the first join wait for long and
    the next one not at all; so the first begins early, and the next shows whether joining is possible.
    """

    def join() -> None:
        with suppress(OSError):
            group.join(monitor)

    thread = threading.Thread(target=join, name="plugbay-join")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _combined(wanted: Rlimits, policy: Policy, state: str) -> Rlimits:
    """The limits of one process: the policy's, else the caller's."""
    allowed = policy.limits
    return replace(
        wanted,
        core=0,
        open_files=allowed.open_files,
        file_size=allowed.file_size,
        processes=allowed.processes + 1,  # counted within the sandbox, where the first process is one more
        data=allowed.memory * DATA_FACTOR if state == DEGRADED else None,
    )


def _check_confined(leader: int) -> None:
    """Check from outside, at every start, that the program is confined; a program that has ended passes."""
    said = status_of(leader)
    wrong = [name for name, value in _REQUIRED_STATUS.items() if said.get(name, value) != value]
    if said.get("Uid", b"1").split()[0] == b"0":
        wrong.append("Uid")
    if wrong:
        raise SandboxUnavailable(
            f"the program was killed because its confinement is incomplete: {', '.join(wrong)}",
            DOCTOR,
        )


def _read_stderr(stderr: int) -> str:
    """The text in the pipe; never waits for more."""
    if not select.select([stderr], [], [], 0)[0]:
        return ""
    try:
        return os.read(stderr, STDERR_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
