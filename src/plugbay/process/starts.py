"""Where starts happen: pool threads, whose result comes back to the loop whatever it is.

Owns the threads. Refuses to know what is done with a process once it exists. Confined starts have threads of their own:
those have left the host's view of the mounts, which a child that is not confined must share. All threads live as long
as the spawner, because a sandbox is killed when the thread that started it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from plugbay.process.command import Launch
from plugbay.process.launch import Newborn, Popen, start
from plugbay.process.sandbox.launcher import Sandbox

Outcome = Newborn | Exception


class Starts:
    """Blocking work on behalf of one loop."""

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
        """Start something; `arrived` hears of it in the loop. Raises RuntimeError when there is no thread for it.

        `unwanted` is asked at the last moment, on the thread, for a reason not to. If there is no loop left, nothing
        stays.
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
                if isinstance(outcome, Newborn):
                    outcome.discard()

        (self._plain if launch.policy is None else self._for_confined()).submit(work)

    def later(self, work: Callable[[], object]) -> None:
        """Do something that blocks for a moment, on a thread; `shutdown` waits for it."""
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
