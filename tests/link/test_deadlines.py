"""Many timeouts, one timer: never early, in order, gone when discarded."""

from __future__ import annotations

import asyncio

from plugbay.link.deadlines import Deadlines
from tests.support.loops import Run
from tests.support.patience import until


class Alarm:
    def __init__(self, log: list[Alarm]) -> None:
        self.log = log
        self.at = 0.0

    def expire(self) -> None:
        self.at = asyncio.get_running_loop().time()
        self.log.append(self)


def test_an_entry_expires_once_and_never_early(run: Run) -> None:
    async def main() -> None:
        deadlines, log = Deadlines(asyncio.get_running_loop()), list[Alarm]()
        alarm = Alarm(log)
        due = asyncio.get_running_loop().time() + 0.03
        deadlines.add(0.03, alarm, Alarm.expire)
        await until(lambda: bool(log))
        assert alarm.at >= due
        await asyncio.sleep(0.02)
        assert log == [alarm]
        assert len(deadlines) == 0

    run(main)


def test_entries_expire_in_the_order_of_their_deadlines(run: Run) -> None:
    async def main() -> None:
        deadlines, log = Deadlines(asyncio.get_running_loop()), list[Alarm]()
        late, soon, middle = Alarm(log), Alarm(log), Alarm(log)
        deadlines.add(0.06, late, Alarm.expire)
        deadlines.add(0.01, soon, Alarm.expire)
        deadlines.add(0.03, middle, Alarm.expire)
        await until(lambda: len(log) == 3)
        assert log == [soon, middle, late]

    run(main)


def test_a_discarded_entry_never_expires_and_leaves_nothing_behind(run: Run) -> None:
    async def main() -> None:
        deadlines, log = Deadlines(asyncio.get_running_loop()), list[Alarm]()
        kept, dropped = Alarm(log), Alarm(log)
        deadlines.add(0.01, dropped, Alarm.expire)
        deadlines.add(0.03, kept, Alarm.expire)
        deadlines.discard(dropped)
        deadlines.discard(dropped)
        assert len(deadlines) == 1
        await until(lambda: bool(log))
        assert log == [kept]

    run(main)


def test_finished_calls_leave_nothing_behind_and_the_timer_alone(run: Run) -> None:
    async def main() -> None:
        deadlines = Deadlines(asyncio.get_running_loop())
        deadlines.add(30, Alarm([]), Alarm.expire)
        timer = deadlines._timer
        for _ in range(10_000):
            alarm = Alarm([])
            deadlines.add(60, alarm, Alarm.expire)
            deadlines.discard(alarm)
        assert len(deadlines) == 1
        assert deadlines._timer is timer

    run(main)


def test_an_entry_that_discards_another_one_due_at_the_same_moment_is_obeyed(run: Run) -> None:
    async def main() -> None:
        deadlines, log = Deadlines(asyncio.get_running_loop()), list[Alarm]()
        second = Alarm(log)
        deadlines.add(0.010, "first", lambda _: deadlines.discard(second))
        deadlines.add(0.011, second, Alarm.expire)
        await asyncio.sleep(0.005)
        deadlines.now = lambda: asyncio.get_running_loop().time() + 1
        await until(lambda: len(deadlines) == 0)
        assert log == []

    run(main)


def test_an_entry_added_while_others_expire_is_not_lost(run: Run) -> None:
    async def main() -> None:
        deadlines, log = Deadlines(asyncio.get_running_loop()), list[Alarm]()

        class Chained(Alarm):
            def expire(self) -> None:
                super().expire()
                deadlines.add(0.0, Alarm(log), Alarm.expire)

        deadlines.add(0.01, Chained(log), Chained.expire)
        await until(lambda: len(log) == 2)
        deadlines.add(1, Alarm(log), Alarm.expire)
        deadlines.close()
        assert len(deadlines) == 0

    run(main)
