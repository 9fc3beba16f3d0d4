"""The pump: correlation, deadlines, cancellation, back-pressure, faults. No process, both loops."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from plugbay.contracts.base import Role
from plugbay.link import incoming, link, sender
from plugbay.link.deadlines import Deadlines
from plugbay.link.in_flight import Grace
from plugbay.link.link import Hooks, Link
from plugbay.link.sender import BATCH
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished, CancelArrived, Noise
from plugbay.model.operations import DeliverEvent, InvokeTool, WriteLog
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.support.echo import EchoMachine
from tests.support.loops import Run
from tests.support.memory_stream import MemoryStream, memory_pair
from tests.support.patience import PATIENCE, until

if TYPE_CHECKING:
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation

CODEC = MsgspecCodec()


class Pair:
    """A HOST link and a PLUGIN link joined in memory."""

    def __init__(
        self,
        host_hooks: Hooks | None = None,
        plugin_hooks: Hooks | None = None,
        machine: type[EchoMachine] = EchoMachine,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(loop)
        self.host_end, self.plugin_end = memory_pair(loop)
        self.host = Link(machine(Role.HOST, CODEC), self.host_end, self.deadlines, host_hooks)
        hooks = plugin_hooks or Hooks(handler=echo)
        self.plugin = Link(EchoMachine(Role.PLUGIN, stdlib_codec()), self.plugin_end, self.deadlines, hooks)

    async def open(self) -> Pair:
        opened = await asyncio.gather(self.plugin.open(5), self.host.open(5))
        assert opened[0] is None and opened[1] is None
        return self

    async def ask(self, value: Any, timeout: float = 5, on_progress: Any = None) -> Any:
        answer = await self.host.call(InvokeTool("echo", CODEC.dump(value)), timeout, on_progress)
        return answer.failure.code if answer.failure else CODEC.load(answer.value)


async def echo(op: Operation, progress: Callable[[Any], None]) -> Any:
    assert isinstance(op, InvokeTool)
    return op.input


def test_a_call_gets_its_answer(run: Run) -> None:
    async def main() -> None:
        pair = await Pair().open()
        assert await pair.ask({"text": "ü"}) == {"text": "ü"}
        assert pair.host.waiting == 0

    run(main)


def test_five_hundred_calls_in_flight_each_get_their_own_answer(run: Run) -> None:
    async def main() -> None:
        async def slow_first(op: Operation, progress: Callable[[Any], None]) -> Any:
            assert isinstance(op, InvokeTool)
            await asyncio.sleep(0.001 * (op.input % 7))
            return op.input

        pair = await Pair(plugin_hooks=Hooks(handler=slow_first)).open()
        limit = asyncio.Semaphore(30)

        async def one(number: int) -> Any:
            async with limit:
                return await pair.ask(number)

        assert await asyncio.gather(*map(one, range(500))) == list(range(500))

    run(main)


def test_progress_reaches_its_caller_before_the_answer(run: Run) -> None:
    async def main() -> None:
        async def counting(op: Operation, progress: Callable[[Any], None]) -> Any:
            for number in range(3):
                progress(number)
            return "done"

        pair = await Pair(plugin_hooks=Hooks(handler=counting)).open()
        seen: list[Any] = []
        assert await pair.ask(1, on_progress=seen.append) == "done"
        assert seen == [0, 1, 2]

    run(main)


async def never(op: Operation, progress: Callable[[Any], None]) -> Any:
    await asyncio.Event().wait()


def test_a_call_that_is_not_answered_in_time_is_a_timeout_and_is_cancelled_at_the_peer(run: Run) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()

        async def stubborn(op: Operation, progress: Callable[[Any], None]) -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        pair = await Pair(plugin_hooks=Hooks(handler=stubborn)).open()
        assert await pair.ask(1, timeout=0.03) == Code.TIMEOUT
        await asyncio.wait_for(cancelled.wait(), PATIENCE)
        assert pair.host.waiting == 0

    run(main)


def test_a_cancelled_caller_cancels_the_peer_and_the_link_lives_on(run: Run) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()

        async def handler(op: Operation, progress: Callable[[Any], None]) -> Any:
            assert isinstance(op, InvokeTool)
            if op.input != "hang":
                return op.input
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        pair = await Pair(plugin_hooks=Hooks(handler=handler)).open()
        task = asyncio.ensure_future(pair.ask("hang"))
        await until(lambda: pair.host.waiting == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(cancelled.wait(), PATIENCE)
        assert await pair.ask("next") == "next"
        assert pair.host.waiting == 0

    run(main)


def test_an_answer_after_its_deadline_is_counted_and_dropped(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def uncancellable(op: Operation, progress: Callable[[Any], None]) -> Any:
            await asyncio.shield(asyncio.ensure_future(gate.wait()))
            return "late"

        pair = await Pair(plugin_hooks=Hooks(handler=uncancellable)).open()
        pair.plugin.machine.__class__ = DeafToCancels
        assert await pair.ask(1, timeout=0.02) == Code.TIMEOUT
        gate.set()
        await until(lambda: pair.host.late == 1)

    run(main)


async def finishes_when_cancelled(op: Operation, progress: Callable[[Any], None]) -> Any:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "done all the same"


def test_an_answer_within_the_grace_after_the_deadline_counts(run: Run) -> None:
    async def main() -> None:
        pair = await Pair(plugin_hooks=Hooks(handler=finishes_when_cancelled)).open()
        grace = Grace(5)
        answer = await pair.host.call(InvokeTool("echo", CODEC.dump(1)), 0.02, None, grace)
        assert answer.failure is None and CODEC.load(answer.value) == "done all the same"
        assert (grace.reason, grace.over, grace.asked) == ("deadline_exceeded", False, False)
        assert pair.host.waiting == 0

    run(main)


def test_a_call_is_called_off_from_outside_and_still_gets_its_answer(run: Run) -> None:
    async def main() -> None:
        pair = await Pair(plugin_hooks=Hooks(handler=finishes_when_cancelled)).open()
        grace = Grace(5)
        task = asyncio.ensure_future(pair.host.call(InvokeTool("echo", CODEC.dump(1)), 5, None, grace))
        await until(lambda: grace.asked and pair.host.waiting == 1)
        assert grace.cancel("user_cancelled")
        answer = await task
        assert CODEC.load(answer.value) == "done all the same"
        assert grace.reason == "user_cancelled" and not grace.over

    run(main)


@pytest.mark.parametrize(("reason", "code"), [("", Code.TIMEOUT), ("user_cancelled", Code.CANCELLED)])
def test_no_answer_within_the_grace_ends_the_call(run: Run, reason: str, code: str) -> None:
    async def main() -> None:
        pair = await Pair(plugin_hooks=Hooks(handler=uncancellable)).open()
        pair.plugin.machine.__class__ = DeafToCancels
        grace = Grace(0.02)
        task = asyncio.ensure_future(
            pair.host.call(InvokeTool("echo", CODEC.dump(1)), 5 if reason else 0.02, None, grace)
        )
        await until(lambda: grace.asked)
        assert not reason or grace.cancel(reason)
        answer = await task
        assert answer.failure is not None and answer.failure.code == code
        assert grace.over and grace.reason == (reason or "deadline_exceeded")
        assert pair.host.waiting == 0

    run(main)


async def uncancellable(op: Operation, progress: Callable[[Any], None]) -> Any:
    await asyncio.shield(asyncio.get_running_loop().create_future())


class DeafToCancels(EchoMachine):
    __slots__ = ()

    def receive(self, data: bytes) -> list[Event]:
        return [event for event in super().receive(data) if not isinstance(event, CancelArrived)]


def test_the_plugin_may_ask_the_host_while_the_greeting_is_still_open(run: Run) -> None:
    async def main() -> None:
        lines: list[str] = []

        async def log(op: Operation, progress: Callable[[Any], None]) -> Any:
            assert isinstance(op, WriteLog)
            lines.append(op.message)
            return {}

        pair = Pair(host_hooks=Hooks(handler=log))
        pair.host_end.open(pair.host)
        pair.plugin_end.open(pair.plugin)
        pair.host.machine.state = "greeting"
        pair.plugin.machine.state = "greeting"
        answer = await pair.plugin.call(WriteLog("info", "early"), 5)
        assert answer.failure is None
        assert lines == ["early"]

    run(main)


def test_both_sides_ask_at_once_with_the_same_ids(run: Run) -> None:
    async def main() -> None:
        async def log(op: Operation, progress: Callable[[Any], None]) -> Any:
            return "logged"

        pair = Pair(host_hooks=Hooks(handler=log))
        await pair.open()
        mine, theirs = await asyncio.gather(pair.ask("x"), pair.plugin.call(WriteLog("info", "y"), 5))
        assert mine == "x"
        assert theirs == CallFinished(1, "logged")

    run(main)


def test_without_a_handler_every_request_is_not_found(run: Run) -> None:
    async def main() -> None:
        pair = await Pair().open()
        failure = (await pair.plugin.call(WriteLog("info", "y"), 5)).failure
        assert failure is not None and failure.message == "requests are not answered here"

    run(main)


# Faults.


def test_a_fault_fails_every_waiter_once_with_the_owners_explanation(run: Run) -> None:
    async def main() -> None:
        told: list[Failure] = []
        since: list[float | None] = []

        def explain(failure: Failure, sent: float | None) -> Failure:
            since.append(sent)
            return failure.with_detail("p", exit_code=3)

        hooks = Hooks(explain=explain, faulted=told.append)
        pair = await Pair(hooks, Hooks(handler=never)).open()
        calls = [asyncio.ensure_future(pair.host.call(InvokeTool("t", CODEC.dump(1)), 5)) for _ in range(20)]
        await until(lambda: pair.host.waiting == 20)
        pair.plugin_end.write(b'{"method":"nonsense","params":{}}\n')
        failures = [(await call).failure for call in calls]
        assert {failure.code for failure in failures if failure} == {Code.MALFORMED_RESPONSE}
        assert all(failure and failure.detail["exit_code"] == 3 for failure in failures)
        assert len(told) == 1
        whole, first, *others = since
        assert whole is first is None, "the end of the link, and its first call, have all of stderr"
        assert len(others) == 19 and others == sorted(filter(None, others)), "a later one from its beginning on"
        assert pair.host.fault is not None
        assert await pair.ask("later") == Code.MALFORMED_RESPONSE

    run(main)


def test_the_end_of_output_fails_waiters_at_once_without_a_process(run: Run) -> None:
    async def main() -> None:
        pair = await Pair(plugin_hooks=Hooks(handler=never)).open()
        call = asyncio.ensure_future(pair.ask(1))
        await until(lambda: pair.host.waiting == 1)
        pair.plugin_end.close()
        assert await call == Code.CRASHED

    run(main)


def test_with_a_process_the_end_of_output_waits_a_moment_for_the_exit_that_explains_it(run: Run) -> None:
    async def main() -> None:
        pair = await Pair(plugin_hooks=Hooks(handler=never)).open()
        pair.host._has_process = True
        call = asyncio.ensure_future(pair.ask(1))
        await until(lambda: pair.host.waiting == 1)
        pair.plugin_end.close()
        await until(lambda: pair.host._eof_timer is not None)
        assert not call.done()
        pair.host.peer_exited()
        assert await call == Code.CRASHED

    run(main)


def test_a_process_that_only_closed_its_output_is_given_up_without_waiting_for_its_exit(run: Run) -> None:
    async def main() -> None:
        pair = await Pair(plugin_hooks=Hooks(handler=never)).open()
        pair.host._has_process = True
        call = asyncio.ensure_future(pair.ask(1))
        await until(lambda: pair.host.waiting == 1)
        pair.plugin_end.close()
        assert await call == Code.CRASHED

    run(main)


def test_a_bug_in_a_machine_fails_its_own_link_and_nothing_else(run: Run) -> None:
    async def main() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        pair, other = await Pair(plugin_hooks=Hooks(handler=never)).open(), await Pair().open()
        pair.host.machine.__class__ = Buggy
        call = asyncio.ensure_future(pair.ask(1))
        await until(lambda: pair.host.waiting == 1)
        pair.plugin_end.write(b"{}\n")
        assert await call == Code.INTERNAL
        assert await other.ask("fine") == "fine"
        assert len(reported) == 1

    run(main)


class Starved(EchoMachine):
    """There is no memory for a message, nor for the rest of one."""

    __slots__ = ()

    def receive(self, data: bytes) -> list[Event]:
        raise MemoryError

    def receive_eof(self) -> list[Event]:
        raise MemoryError


@pytest.mark.parametrize("how", ["message", "end"])
def test_a_message_for_which_there_is_no_memory_ends_its_own_link_and_is_no_bug(run: Run, how: str) -> None:
    async def main() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        pair, other = await Pair(plugin_hooks=Hooks(handler=never)).open(), await Pair().open()
        pair.host.machine.__class__ = Starved
        call = asyncio.ensure_future(pair.ask(1))
        await until(lambda: pair.host.waiting == 1)
        if how == "message":
            pair.plugin_end.write(b"{}\n")
        else:
            pair.plugin_end.close()
        assert await call == (Code.OVERLOADED if how == "message" else Code.CRASHED)
        assert await other.ask("fine") == "fine"
        assert reported == []

    run(main)


class Buggy(EchoMachine):
    __slots__ = ()

    def receive(self, data: bytes) -> list[Event]:
        raise ZeroDivisionError("bug")


def test_a_fault_in_one_link_never_raises_through_a_task_group(run: Run) -> None:
    async def main() -> None:
        bad, good = await Pair(plugin_hooks=Hooks(handler=never)).open(), await Pair().open()
        async with asyncio.TaskGroup() as group:
            failed = group.create_task(bad.ask(1))
            fine = group.create_task(good.ask(2))
            await until(lambda: bad.host.waiting == 1)
            bad.plugin_end.write(b'{"method":"nonsense","params":{}}\n')
        assert (failed.result(), fine.result()) == (Code.MALFORMED_RESPONSE, 2)

    run(main)


def test_noise_is_counted_and_shown_and_costs_nothing_else(run: Run) -> None:
    async def main() -> None:
        shown: list[Noise] = []
        pair = await Pair(Hooks(noise=shown.append)).open()
        pair.plugin_end.write(b"debug print\n")
        assert await pair.ask(1) == 1
        assert pair.host.noise == 1
        assert shown[0].data == b"debug print"

    run(main)


def test_a_greeting_that_never_comes_is_a_timeout(run: Run) -> None:
    async def main() -> None:
        pair = Pair()
        failure = await pair.host.open(0.02)
        assert failure is not None
        assert failure.code == Code.TIMEOUT

    run(main)


class Refusing(EchoMachine):
    """Sends no call at all."""

    __slots__ = ()

    def call(self, id: CallId, op: Operation) -> Failure | None:
        return Failure(Code.INVALID_INPUT, "no")


@pytest.mark.parametrize("ending", ["answered", "refused", "over", "expired", "cancelled"])
def test_the_end_of_a_call_is_reported_once_however_it_ended(run: Run, ending: str) -> None:
    async def main() -> None:
        told: list[int] = []
        hooks = Hooks(handler=echo if ending == "answered" else never)
        pair = await Pair(plugin_hooks=hooks, machine=Refusing if ending == "refused" else EchoMachine).open()
        if ending == "over":
            pair.host.close()
        op, seconds = InvokeTool("echo", CODEC.dump(1)), 0.01 if ending == "expired" else 30
        call = asyncio.ensure_future(pair.host.call(op, seconds, over=lambda: told.append(1)))
        if ending == "cancelled":
            await until(lambda: pair.host.waiting == 1)
            assert told == []
            call.cancel()
        await asyncio.wait({call})
        assert told == [1]

    run(main)


def test_closing_a_link_fails_waiting_calls(run: Run) -> None:
    async def main() -> None:
        pair = await Pair(plugin_hooks=Hooks(handler=never)).open()
        call = asyncio.ensure_future(pair.ask(1))
        await until(lambda: pair.host.waiting == 1)
        pair.host.close()
        assert await call == Code.UNAVAILABLE
        assert len(pair.deadlines) == 0

    run(main)


# Pressure.


def test_notifications_wait_for_the_greeting_and_the_newest_are_dropped_when_too_many_wait(run: Run) -> None:
    async def main() -> None:
        heard: list[Any] = []
        pair = Pair(plugin_hooks=Hooks(notified=lambda op: heard.append(op)))
        for number in range(6):
            pair.host.notify(DeliverEvent("t", number))
        assert pair.host.dropped == 2
        await pair.open()
        await until(lambda: len(heard) == 4)
        assert heard == [DeliverEvent("t", number) for number in range(4)]

    run(main)


class Picky(EchoMachine):
    def notify(self, op: Operation) -> Failure | None:
        if op == DeliverEvent("t", "large"):
            return Failure(Code.FRAME_TOO_LARGE, "too large")
        super().notify(op)
        return None


def test_a_notification_the_machine_refuses_is_dropped_and_told(run: Run) -> None:
    async def main() -> None:
        heard: list[Any] = []
        told: list[Noise] = []
        pair = Pair(Hooks(noise=told.append), Hooks(notified=heard.append), Picky)
        pair.host.notify(DeliverEvent("t", "large"))  # waits for the greeting
        await pair.open()
        for payload in ("large", "small"):
            pair.host.notify(DeliverEvent("t", payload))
        await until(lambda: heard == [DeliverEvent("t", "small")])
        assert (pair.host.dropped, [noise.why for noise in told]) == (2, ["DeliverEvent was not sent: too large"] * 2)

    run(main)


def test_urgent_notifications_overtake_while_the_peer_does_not_read_and_calls_are_never_dropped(
    run: Run,
) -> None:
    async def main() -> None:
        heard: list[Any] = []
        pair = await Pair(plugin_hooks=Hooks(handler=echo, notified=heard.append)).open()
        pair.plugin_end.stalled = True
        pair.host.notify(DeliverEvent("fill", "x" * 10))
        await until(lambda: pair.host_end.buffered > 0)
        pair.host.notify(DeliverEvent("t", 1))
        pair.host.notify(WriteLog("info", "urgent"))
        call = asyncio.ensure_future(pair.ask("call"))
        pair.plugin_end.resume()
        assert await call == "call"
        await until(lambda: len(heard) == 3)
        assert heard[1:] == [WriteLog("info", "urgent"), DeliverEvent("t", 1)]

    run(main)


def test_a_peer_that_does_not_read_costs_each_call_its_own_time_and_the_link_nothing(run: Run) -> None:
    async def main() -> None:
        pair = await Pair().open()
        pair.plugin_end.stalled = True
        patient = asyncio.ensure_future(pair.ask("x" * 300_000, timeout=30))
        await until(lambda: pair.host.waiting == 1)
        assert await pair.ask("y", timeout=0.02) == Code.TIMEOUT
        silence = pair.host.silence
        assert [call.op for call in silence.timed_out] == [InvokeTool("echo", CODEC.dump("y"))]
        assert silence.working_since is not None and silence.working_since <= silence.timed_out[0].sent
        pair.plugin_end.resume()
        assert await patient == "x" * 300_000
        left: object = silence.working_since
        assert (pair.host.fault, left, silence.timed_out) == (None, None, [])

    run(main)


def test_a_message_that_never_ends_is_the_end_of_the_link(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "FRAME_SECONDS", 0.05)

    async def main() -> None:
        pair = await Pair(plugin_hooks=Hooks(handler=never)).open()
        asked = asyncio.ensure_future(pair.ask(1, timeout=30))
        for _ in range(3):
            pair.host.data_received(b"x")
        assert await asked == Code.TIMEOUT
        assert pair.host.fault is not None and "of which 3 bytes came" in pair.host.fault.message

    run(main)


def test_a_message_in_pieces_is_fine_and_so_are_many_that_each_begin_before_the_last_was_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "FRAME_SECONDS", 0.5)

    async def main() -> None:
        pair = await Pair().open()
        now = pair.deadlines.now()
        pair.deadlines.now = lambda: now
        pair.host.data_received(b"x")
        for _ in range(10):
            now += 0.1
            pair.deadlines._fire()
            pair.host.data_received(b"\nx")  # the end of one, the beginning of the next
        assert pair.host.fault is None
        pair.host.data_received(b"\n")
        assert len(pair.deadlines) == 0
        pair.host.data_received(b"x")
        now += 0.6
        pair.deadlines._fire()
        assert pair.host.fault is not None

    run(main)


@pytest.mark.parametrize("asked", [False, True])
def test_a_peer_whose_unasked_bytes_keep_the_loop_busy_rests(
    asked: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "LONGEST_REST", 3600.0)

    async def main() -> None:
        pair = await Pair().open()
        pair.host._has_process = True
        ticks = itertools.count()
        monkeypatch.setattr(link, "monotonic", lambda: float(next(ticks)))  # each look takes a second
        if asked:
            assert await pair.ask(1) == 1
        else:
            pair.host.data_received(b"no message\n")
        assert pair.host_end._reading is asked
        pair.host.peer_exited()
        assert pair.host.fault is not None, "a rest does not outlive the process"

    run(main)


def test_calls_are_refused_while_too_much_already_waits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MAX_UNSENT", 1000)

    async def main() -> None:
        pair = await Pair().open()
        pair.plugin_end.stalled = True
        first = asyncio.ensure_future(pair.ask("x" * 2000))
        await until(lambda: pair.host_end.buffered > 1000)
        assert await pair.ask("y") == Code.OVERLOADED
        pair.plugin_end.resume()
        assert await first == "x" * 2000

    run(main)


@pytest.mark.parametrize(
    ("callers", "frames"), [(1, [1]), (2, [1, 1]), (10, [1, 1, 8]), (40, [1, 1, BATCH, BATCH, 38 - 2 * BATCH])]
)
def test_few_calls_are_sent_as_they_are_made_and_many_of_a_tick_together(
    run: Run, callers: int, frames: list[int]
) -> None:
    async def main() -> None:
        writes: list[bytes] = []

        class Counting(MemoryStream):
            def write(self, data: bytes) -> None:
                writes.append(data)
                super().write(data)

        pair = await Pair().open()
        pair.host_end.__class__ = Counting
        await pair.ask(0)
        writes.clear()
        await asyncio.gather(*(pair.ask(number) for number in range(callers)))
        assert [data.count(b"\n") for data in writes] == frames

    run(main)


def test_a_burst_in_one_tick_is_bounded_by_the_pipe_and_the_queue(run: Run) -> None:
    async def main() -> None:
        pair = await Pair().open()
        pair.plugin_end.stalled = True
        for number in range(5_000):
            pair.host.notify(DeliverEvent("t", number))
        sent_or_waiting = 5_000 - pair.host.dropped
        assert pair.host.dropped > 4_000
        assert sent_or_waiting > EchoMachine.TRAFFIC.capacity
        pair.host.close()

    run(main)


def test_a_good_bye_waits_for_the_peers_answer_and_for_calls_in_flight(run: Run) -> None:
    async def main() -> None:
        pair = await Pair().open()
        asked = asyncio.ensure_future(pair.ask(1))
        await asyncio.sleep(0)
        parting = asyncio.ensure_future(pair.host.farewell(5))
        assert await asked == 1
        pair.plugin_end.close_write()
        assert await parting is None
        assert pair.host.fault is not None and pair.host.fault.code == Code.UNAVAILABLE

    run(main)


def test_a_good_bye_that_is_never_answered_ends_in_time(run: Run) -> None:
    async def main() -> None:
        pair = await Pair().open()
        failure = await pair.host.farewell(0.01)
        assert failure is not None and failure.code == Code.TIMEOUT

    run(main)


class Unanswered(EchoMachine):
    """The same contract, whose good-bye is only said."""

    __slots__ = ()
    GOOD_BYE_IS_ANSWERED: ClassVar[bool] = False


def test_a_good_bye_without_an_answer_follows_what_was_asked_and_is_not_waited_for(run: Run) -> None:
    async def main() -> None:
        said: list[bytes] = []

        class Recording(MemoryStream):
            def write(self, data: bytes) -> None:
                said.extend(data.splitlines())

            def close_write(self) -> None:
                said.append(b"the end")

        pair = await Pair(machine=Unanswered).open()
        pair.host_end.__class__ = Recording
        calls = [asyncio.ensure_future(pair.ask(number)) for number in (1, 2)]
        await asyncio.sleep(0)
        assert await pair.host.farewell(0) is None
        assert (len(said), said[-1]) == (3, b"the end")
        assert pair.host.fault is None
        for number in (2, 1):
            pair.host.data_received(b'{"jsonrpc":"2.0","id":%d,"result":"still heard"}\n' % number)
        assert await asyncio.gather(*calls) == ["still heard"] * 2
        pair.host.eof_received()
        assert pair.host.fault is not None and pair.host.fault.code == Code.UNAVAILABLE

    run(main)


def test_a_good_bye_without_an_answer_to_a_peer_that_is_gone_says_why(run: Run) -> None:
    async def main() -> None:
        pair = await Pair(machine=Unanswered).open()
        pair.plugin_end.close_write()
        await until(lambda: pair.host.fault is not None)
        assert await pair.host.farewell(0) is pair.host.fault

    run(main)


def test_a_good_bye_to_a_peer_that_is_gone_says_why(run: Run) -> None:
    async def main() -> None:
        pair = await Pair().open()
        pair.plugin_end.close_write()
        await until(lambda: pair.host.fault is not None)
        failure = await pair.host.farewell(5)
        assert failure is pair.host.fault

    run(main)


def test_a_progress_callback_that_raises_costs_no_other_call_its_answer(run: Run) -> None:
    async def main() -> None:
        async def streaming(op: Operation, progress: Callable[[Any], None]) -> Any:
            assert isinstance(op, InvokeTool)
            progress("piece")
            return op.input

        pair = await Pair(plugin_hooks=Hooks(handler=streaming)).open()

        def broken(_: Any) -> None:
            raise BrokenPipeError

        first, second = await asyncio.gather(pair.ask(1, on_progress=broken), pair.ask(2))
        assert (first, second) == (Code.INTERNAL, 2)
        assert pair.host.waiting == 0

    run(main)


def test_a_peer_that_asks_and_never_reads_is_not_read_any_more_and_goes_on_when_it_reads(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MAX_UNREAD", 100_000)

    async def main() -> None:
        async def large(op: Operation, progress: Callable[[Any], None]) -> Any:
            return "x" * 50_000

        pair = await Pair(host_hooks=Hooks(handler=large)).open()
        pair.plugin_end.stalled = True
        asked = [asyncio.ensure_future(pair.plugin.call(WriteLog("info", str(n)), 30)) for n in range(20)]
        await until(lambda: pair.host_end.buffered > 100_000)
        more = [asyncio.ensure_future(pair.plugin.call(WriteLog("info", "more"), 30)) for _ in range(20)]
        for _ in range(50):
            await asyncio.sleep(0)
        held = pair.host_end.buffered
        assert held < 40 * 50_000
        pair.plugin_end.resume()
        answers = await asyncio.gather(*asked, *more)
        assert all(answer.failure is None or answer.failure.code == Code.OVERLOADED for answer in answers)

    run(main)


def test_pieces_for_a_peer_that_does_not_read_end_the_answer_instead_of_piling_up(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MAX_UNSENT", 100_000)
    sent: list[int] = []

    async def main() -> None:
        async def endless(op: Operation, progress: Callable[[Any], None]) -> Any:
            for number in range(1_000):
                progress("x" * 10_000)
                sent.append(number)
                await asyncio.sleep(0)
            return "all of it"

        pair = await Pair(host_hooks=Hooks(handler=endless)).open()
        pair.plugin_end.stalled = True
        asked = asyncio.ensure_future(pair.plugin.call(WriteLog("info", "x"), 30))
        await until(lambda: len(sent) > 5 and pair.host_end.buffered > 100_000)
        for _ in range(20):
            await asyncio.sleep(0)
        pair.plugin_end.resume()
        answer = await asked
        assert answer.failure is not None
        assert len(sent) < 100

    run(main)


def test_every_hook_is_optional() -> None:
    hooks = Hooks()
    assert [getattr(hooks, name) for name in Hooks.__slots__] == [None] * len(Hooks.__slots__)


def test_a_hook_is_kept_as_given() -> None:
    steps: list[str] = []
    hooks = Hooks(trace=steps.append)
    assert hooks.trace is not None
    hooks.trace("link.call")
    assert steps == ["link.call"]
