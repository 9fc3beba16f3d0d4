"""`Pool`: children that were started and greeted before anybody needs them.

Owns keeping their number up, and giving up on a plugin that will not start, as `restart` decides. A child that dies
while it waits is never handed out.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable

from plugbay.host.supervision.instance import Seat
from plugbay.host.supervision.restart import Quarantine, next_action
from plugbay.model.errors import Failure
from plugbay.model.spec import RestartPolicy
from plugbay.process.status import ExitStatus


class Pool:
    """Up to `size` ready seats of one plugin."""

    def __init__(self, size: int, open_one: Callable[[], Awaitable[Seat | Failure]], policy: RestartPolicy) -> None:
        self._size = size
        self._open_one = open_one
        self._policy = policy
        self._seats: deque[Seat] = deque()
        self._failures: deque[float] = deque(maxlen=policy.failures + 1)
        self._filler: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def filling(self) -> bool:
        """Whether it is still trying to fill up."""
        return self._filler is not None and not self._filler.done()

    def take(self) -> Seat | None:
        """A ready seat, if one waits. Call `fill` when its call is over: a start would take time from the call."""
        while self._seats:
            seat = self._seats.popleft()
            if seat.alive():
                return seat
            seat.leave()
            self._failed()
        return None

    def fill(self) -> None:
        """Bring the pool back to its size, in the background."""
        if len(self._seats) < self._size and not self.filling and not self._closed:
            self._filler = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        while len(self._seats) < self._size:
            delay = self._delay()
            if delay is None:
                return
            await asyncio.sleep(delay)
            seat = await self._open_one()
            if isinstance(seat, Seat):
                self._keep(seat)
            else:
                self._failed()

    def _delay(self) -> float | None:
        """Seconds to wait before the next start; None when the plugin has failed too often lately."""
        now = asyncio.get_running_loop().time()
        if not self._failures or now - self._failures[-1] > self._policy.window:
            return 0.0
        action = next_action(self._failures, now, self._policy, random.random())
        return None if isinstance(action, Quarantine) else action.after

    def _keep(self, seat: Seat) -> None:
        self._seats.append(seat)

        def died(_: ExitStatus) -> None:
            if seat in self._seats:
                self._seats.remove(seat)
                seat.leave()
                self._failed()
                self.fill()

        seat.child.on_exit(died)

    def _failed(self) -> None:
        self._failures.append(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Start nothing more and let every waiting child go."""
        self._closed = True
        if self._filler is not None:
            self._filler.cancel()
            await asyncio.gather(self._filler, return_exceptions=True)
        for seat in self._seats:
            seat.leave()
        self._seats.clear()
