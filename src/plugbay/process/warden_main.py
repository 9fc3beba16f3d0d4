"""The helper that outlives the host: kills every process that carries a dead host's or a dead child's mark.

Reads marks in environments and nothing else. `warden.py` runs this file by its path:

    python -I -S warden_main.py <host mark> <host pid> [clean]

stdin:  `sweep <token>`  kill the processes with this child's token; answer `swept <token> <count>` on stdout
        `start`          starts are under way, of children whose marks may not be seen yet, until `started`
        `until <time>`   from this time of the boot clock on, kill all with the host's mark, unless a later one comes
        `bye`            the host closes in good order: one last look is enough
        end of file      the host is dead: kill everything with its mark, look until nothing is left, leave

It imports little, because it must cost little and must work when almost nothing else does. Why a kill cannot
hit another process: first a pidfd is taken, then the environment is read again. If the pid was reused before that,
the pidfd belongs to the new process, whose environment lacks the mark, and nothing is sent; if it is reused
after that, the pidfd belongs to the dead process and the signal goes nowhere.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Wanted = Callable[[bytes, bytes], bool]
    """Is a process with this host mark and this child token to be killed?"""

    Blank = tuple[int, bytes]
    """The number of a process, and when it was started."""

HOST_MARK = b"PLUGBAY_HOST="
CHILD_MARK = b"PLUGBAY_CHILD="

PF_KTHREAD = 0x00200000
"""The flag of a kernel thread in /proc/<pid>/stat."""

ENVIRON_BYTES = 8 * 1024 * 1024
"""Four times the largest environment under the usual stack limit."""

AGAIN_MS = 10
"""Until the next look when the last one killed something: the time SIGKILL needs on a busy machine."""

PAUSE_MS = 50
"""Until the next look when the last one found nothing: what ends in a stream of children is searched for together. A
look reads the environment of every process."""

SETTLE_MS = 100
SETTLE_LOOKS = 5
"""After the host's death this many looks in a row must find nothing: a child that was between vfork and exec
when the host died carries its mark only after exec."""

STARTING_LOOKS = 150
"""The same when the host died in the middle of a start: exec may wait 15 seconds for a slow file system."""

WATCH_MS = 100
"""Between looks at the boot clock while the children may live for a limited time. No timer of `poll` counts while the
machine is suspended."""

LISTS = 4
"""Of all processes in one look, each after what is new in the one before was looked at. On a machine that starts
processes all the time there always is something new."""

PATIENCE = 200
"""Looks after which a token is answered and a dead host is given up even though something still has the mark, or may
have: a process in an uninterruptible wait must not hold up the others. At least two seconds."""


def main(arguments: list[str]) -> None:
    """Serve until the host says goodbye or dies; then leave nothing of it behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A signal to all children of a host must not end the helper first; it ends last.
        signal.signal(number, signal.SIG_IGN)
    mark = os.fsencode(arguments[0])
    sweeper = Sweeper(int(arguments[1]), mark)
    if arguments[2:] == ["clean"]:
        # If an earlier host and its guard were killed together, this is the first chance to clean up after them.
        sweeper.search.kill(lambda host, _: host_is_gone(host), {os.getpid(), int(arguments[1])})
    orderly = sweeper.serve()
    calm_looks = 1 if orderly else STARTING_LOOKS if sweeper.starting else SETTLE_LOOKS
    kill_all(lambda host, child: host == mark, calm_looks, sweeper.search)


class Sweeper:
    """The part of the helper's life in which the host lives."""

    __slots__ = (
        "_alive",
        "_buffer",
        "_doubts",
        "_host",
        "_looks",
        "_mark",
        "_orderly",
        "_poll",
        "_until",
        "_wanted",
        "search",
        "starting",
    )

    def __init__(self, host: int, mark: bytes = b"") -> None:
        self._host = host
        self._mark = mark
        self._until: float | None = None
        """Until when the children of the host may live, by the boot clock."""
        self._alive = True
        self._orderly = False
        self._buffer = b""
        self.starting = False
        self.search = Search()
        self._looks: dict[bytes, int] = {}
        self._doubts: dict[bytes, set[Blank]] = {}
        """For each token, who has shown nothing in all looks since the last that found something of it."""
        self._wanted: dict[bytes, set[int]] = {}
        """For each token that is asked for, the processes killed so far."""
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        try:
            # A fork of the host would hold our stdin open after the host's death; the pidfd is not fooled.
            self._poll.register(os.pidfd_open(host), select.POLLIN)
        except OSError:
            self._alive = False

    def serve(self) -> bool:
        """Answer requests; True when the host said goodbye, False when it vanished."""
        while self._alive:
            limit = self._watch()
            self._listen(0 if self._wanted else limit)
            if self._wanted and self._alive:
                self._pause(AGAIN_MS if self._look() else PAUSE_MS)
        return self._orderly

    def _watch(self) -> int | None:
        """Kill the children when their time is over; returns the milliseconds until the next look, if there is one."""
        if self._until is None:
            return None
        if boot_time() < self._until:
            return WATCH_MS
        found = self.search.kill(lambda host, _: host == self._mark, {os.getpid(), self._host})
        return AGAIN_MS if found or self.search.blank else PAUSE_MS

    def _pause(self, milliseconds: int) -> None:
        """Collect requests for a while, however many come; the end of the host cuts it short."""
        end = time.monotonic() + milliseconds / 1000
        while self._alive and (left := end - time.monotonic()) > 0:
            self._listen(left * 1000)

    def _listen(self, timeout: float | None) -> None:
        ready = {fd for fd, _ in self._poll.poll(timeout)}
        if 0 in ready:
            self._hear(os.read(0, 65536))
            ready.discard(0)
        if ready and not self._orderly:
            self._alive = False

    def _hear(self, data: bytes) -> None:
        if not data:
            self._alive = False
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            verb, _, token = line.partition(b" ")
            if verb == b"sweep":
                self._wanted.setdefault(token, set())
            elif verb in (b"start", b"started"):
                self.starting = verb == b"start"
            elif verb == b"until":
                self._until = float(token)
            elif verb == b"bye":
                self._alive, self._orderly = False, True

    def _look(self) -> bool:
        """One look for all tokens; one of which nothing is left is answered. True: look again soon."""
        found = self.search.kill(lambda _, child: child in self._wanted, {os.getpid(), self._host})
        for pid, child in found:
            self._wanted[child].add(pid)
        busy = {child for _, child in found}
        for token in list(self._wanted):
            looks = self._looks[token] = self._looks.get(token, 0) + 1
            before = self.search.blank if token in busy else self._doubts.get(token, self.search.blank)
            doubts = self._doubts[token] = before & self.search.blank
            if looks >= PATIENCE or not (doubts or token in busy):
                self._answer(token)
        return bool(self._wanted)

    def _answer(self, token: bytes) -> None:
        del self._looks[token], self._doubts[token]
        killed = self._wanted.pop(token)
        # To a host that is process 1 the dead were handed down: it must collect them, so it is told their numbers.
        pids = b"".join(b" %d" % pid for pid in killed) if self._host == 1 else b""
        line = b"swept %s %d%s\n" % (token, len(killed), pids)
        try:
            os.write(1, line)
        except OSError:
            self._alive = False


def boot_time() -> float:
    """Seconds since the machine was started, its suspensions included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def kill_all(wanted: Wanted, calm_looks: int, search: Search) -> int:
    """Kill until `calm_looks` looks in a row find nothing; how many processes were killed."""
    killed: set[int] = set()
    doubts: set[Blank] | None = None
    calm = 0
    for _ in range(PATIENCE):
        found = search.kill(wanted, {os.getpid()})
        killed.update(pid for pid, _ in found)
        doubts = search.blank if found or doubts is None else doubts & search.blank
        calm = 0 if found or doubts else calm + 1
        if calm >= calm_looks:
            break
        _rest(SETTLE_MS if calm else AGAIN_MS)
    return len(killed)


class Search:
    """Looks through all processes.

    In the middle of exec a process shows no environment, for microseconds or for as long as a busy machine makes it
    wait; `blank` has those that were seen so in the last look. Others may be in an exec by the next look, but whoever
    has a mark and was in none has shown it. A killed process loses its environment before it ends, so it is found by
    its number until it has ended.
    """

    __slots__ = ("_dying", "blank")

    def __init__(self) -> None:
        self.blank: set[Blank] = set()
        self._dying: dict[Blank, tuple[bytes, bytes]] = {}
        """The marks of each process that was sent SIGKILL and was not yet seen dead."""

    def kill(self, wanted: Wanted, spared: set[int]) -> list[tuple[int, bytes]]:
        """One look at every process; pid and child token of each that was sent SIGKILL and may still run."""
        found = self._still_dying(wanted)
        self.blank = set()
        for pid in processes():
            if pid in spared:
                continue
            environ = environ_of(pid)
            host, child = marks(environ)
            is_wanted = wanted(host, child)
            if not (is_wanted or environ == b""):
                continue
            started = start_of(pid)
            if is_wanted and kill_if(pid, wanted):
                found.append((pid, child))
                self._dying[pid, started] = host, child
            elif started and not is_bare(pid):
                self.blank.add((pid, started))  # it is in an exec, or was when it should have been killed
        return found

    def _still_dying(self, wanted: Wanted) -> list[tuple[int, bytes]]:
        self._dying = {
            (pid, started): owner for (pid, started), owner in self._dying.items() if started == start_of(pid) != b""
        }
        return [(pid, child) for (pid, _), (host, child) in self._dying.items() if wanted(host, child)]


def processes() -> Iterator[int]:
    """Every process, those included that were made meanwhile: what has made one may be gone before it is looked at."""
    seen: set[int] = set()
    for _ in range(LISTS):
        fresh = {int(name) for name in os.listdir("/proc") if name.isdigit()} - seen
        if not fresh:
            return
        yield from fresh
        seen |= fresh


def kill_if(pid: int, wanted: Wanted) -> bool:
    """SIGKILL to this very process if it is still one that is wanted."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not wanted(*marks(environ_of(pid))):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def host_is_gone(mark: bytes) -> bool:
    """Whether the host that left this mark is dead; never for a mark of another pid namespace, or none of ours."""
    try:
        pid, started, token = mark.split(b".")
        return int(token.partition(b"-")[0], 16) == pid_namespace() and _is_gone(int(pid), started)
    except ValueError:
        return False


def _is_gone(pid: int, started: bytes) -> bool:
    """A process that exists but may not be looked at (hidepid) is not gone."""
    now = start_of(pid)
    if now:
        return now != started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return os.path.exists(f"/proc/{pid}")  # visible and without a start time: a zombie


def proc_is_ours() -> bool:
    """Whether the numbers in /proc are those that we signal; not in a pid namespace with its parent's /proc."""
    try:
        return os.readlink("/proc/self") == str(os.getpid()) and os.path.exists("/proc/self/environ")
    except OSError:
        return False


def pid_namespace() -> int:
    try:
        # Start times are counted in the reader's time namespace, so the mark means nothing in another one.
        return os.stat("/proc/self/ns/pid").st_ino << 32 | (_inode("/proc/self/ns/time") & 0xFFFFFFFF)
    except OSError:
        return 0


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:  # before Linux 5.6
        return 0


def is_bare(pid: int) -> bool:
    """Whether the program was started without any environment. In the middle of exec there is not even a place for it,
    and right after it there may be one with something in it.
    """
    begin, end = _stat(pid)[47:49] or (b"0", b"0")
    return begin == end != b"0"


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third on: the second is its name and may contain anything."""
    return (_read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()


def start_of(pid: int) -> bytes:
    """When a program was started, in clock ticks since boot; empty for the dead and for kernel threads."""
    fields = _stat(pid)
    if not fields or fields[0] in (b"Z", b"X") or int(fields[6]) & PF_KTHREAD:
        return b""
    return fields[19]


def environ_of(pid: int) -> bytes | None:
    """The environment a process was started with; None for one that is gone or that we may not look at."""
    return _read(f"/proc/{pid}/environ")


def settled_marks(pid: int) -> tuple[bytes, bytes]:
    """The marks of a process; of one in the middle of exec, those that it shows after it. Blocks until then."""
    for _ in range(PATIENCE):
        environ = environ_of(pid)
        if environ != b"" or not start_of(pid) or is_bare(pid):
            return marks(environ)
        _rest(AGAIN_MS)
    return b"", b""


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    parts = []
    room = ENVIRON_BYTES
    try:
        while room > 0 and (part := os.read(fd, min(room, 65536))):
            parts.append(part)
            room -= len(part)
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(parts)


def marks(environ: bytes | None) -> tuple[bytes, bytes]:
    """The host mark and the child token in an environment; empty where there is none."""
    host = child = b""
    if environ and HOST_MARK in environ:
        for entry in environ.split(b"\0"):
            if entry.startswith(HOST_MARK):
                host = entry[len(HOST_MARK) :]
            elif entry.startswith(CHILD_MARK):
                child = entry[len(CHILD_MARK) :]
    return host, child


def _rest(milliseconds: int) -> None:
    select.select([], [], [], milliseconds / 1000)


if __name__ == "__main__":
    main(sys.argv[1:])
