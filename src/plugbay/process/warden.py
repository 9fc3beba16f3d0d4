"""The host's side of the helper in `warden_main.py`, which kills all children when the host dies.

Marks the environment of every child, runs the helper, and asks it to sweep after a child.

Why not a parent-death signal: it follows the thread that started the child, it reaches only the direct child,
and it needs code in the child before exec. The marks are inherited by every descendant, also after a double
fork and a new session, and the helper learns of the host's death from a closed pipe, however the host died:

    PLUGBAY_HOST   <host pid>.<host start time>.<token>    the token begins with the host's pid namespace
    PLUGBAY_CHILD  <token>                                 one per child

Known limit: a descendant that leaves the process group *and* wipes its environment (or overwrites it, as some
programs do to change their title) escapes, and so does one that runs as a user whose environment we may not
read. Only the sandbox's pid namespace holds those. Without /proc (macOS) there is no helper at all.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

from plugbay.process import pidfd, warden_main

HOST_VARIABLE = "PLUGBAY_HOST"
CHILD_VARIABLE = "PLUGBAY_CHILD"

TOKEN_BYTES = 8
"""64 random bits: enough that two children never share a token. It names, it does not protect."""

RESTART_SECONDS = 0.1
RESTART_MAX_SECONDS = 5.0
"""Before a helper that died is brought back, doubled each time: something may be killing it on purpose."""

LATER_SECONDS = 0.01
"""How long messages are collected, because each wakes the helper and takes time from a call. A host that dies meanwhile
leaves no more than otherwise: then the helper searches for everything."""

STOP_SECONDS = 5.0
"""For the helper's last look and exit before it is killed; it needs milliseconds."""


def supported() -> bool:
    """True where processes can be found by their environment and signalled without a race."""
    return hasattr(os, "pidfd_open") and warden_main.proc_is_ours()


def sweep_orphans() -> int:
    """Kill the processes of hosts that no longer exist; returns their number. Blocks.

    The children of a running host are never touched, also of another user's host. Nor is anything whose mark comes from
    another pid namespace: its host's pid means nothing here.
    """
    if not supported():
        return 0
    return warden_main.kill_all(lambda host, _: warden_main.host_is_gone(host), 1, warden_main.Search())


def orphans() -> list[int]:
    """The processes that `sweep_orphans` would kill."""
    if not supported():
        return []
    found = {pid: warden_main.settled_marks(pid)[0] for pid in warden_main.processes()}
    return sorted(pid for pid, mark in found.items() if mark and warden_main.host_is_gone(mark))


class Warden:
    """Starts the helper when first needed, keeps it alive, and knows which sweeps are not yet confirmed."""

    __slots__ = (
        "_calm",
        "_clean",
        "_delay",
        "_helper",
        "_later",
        "_loop",
        "_starts",
        "_stopping",
        "_timer",
        "_told_of_starts",
        "_until",
        "_untold",
        "_wanted",
        "mark",
        "survivors",
    )

    def __init__(self, clean: bool = False) -> None:
        """`clean`: the helper begins with the processes of hosts that no longer exist."""
        self._clean = clean
        self.mark = _new_mark()
        self.survivors = 0
        """Processes that outlived their child and its group, and were found and killed."""
        self._wanted: set[str] = set()
        """The tokens of sweeps that are not confirmed."""
        self._untold: list[str] = []
        """Those of them that the helper does not know yet."""
        self._starts = 0
        """Starts that are under way."""
        self._told_of_starts = False
        """Whether the helper knows that some are."""
        self._until: float | None = None
        self._later: asyncio.TimerHandle | None = None
        self._calm = asyncio.Event()
        self._calm.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._helper: _Helper | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._delay = RESTART_SECONDS
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """The helper's pid while it runs."""
        return self._helper.pid if self._helper is not None else None

    def new_token(self) -> str:
        """A name for one child."""
        return secrets.token_hex(TOKEN_BYTES)

    def variables(self, token: str) -> dict[str, str]:
        """The variables by which a child is found."""
        return {HOST_VARIABLE: self.mark, CHILD_VARIABLE: token}

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the helper unless it runs; must come before a child exists. Raises OSError."""
        if self._helper is not None or not supported():
            return
        self._loop = loop
        self._cancel_timer()
        self._helper = _Helper(loop, self.mark, self._clean, self._swept, self._lost)
        self._untold, self._told_of_starts = list(self._wanted), self._starts > 0
        if self._told_of_starts:
            self._helper.send("start\n")
        if self._until is not None:
            self._helper.send(f"until {self._until!r}\n")
        self._tell()

    def live_until(self, moment: float) -> None:
        """Have the helper kill all children at this time of the boot clock, unless a later one is given before.

        It does so also while this process stands still.
        """
        self._until = moment
        if self._helper is not None:
            self._helper.send(f"until {moment!r}\n")

    def starting(self) -> None:
        """A child may exist from now on without its mark: until `started`, our death means looking longer."""
        self._starts += 1
        if self._helper is not None and not self._told_of_starts:
            self._told_of_starts = True
            self._helper.send("start\n")

    def started(self) -> None:
        self._starts -= 1
        self._tell_later()

    def sweep(self, token: str) -> None:
        """Kill the processes with this child's token; `settled` waits for it."""
        if self._stopping or (self._helper is None and not supported()):
            return
        self._wanted.add(token)
        self._untold.append(token)
        self._calm.clear()
        self._tell_later()

    async def settled(self, timeout: float) -> bool:
        """Wait until every sweep asked for so far is done; False when that takes longer than `timeout`."""
        self._tell()
        try:
            async with asyncio.timeout(timeout):
                await self._calm.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Send the helper home and wait until it is gone."""
        helper = self._helper
        self.dismiss()
        if helper is None:
            return
        if not await helper.gone_within(STOP_SECONDS):
            helper.kill()
            await helper.gone_within(STOP_SECONDS)

    def dismiss(self) -> None:
        """Send the helper home without waiting for it."""
        self._stopping = True
        self._cancel_timer()
        self._tell()
        if self._helper is not None:
            self._helper.send("bye\n")
            self._helper.hang_up()

    def abandon(self) -> None:
        """Hang up without a loop; the helper takes that for the host's death and leaves nothing."""
        if self._helper is not None:
            self._helper.abandon()
            self._helper = None

    def _tell_later(self) -> None:
        if self._later is None and self._helper is not None and self._loop is not None:
            self._later = self._loop.call_later(LATER_SECONDS, self._tell)

    def _tell(self) -> None:
        """Send the helper all news in one message."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._helper is None:
            return
        text = "".join(f"sweep {token}\n" for token in self._untold)
        self._untold = []
        if self._told_of_starts and not self._starts:
            self._told_of_starts = False
            text += "started\n"
        if text:
            self._helper.send(text)

    def _swept(self, token: str, count: int) -> None:
        self.survivors += count
        self._delay = RESTART_SECONDS
        self._wanted.discard(token)
        if not self._wanted:
            self._calm.set()

    def _lost(self) -> None:
        self._helper = None
        if not self._stopping:
            self._retry()

    def _retry(self) -> None:
        if self._loop is None or self._loop.is_closed():
            return
        self._timer = self._loop.call_later(self._delay, self._revive, self._loop)
        self._delay = min(self._delay * 2, RESTART_MAX_SECONDS)

    def _revive(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        try:
            self.start(loop)
        except OSError:
            self._retry()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Helper:
    """One life of the helper process: its two pipes, its answers, its end."""

    __slots__ = (
        "_buffer",
        "_gone",
        "_loop",
        "_lost",
        "_outbox",
        "_stdin",
        "_stdout",
        "_swept",
        "_watch",
        "pid",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        mark: str,
        clean: bool,
        swept: Callable[[str, int], None],
        lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._swept = swept
        self._lost = lost
        self._buffer = b""
        self._outbox = b""
        self._gone = asyncio.Event()
        self.pid, self._stdin, self._stdout = _start(mark, clean)
        try:
            loop.add_reader(self._stdout, self._read)
            self._watch = pidfd.watch_exit(loop, self.pid, self._ended)
        except BaseException:
            loop.remove_reader(self._stdout)
            _close(self._stdin, self._stdout)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise

    def send(self, text: str) -> None:
        """Queue a message; never blocks."""
        waiting = bool(self._outbox)
        self._outbox += text.encode()
        if not waiting:
            self._flush()

    def hang_up(self) -> None:
        """Close the helper's stdin, which makes it leave."""
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1

    def abandon(self) -> None:
        self._watch.forget()
        if self._stdin >= 0:
            _close(self._stdin)
            self._stdin = -1
        _close(self._stdout)

    def kill(self) -> None:
        if not self._gone.is_set():
            os.kill(self.pid, signal.SIGKILL)

    async def gone_within(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True

    def _flush(self) -> None:
        if self._stdin < 0 or not self._outbox:
            return
        try:
            written = os.write(self._stdin, self._outbox)
        except BlockingIOError:
            written = 0
        except OSError:  # it died; `_ended` comes next, and its successor is told everything again
            self._outbox = b""
            return
        self._outbox = self._outbox[written:]
        if self._outbox:
            self._loop.add_writer(self._stdin, self._flush)
        else:
            self._loop.remove_writer(self._stdin)

    def _read(self) -> None:
        try:
            data = os.read(self._stdout, 65536)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._stdout)
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            _, token, count, *inherited = line.decode().split(" ")
            for pid in inherited:
                pidfd.reap(int(pid))
            self._swept(token, int(count))

    def _ended(self) -> None:
        self._read()
        pidfd.reap(self.pid)
        self._loop.remove_reader(self._stdout)
        self.hang_up()
        os.close(self._stdout)
        self._gone.set()
        self._lost()


def _start(mark: str, clean: bool) -> tuple[int, int, int]:
    """Run the helper; its pid, the end to write requests to and the end to read answers from."""
    opened: list[int] = []
    try:
        opened += os.pipe()  # close-on-exec, so that no child holds the helper's stdin open after our death
        opened += os.pipe()
        stdin_read, stdin_write, stdout_read, stdout_write = opened
        os.set_blocking(stdin_write, False)
        os.set_blocking(stdout_read, False)
        process = subprocess.Popen(
            [_interpreter(), "-I", "-S", warden_main.__file__, mark, str(os.getpid()), *(["clean"] if clean else [])],
            stdin=stdin_read,
            stdout=stdout_write,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},  # not empty, which to other helpers would look like an exec in progress
            start_new_session=True,
        )
    except BaseException:
        _close(*opened)
        raise
    process.returncode = 0  # collected by `_Helper`; without this, Popen would collect it behind our back
    _close(stdin_read, stdout_write)
    return process.pid, stdin_write, stdout_read


def _interpreter() -> str:
    """The Python that runs us; in a frozen application, where that is the application, one from PATH."""
    if sys.executable and not getattr(sys, "frozen", False):
        return sys.executable
    found = shutil.which("python3")
    if found is None:
        raise FileNotFoundError("there is no python3 in PATH to guard the plugins")
    return found


def _new_mark() -> str:
    pid = os.getpid()
    started = warden_main.start_of(pid).decode()
    return f"{pid}.{started}.{warden_main.pid_namespace():x}-{secrets.token_hex(TOKEN_BYTES)}"


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
