"""`Spawner` starts children and owns them; `Child` is the handle of one of them.

Owns every process from the moment it exists until it is reaped, and the work after its end: kill the group, reap the
status, read the rest of stderr, resolve the waiters (`Exit`), sweep. It hands out two descriptors and never looks at
their bytes. Of a confined child it knows the monitor; its `Jail` knows the plugin.

A child belongs to its spawner before anything is awaited: if the task that asked for it was cancelled or timed out, the
child is killed the moment it appears. Everything here runs in one loop; blocking work runs on the threads of `Starts`.
Confined starts have threads of their own: those have left the host's mount namespace, which an unconfined child must
share. All threads live as long as the spawner, because a sandbox is killed when the thread that started it ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.process import diagnose, pidfd, usage
from plugbay.process.command import Launch
from plugbay.process.diagnose import LaunchFailed
from plugbay.process.launch import Popen, StartedProcess, destroy, start
from plugbay.process.sandbox.jail import Jail
from plugbay.process.sandbox.launcher import Sandbox, SandboxSettings
from plugbay.process.status import ExitStatus, OutOfMemory
from plugbay.process.stderr import RotatingLog, StderrDrain, log_name
from plugbay.process.warden import Warden

if TYPE_CHECKING:
    from plugbay.process.sandbox.egress.decision import Decision
    from plugbay.process.sandbox.jail import OnDecision

Outcome = StartedProcess | Exception


class Starts:
    """Thread pools for the blocking work of one loop."""

    __slots__ = ("_confined", "_plain", "_popen", "_sandbox", "_sweeps", "_threads")

    def __init__(self, threads: int, popen: Popen, sandbox: Sandbox, sweeps: bool) -> None:
        """`sweeps`: the first confined start begins with the control groups that dead hosts left."""
        self._sandbox = sandbox
        self._threads = threads
        self._popen = popen
        self._sweeps = sweeps
        self._plain = ThreadPoolExecutor(threads, "plugbay-spawn")
        self._confined: ThreadPoolExecutor | None = None

    def submit(
        self,
        loop: asyncio.AbstractEventLoop,
        launch: Launch,
        marks: Mapping[str, str],
        unwanted: Callable[[], Exception | None],
        arrived: Callable[[Outcome], None],
    ) -> None:
        """Start a process; `arrived` is called with the outcome in the loop. Raises RuntimeError if there is no thread.

        `unwanted` is called on the thread just before the start and returns a reason not to start. If the loop is
        closed, the process is killed.
        """

        def work() -> None:
            outcome: Outcome
            try:
                outcome = unwanted() or start(launch, marks, self._popen, self._sandbox)
            except Exception as error:
                outcome = error
            try:
                loop.call_soon_threadsafe(arrived, outcome)
            except RuntimeError:
                if isinstance(outcome, StartedProcess):
                    outcome.discard()

        (self._plain if launch.policy is None else self._for_confined()).submit(work)

    def run(self, work: Callable[[], object]) -> None:
        """Run blocking work on a thread; `shutdown` waits for it."""
        try:
            self._for_confined().submit(work)
        except RuntimeError:  # no thread, or none any more
            work()

    def shutdown(self, wait: bool) -> None:
        for pool in (self._plain, self._confined):
            if pool is not None:
                pool.shutdown(wait=wait, cancel_futures=pool is self._plain)

    def _for_confined(self) -> ThreadPoolExecutor:
        if self._confined is None:
            self._confined = ThreadPoolExecutor(self._threads, "plugbay-confine")
            if self._sweeps:
                self._confined.submit(self._sandbox.cgroups.sweep)
        return self._confined


class Logs:
    """The log files of plugins. Children of one plugin share its log; without a folder there are none."""

    __slots__ = ("_folder", "_open")

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._open: dict[str, RotatingLog] = {}

    def of(self, label: str) -> RotatingLog | None:
        if self._folder is None:
            return None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)  # each time: it may have been removed
        except OSError:
            pass  # the log itself counts lines that it cannot write
        if label not in self._open:
            self._open[label] = RotatingLog(self._folder / log_name(label))
        return self._open[label]


Callback = Callable[[ExitStatus], object]


class Exit:
    """The exit of one process: a status, None while it runs, and callbacks."""

    __slots__ = ("_callbacks", "_label", "_loop", "status")

    def __init__(self, loop: asyncio.AbstractEventLoop, label: str) -> None:
        self.status: ExitStatus | None = None
        self._loop = loop
        self._label = label
        self._callbacks: list[Callback] = []

    def add_callback(self, callback: Callback) -> None:
        """Call once, in the loop, with how the process ended; at the next tick if it is dead already."""
        if self.status is None:
            self._callbacks.append(callback)
        else:
            self._loop.call_soon(callback, self.status)

    async def wait(self, timeout: float | None) -> ExitStatus | None:
        """How the process ended; None when it still runs after `timeout`."""
        if self.status is None:
            ended: asyncio.Future[None] = self._loop.create_future()

            def wake(status: ExitStatus | None = None) -> None:
                if not ended.done():
                    ended.set_result(None)

            self._callbacks.append(wake)
            timer = None if timeout is None else self._loop.call_later(timeout, wake)
            try:
                await ended  # not `asyncio.wait`, which resumes the caller one round of the loop later
            finally:
                if timer is not None:
                    timer.cancel()
                if wake in self._callbacks:
                    self._callbacks.remove(wake)
        return self.status

    def set_status(self, status: ExitStatus) -> None:
        """Set the status and call every callback, also after one has failed."""
        self.status = status
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(status)
            except Exception as error:
                context = {"message": f"exit callback of {self._label} failed", "exception": error}
                self._loop.call_exception_handler(context)


THREADS = 4
"""Starts at the same time. More gain nothing: two already keep two cores busy with exec."""
CLOSE_SECONDS = 10.0
"""For everything to be dead after SIGKILL; only an uninterruptible wait takes more than milliseconds."""
ORPHANS_SECONDS = 0.2
"""Until the rest of a group is dead; only for a host that is process 1 of a container."""


class Child:
    """One process in its own session, with three pipes. Made by `Spawner.spawn`."""

    __slots__ = (
        "__weakref__",
        "_exit",
        "_gone",
        "_killed",
        "_loop",
        "_oom_kills",
        "_pipes",
        "_watch",
        "argv",
        "jail",
        "label",
        "oom",
        "pid",
        "started",
        "stderr",
        "token",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: StartedProcess,
        launch: Launch,
        token: str,
        log: RotatingLog | None,
        gone: Callable[[Child], None],
    ) -> None:
        self.pid = process.pid
        self.argv = launch.argv
        self.label = launch.label
        self.token = token
        """The value of PLUGBAY_CHILD, by which this child's descendants are found."""
        self.started = loop.time()
        self.jail: Jail | None = process.jail
        """Its confinement; None: unconfined."""
        self.oom = OutOfMemory.NO
        """After its end: whether the kernel killed a process of it for lack of memory."""
        self._oom_kills = process.oom_kills
        self._killed = False
        """Whether the host has killed it."""
        self._loop = loop
        self._gone = gone
        self._exit = Exit(loop, launch.label)
        self._pipes: tuple[int, int] | None = None
        self.stderr = StderrDrain(loop, process.release_stderr(), log, f"[{process.pid}]")
        try:
            self._watch = pidfd.watch_exit(loop, process.pid, self._ended, pidfd=process.release_pidfd())
        except BaseException:
            self.stderr.close()
            raise
        self._pipes = (process.stdout, process.stdin)

    def __del__(self) -> None:
        self.close()

    @property
    def exit(self) -> ExitStatus | None:
        """How it ended; None while it runs."""
        return self._exit.status

    @property
    def confined(self) -> bool:
        return self.jail is not None

    @property
    def limits_state(self) -> str:
        """How well its limits hold: `full`, `full (v1)`, `degraded`; empty for a child that is not confined."""
        return "" if self.jail is None else self.jail.limits_state

    def take_pipes(self) -> tuple[int, int]:
        """The end to read stdout from and the end to write stdin to; from now on they are the caller's."""
        if self._pipes is None:
            raise RuntimeError("the pipes of this child were already taken or closed")
        pipes, self._pipes = self._pipes, None
        return pipes

    def close(self) -> None:
        """Close the pipes if they were not taken; the process is not touched."""
        if self._pipes is not None:
            for fd in self.take_pipes():
                os.close(fd)

    def on_exit(self, callback: Callback) -> None:
        """Call once, in the loop, with how the process ended; at the next tick if it is dead already."""
        self._exit.add_callback(callback)

    async def wait(self, timeout: float | None = None) -> ExitStatus | None:
        """How the process ended; None when it still runs after `timeout`. Does not wait for its pipes."""
        return await self._exit.wait(timeout)

    def has_ended(self) -> bool:
        """Whether the process is gone, even when the loop has not heard of it yet."""
        return self.exit is not None or pidfd.has_ended(self.pid)

    def is_stopped(self) -> bool:
        """Whether a signal has stopped its program."""
        return self.exit is None and pidfd.is_stopped(self.pid if self.jail is None else self.jail.leader)

    def terminate(self) -> None:
        """Ask the whole group to leave."""
        if self.jail is None:
            self._signal(signal.SIGTERM)
        elif self.exit is None and self._watch.holds_pid():
            self.jail.terminate()

    def kill(self) -> None:
        """End the whole group, now. Harmless when repeated or too late."""
        self._signal(signal.SIGKILL)

    async def stop(self, grace_after_term: float, timeout: float) -> ExitStatus | None:
        """SIGTERM, then SIGKILL after a grace; None when even that shows no effect within `timeout`."""
        try:
            self.terminate()
            status = await self.wait(grace_after_term)
            if status is None:
                self.kill()
                status = await self.wait(timeout)
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            self.close()
        return status

    def abandon(self) -> None:
        """Kill and collect it without a loop."""
        if self.exit is None and self._watch.holds_pid():
            destroy(self.pid)
        if self.jail is not None:
            self.jail.close()
        self.close()
        self._watch.forget()
        self.stderr.forget()

    def _signal(self, number: int) -> None:
        # Until the status is collected, by us or by a waitpid(-1) of the application, the number is this child's.
        if self.exit is None and self._watch.holds_pid():
            self._killed = self._killed or number == signal.SIGKILL
            pidfd.signal_group(self.pid, number)

    def _likely_oom(self) -> OutOfMemory:
        """Of a process that neither the host nor its own control group has killed."""
        now = usage.oom_kills()
        known = now is not None and self._oom_kills is not None and now > self._oom_kills
        return OutOfMemory.LIKELY if known else OutOfMemory.NO

    def _ended(self) -> None:
        """Dead and not yet collected: the group is killed first, while its number cannot be reused."""
        if pidfd.has_ended(self.pid):
            pidfd.signal_group(self.pid, signal.SIGKILL)
        status = pidfd.reap(self.pid) or ExitStatus()
        if self.jail is not None:
            status = self.jail.translate(status)
            self.oom = self.jail.out_of_memory()
            self.jail.close_network()
        if not self.oom and status.signal == signal.SIGKILL and not self._killed:
            self.oom = self._likely_oom()
        if os.getpid() == 1:  # the dead of its group are ours to collect, once SIGKILL has reached them
            self._loop.call_later(ORPHANS_SECONDS, pidfd.reap_group, self.pid)
        self.stderr.drain_now()
        self.stderr.close()
        self._exit.set_status(status)
        self._gone(self)


_spawners: weakref.WeakSet[Spawner] = weakref.WeakSet()


@atexit.register
def _abandon_all() -> None:
    """End the children of loops that were closed without `Spawner.close`, while the interpreter still has everything
    that takes: in `__del__` of the last moment even `open` is gone.
    """
    for spawner in list(_spawners):
        spawner.abandon()


class Spawner:
    """Starts children, at most `threads` at a time, and answers for every one of them until it is gone."""

    __slots__ = (
        "__weakref__",
        "_closing",
        "_empty",
        "_logs",
        "_on_egress",
        "_owner",
        "_slots",
        "_starting",
        "_starts",
        "_unclaimed",
        "children",
        "sandbox",
        "warden",
    )

    def __init__(
        self,
        log_dir: Path | None = None,
        threads: int = THREADS,
        popen: Popen = subprocess.Popen,
        *,
        clean_up: bool = False,
        sandbox: SandboxSettings | None = None,
        on_egress: OnDecision | None = None,
    ) -> None:
        """`clean_up`: kill the processes of earlier hosts that were killed together with their wardens.

        `on_egress` is called in the loop for each connection that a confined child was allowed or refused.
        """
        self.children: dict[int, Child] = {}
        """Every child that is not yet collected, by pid."""
        self.warden = Warden(clean_up)
        self._logs = Logs(log_dir)
        self.sandbox = Sandbox(sandbox)
        self._starts = Starts(threads, popen, self.sandbox, clean_up)
        self._on_egress = on_egress
        self._slots = asyncio.Semaphore(threads)
        self._starting: set[asyncio.Future[Child]] = set()
        self._unclaimed: weakref.WeakSet[Child] = weakref.WeakSet()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = False
        self._owner = os.getpid()
        _spawners.add(self)

    def __del__(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        """End every child without a loop. A forked copy of the host has no children, so there this does nothing."""
        if os.getpid() != self._owner:
            return
        while self.children:
            self.children.popitem()[1].abandon()
        self.warden.abandon()

    @property
    def survivors_killed(self) -> int:
        """Processes that had left their child's group and were found and killed after its end."""
        return self.warden.survivors

    async def spawn(self, launch: Launch, timeout: float) -> Child:
        """Start a command. Raises LaunchFailed; then, and when cancelled, nothing of it stays.

        `timeout` counts from the moment one of the `threads` slots is free.
        """
        async with self._slots:
            pending = self._submit(launch)
            timer = pending.get_loop().call_later(timeout, _expire, pending, launch, timeout)
            try:
                return await pending
            except asyncio.CancelledError:
                _abandon(pending)
                raise
            finally:
                timer.cancel()

    async def swept(self, timeout: float) -> bool:
        """Wait until nothing is left of the children that have ended so far; False when it takes longer."""
        return await self.warden.settled(timeout)

    async def close(self) -> None:
        """Kill and collect everything; afterwards no process, descriptor or thread of ours is left."""
        self._closing = True
        for pending in self._starting:
            if not pending.done():
                pending.set_exception(_closed())
        for child in [*self.children.values(), *self._unclaimed]:
            child.kill()
            child.close()
        done = False
        try:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._empty.wait()
            except TimeoutError:
                pass  # in an uninterruptible wait; the signal is delivered as soon as it leaves that
            await self.warden.settled(CLOSE_SECONDS)
            await self.warden.stop()
            done = True
        finally:
            if not done:  # cancelled: do not wait, but leave no process
                self.warden.dismiss()
            self._starts.shutdown(wait=done and not self._starting)
            self.sandbox.close()

    def _submit(self, launch: Launch) -> asyncio.Future[Child]:
        """Hand a start to the pool; the future's result arrives through `_arrived`."""
        if self._closing:
            raise _closed()
        loop = asyncio.get_running_loop()
        try:
            self.warden.start(loop)
        except OSError as error:
            message, hint = diagnose.launch_failure([sys.executable], "/", error)
            text = f"the helper process that guards plugins cannot be started: {message}"
            raise LaunchFailed(text, hint, _errno(error)) from error
        pending: asyncio.Future[Child] = loop.create_future()
        token = self.warden.new_token()
        self.warden.starting()

        def unwanted() -> Exception | None:
            return _closed() if pending.done() else None

        def arrived(outcome: Outcome) -> None:
            self._arrived(pending, launch, token, outcome)

        try:
            self._starts.submit(loop, launch, self.warden.variables(token), unwanted, arrived)
        except RuntimeError as error:
            self.warden.started()
            pending.cancel()  # the pool queued the start before it failed to make a thread for it
            hint, detail = "raise the limit (ulimit -u)", {"errno": "EAGAIN"}
            raise LaunchFailed(f"no thread can be created to start the process: {error}", hint, detail) from error
        self._starting.add(pending)
        self._empty.clear()
        return pending

    def _arrived(self, pending: asyncio.Future[Child], launch: Launch, token: str, outcome: Outcome) -> None:
        self._starting.discard(pending)
        self.warden.started()
        child = outcome if isinstance(outcome, Exception) else self._adopt(pending.get_loop(), outcome, launch, token)
        if isinstance(child, Child):
            if pending.done():
                child.kill()
                child.close()
            else:
                pending.set_result(child)
        else:
            if launch.policy is not None:
                self.warden.sweep(token)  # a sandbox killed in its first moments can leave its first process behind
            if not pending.done():
                pending.set_exception(child)
        self._note_empty()

    def _adopt(
        self, loop: asyncio.AbstractEventLoop, process: StartedProcess, launch: Launch, token: str
    ) -> Child | Exception:
        try:
            child = Child(loop, process, launch, token, self._logs.of(launch.label), self._gone)
        except OSError as error:
            process.discard()
            return LaunchFailed(f"{launch.argv[0]} cannot be watched: {error}", detail=_errno(error))
        self.children[child.pid] = child
        try:
            if child.jail is not None:
                child.jail.serve(loop, partial(self._decided, child))
        except Exception as error:  # from here on it is ours as any other child, and ends as any other
            child.kill()
            child.close()
            return LaunchFailed(f"{launch.argv[0]} cannot get its network: {error}", detail=_errno(error))
        return child

    def _decided(self, child: Child, decision: Decision) -> None:
        """Report a connection, and say in the plugin's log why it was refused."""
        if not decision.allowed:
            child.stderr.note(f"connection refused: {decision}")
        if self._on_egress is not None:
            self._on_egress(decision)

    def _gone(self, child: Child) -> None:
        if self.children.get(child.pid) is child:
            del self.children[child.pid]
        if child._pipes is not None:
            self._unclaimed.add(child)
        self.warden.sweep(child.token)
        if child.jail is not None:  # last: its thread would take Python's lock from the waiters
            self._starts.run(child.jail.close)
        self._note_empty()

    def _note_empty(self) -> None:
        if not self.children and not self._starting:
            self._empty.set()


def _expire(pending: asyncio.Future[Child], launch: Launch, timeout: float) -> None:
    """Fail a start that takes too long: its process is killed when it appears."""
    if not pending.done():
        text = f"{launch.argv[0]} did not start within {timeout:g} s"
        hint = "the machine is overloaded, or the file system of the program does not respond"
        pending.set_exception(LaunchFailed(text, hint, {"command": list(launch.argv), "cwd": str(launch.cwd)}))


def _abandon(pending: asyncio.Future[Child]) -> None:
    """Cancel a start: its process is killed, now or when it appears."""
    if pending.cancel() or pending.cancelled() or pending.exception() is not None:
        return
    child = pending.result()
    child.kill()
    child.close()


def _errno(error: Exception) -> dict[str, str]:
    """The name of an error of the system, for the detail of a failure."""
    return {"errno": diagnose.error_name(error)} if isinstance(error, OSError) else {}


def _closed() -> LaunchFailed:
    return LaunchFailed("the host is stopping", "start no plugin during the stop")
