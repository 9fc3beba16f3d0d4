"""Children and their one owner: `Spawner` starts them and answers for all, `Child` is what a caller holds.

Owns every process from the moment it exists until it is collected, and what follows its end: kill the group,
collect the status, take the last of stderr, tell whoever asked, sweep after it. Refuses to know frames: it
hands out two descriptors and never looks at what goes through them.

A child belongs to its spawner before anything is awaited: if the task that asked for it was cancelled or
waited too long, the child is killed the moment it appears. Everything here runs in one event loop; only
`launch.start` runs on a pool thread. The pool's threads live as long as the spawner, because a sandbox that
relies on a parent-death signal is killed when the thread that started it ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from plugbay.process import diagnose, pidfd
from plugbay.process.command import Launch, LaunchFailed
from plugbay.process.launch import Newborn, Popen, destroy, start
from plugbay.process.status import ExitStatus
from plugbay.process.stderr import RotatingLog, StderrDrain, log_name
from plugbay.process.warden import Warden

THREADS = 4
"""Starts at the same time. More gain nothing: two already keep two cores busy with exec."""

CLOSE_SECONDS = 10.0
"""For everything to be dead after SIGKILL; only an uninterruptible wait takes more than milliseconds."""

ORPHANS_SECONDS = 0.2
"""Until what was left of a group is dead; only for a host that is process 1 of a container."""

Callback = Callable[[ExitStatus], object]


class Child:
    """One process in its own session, with three pipes. Made by `Spawner.spawn`."""

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_gone",
        "_loop",
        "_pipes",
        "_watch",
        "argv",
        "exit",
        "label",
        "pid",
        "started",
        "stderr",
        "token",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        newborn: Newborn,
        launch: Launch,
        token: str,
        log: RotatingLog | None,
        gone: Callable[[Child], None],
    ) -> None:
        self.pid = newborn.pid
        self.argv = launch.argv
        self.label = launch.label
        self.token = token
        """The value of PLUGBAY_CHILD, by which this child's descendants are found."""
        self.started = loop.time()
        self.exit: ExitStatus | None = None
        self._loop = loop
        self._gone = gone
        self._callbacks: list[Callback] = []
        self._pipes: tuple[int, int] | None = None
        self.stderr = StderrDrain(loop, newborn.release_stderr(), log, f"[{newborn.pid}]")
        try:
            self._watch = pidfd.watch_exit(loop, newborn.pid, self._ended, pidfd=newborn.release_pidfd())
        except BaseException:
            self.stderr.close()
            raise
        self._pipes = (newborn.stdout, newborn.stdin)

    def __del__(self) -> None:
        self.close()

    def take_pipes(self) -> tuple[int, int]:
        """The end to read stdout from and the end to write stdin to; from now on they are the caller's."""
        if self._pipes is None:
            raise RuntimeError("the pipes of this child were already taken or closed")
        pipes, self._pipes = self._pipes, None
        return pipes

    def close(self) -> None:
        """Close the pipes if nobody took them; the process is not touched."""
        if self._pipes is not None:
            for fd in self.take_pipes():
                os.close(fd)

    def on_exit(self, callback: Callback) -> None:
        """Call once, in the loop, with how the process ended; at the next tick if it is dead already."""
        if self.exit is None:
            self._callbacks.append(callback)
        else:
            self._loop.call_soon(callback, self.exit)

    async def wait(self, timeout: float | None = None) -> ExitStatus | None:
        """How the process ended; None when it still runs after `timeout`. Does not wait for its pipes."""
        if self.exit is None:
            ended: asyncio.Future[None] = self._loop.create_future()

            def wake(status: ExitStatus) -> None:
                if not ended.done():
                    ended.set_result(None)

            self._callbacks.append(wake)
            try:
                await asyncio.wait({ended}, timeout=timeout)
            finally:
                if wake in self._callbacks:
                    self._callbacks.remove(wake)
        return self.exit

    def has_ended(self) -> bool:
        """Whether the process is gone, even when the loop has not heard of it yet."""
        return self.exit is not None or pidfd.has_ended(self.pid)

    def terminate(self) -> None:
        """Ask the whole group to leave."""
        self._signal(signal.SIGTERM)

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
        self.close()
        self._watch.forget()
        self.stderr.forget()

    def _signal(self, number: int) -> None:
        # Until the status is collected, by us or by a waitpid(-1) of the application, the number is this child's.
        if self.exit is None and self._watch.holds_pid():
            pidfd.signal_group(self.pid, number)

    def _ended(self) -> None:
        """Dead and not yet collected: the group is killed first, while its number cannot be reused."""
        if pidfd.has_ended(self.pid):
            pidfd.signal_group(self.pid, signal.SIGKILL)
        self.exit = pidfd.reap(self.pid) or ExitStatus()
        if os.getpid() == 1:  # the dead of its group are ours to collect, once SIGKILL has reached them
            self._loop.call_later(ORPHANS_SECONDS, pidfd.reap_group, self.pid)
        self.stderr.drain_now()
        self.stderr.close()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._tell(callback, self.exit)
        self._gone(self)

    def _tell(self, callback: Callback, status: ExitStatus) -> None:
        try:
            callback(status)
        except Exception as error:
            context = {"message": f"exit callback of {self.label} failed", "exception": error}
            self._loop.call_exception_handler(context)


class Spawner:
    """Starts children, at most `threads` at a time, and answers for every one of them until it is gone."""

    __slots__ = (
        "_closing",
        "_empty",
        "_log_dir",
        "_logs",
        "_pool",
        "_popen",
        "_slots",
        "_starting",
        "_unclaimed",
        "children",
        "warden",
    )

    def __init__(
        self,
        log_dir: Path | None = None,
        threads: int = THREADS,
        popen: Popen = subprocess.Popen,
        *,
        clean_up: bool = False,
    ) -> None:
        """`clean_up`: kill what earlier hosts left behind if they and their wardens were killed together."""
        self.children: dict[int, Child] = {}
        """Every child that is not yet collected, by pid."""
        self.warden = Warden(clean_up)
        self._log_dir = log_dir
        self._logs: dict[str, RotatingLog] = {}
        self._popen = popen
        self._pool = ThreadPoolExecutor(threads, "plugbay-spawn")
        self._slots = asyncio.Semaphore(threads)
        self._starting: set[asyncio.Future[Child]] = set()
        self._unclaimed: weakref.WeakSet[Child] = weakref.WeakSet()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = False

    def __del__(self) -> None:
        """A loop that was closed without `close` can watch nothing any more: end what it watched."""
        for child in list(self.children.values()):
            child.abandon()
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
            try:
                done, _ = await asyncio.wait({pending}, timeout=timeout)
            except asyncio.CancelledError:
                _abandon(pending)
                raise
        if not done:
            _abandon(pending)
            raise LaunchFailed(
                f"{launch.argv[0]} did not start within {timeout:g} s",
                "the machine is overloaded, or the program lies on a file system that does not answer",
                {"command": list(launch.argv), "cwd": str(launch.cwd)},
            )
        return pending.result()

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
            if not done:  # cancelled: whoever stops us does not wait, but nothing may stay either
                self.warden.dismiss()
            self._pool.shutdown(wait=done and not self._starting, cancel_futures=True)

    def _submit(self, launch: Launch) -> asyncio.Future[Child]:
        """Hand a start to the pool; the future's result arrives through `_arrived`."""
        if self._closing:
            raise _closed()
        loop = asyncio.get_running_loop()
        try:
            self.warden.start(loop)
        except OSError as error:
            message, hint = diagnose.launch_failure([sys.executable], "/", error)
            raise LaunchFailed(f"the guard of the plugins cannot be started: {message}", hint) from error
        pending: asyncio.Future[Child] = loop.create_future()
        token = self.warden.new_token()
        self.warden.starting(token)
        try:
            self._pool.submit(self._start, loop, pending, launch, token)
        except RuntimeError as error:
            self.warden.started(token)
            pending.cancel()  # the pool queued the start before it failed to make a thread for it
            raise LaunchFailed(f"no thread to start a process with: {error}", "raise the limit (ulimit -u)") from error
        self._starting.add(pending)
        self._empty.clear()
        return pending

    def _start(
        self, loop: asyncio.AbstractEventLoop, pending: asyncio.Future[Child], launch: Launch, token: str
    ) -> None:
        """On a pool thread. The loop hears of whatever happens; if there is no loop left, nothing stays."""
        outcome: Newborn | Exception
        try:
            outcome = _closed() if pending.done() else start(launch, self.warden.variables(token), self._popen)
        except Exception as error:
            outcome = error
        try:
            loop.call_soon_threadsafe(self._arrived, loop, pending, launch, token, outcome)
        except RuntimeError:
            if isinstance(outcome, Newborn):
                outcome.discard()

    def _arrived(
        self,
        loop: asyncio.AbstractEventLoop,
        pending: asyncio.Future[Child],
        launch: Launch,
        token: str,
        outcome: Newborn | Exception,
    ) -> None:
        self._starting.discard(pending)
        self.warden.started(token)
        child = outcome if isinstance(outcome, Exception) else self._adopt(loop, outcome, launch, token)
        if isinstance(child, Child):
            if pending.done():
                child.kill()
                child.close()
            else:
                pending.set_result(child)
        elif not pending.done():
            pending.set_exception(child)
        self._note_empty()

    def _adopt(
        self, loop: asyncio.AbstractEventLoop, newborn: Newborn, launch: Launch, token: str
    ) -> Child | Exception:
        try:
            child = Child(loop, newborn, launch, token, self._log(launch.label), self._gone)
        except OSError as error:
            newborn.discard()
            return LaunchFailed(f"{launch.argv[0]} cannot be watched: {error}")
        self.children[child.pid] = child
        return child

    def _gone(self, child: Child) -> None:
        if self.children.get(child.pid) is child:
            del self.children[child.pid]
        if child._pipes is not None:
            self._unclaimed.add(child)
        self.warden.sweep(child.token)
        self._note_empty()

    def _note_empty(self) -> None:
        if not self.children and not self._starting:
            self._empty.set()

    def _log(self, label: str) -> RotatingLog | None:
        if self._log_dir is None:
            return None
        try:
            self._log_dir.mkdir(parents=True, exist_ok=True)  # each time: somebody may have cleaned up
        except OSError:
            pass  # the log itself counts what it cannot write
        if label not in self._logs:
            self._logs[label] = RotatingLog(self._log_dir / log_name(label))
        return self._logs[label]


def _abandon(pending: asyncio.Future[Child]) -> None:
    """Nobody waits for this start any more: what it made dies, now or when it appears."""
    if pending.cancel() or pending.cancelled() or pending.exception() is not None:
        return
    child = pending.result()
    child.kill()
    child.close()


def _closed() -> LaunchFailed:
    return LaunchFailed("the host is stopping", "start nothing while it does")
