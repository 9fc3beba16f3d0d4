"""Taking turns: one thing at a time, in the order in which it came, with keys and the mouse before everything else.

A plugin whose handlers share a screen is written without locks, so its handlers never run side by side; a thread of its
own does one after the other, and the reader stays free. What waits is bounded: of what nobody waits for, the oldest
gives way, and what somebody waits for is refused. Knows no handlers: a turn is a function that raises nothing.
"""

from __future__ import annotations

from _queue import SimpleQueue
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    Job = Callable[[], None]
else:
    from _collections import deque  # without the rest of `collections`, which is 2 ms of start-up

KEYS, MOUSE, REST = range(3)
"""The lanes, the first of them first."""

MAX_URGENT = 64
"""Keys that wait, and as many moves of the mouse; what hosts keep for a plugin. Who is further behind wants the last of
them, not the first."""

MAX_IN_A_ROW = 32
"""Turns that keys and the mouse may take before something else has one: a key that is held down freezes no screen."""

MAX_WAITING = 1_024
"""Everything else that waits."""

MAX_WAITING_BYTES = 64 << 20
"""Of what waits: a publisher in pieces of 2 MiB may be thirty of them ahead, and a plugin stays small."""


class Turn:
    """Something to do; what is done instead when it has to give way, and how many bytes wait with it."""

    __slots__ = ("drop", "run", "weight")

    def __init__(self, run: Job, drop: Job | None = None, weight: int = 0) -> None:
        self.run = run
        self.drop = drop
        """None for what somebody waits for."""
        self.weight = weight


class Lane:
    """What waits, in order."""

    __slots__ = ("_capacity", "_most", "_turns", "_weight")

    def __init__(self, capacity: int, most: int) -> None:
        self._turns: deque[Turn] = deque()
        self._capacity = capacity
        self._most = most
        self._weight = 0

    def add(self, turn: Turn) -> list[Turn]:
        """Take it in; what had to give way for it. It is among them when there was no room at all."""
        self._turns.append(turn)
        self._weight += turn.weight
        dropped: list[Turn] = []
        while len(self._turns) > self._capacity or (self._weight > self._most and len(self._turns) > 1):
            victim = next((waiting for waiting in self._turns if waiting.drop is not None), turn)
            self._turns.remove(victim)
            self._weight -= victim.weight
            dropped.append(victim)
        return dropped

    def next(self) -> Turn | None:
        if not self._turns:
            return None
        turn = self._turns.popleft()
        self._weight -= turn.weight
        return turn


class Turns:
    """A thread that does one thing after the other."""

    __slots__ = ("_bell", "_lanes", "_lock", "_over", "_row", "_started")

    def __init__(
        self, urgent: int = MAX_URGENT, waiting: int = MAX_WAITING, waiting_bytes: int = MAX_WAITING_BYTES
    ) -> None:
        self._lanes = tuple(Lane(capacity, waiting_bytes) for capacity in (urgent, urgent, waiting))
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._lock = allocate_lock()
        self._row = 0
        """How many of the last turns in a row were urgent."""
        self._started = False
        self._over = False

    def submit(self, turn: Turn, lane: int = REST) -> bool:
        """Have it done when its turn comes; False when there is no room and it cannot give way."""
        with self._lock:
            if not self._started and not self._start():
                return False
            dropped = self._lanes[lane].add(turn)
        self._bell.put(None)
        for victim in dropped:
            if victim.drop is not None:
                victim.drop()
        return turn.drop is not None or turn not in dropped

    def stop(self) -> None:
        """Have the thread end after the turn that it is in; for processes that go on."""
        self._over = True
        self._bell.put(None)

    def _start(self) -> bool:
        try:
            start_new_thread(self._work, ())
        except RuntimeError:  # the system has no thread to give
            return False
        self._started = True
        return True

    def _work(self) -> None:
        while not self._over:
            self._bell.get()
            with self._lock:
                turn = self._next()
            if turn is not None:  # the bell rings for those, too, that had to give way
                turn.run()

    def _next(self) -> Turn | None:
        """What is first, unless the last lane has waited long enough."""
        keys, mouse, rest = self._lanes
        turn = rest.next() if self._row >= MAX_IN_A_ROW else None
        if turn is None and (turn := keys.next() or mouse.next()) is not None:
            self._row += 1
            return turn
        self._row = 0
        return turn or rest.next()
