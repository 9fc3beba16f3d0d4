"""When bytes go out: notifications only as fast as they are taken, urgent ones next, calls at once. Both loops."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.base import Role, Traffic
from plugbay.link import sender
from plugbay.link.deadlines import Deadlines
from plugbay.link.incoming import Incoming
from plugbay.link.link import Link
from plugbay.link.sender import BURST, LIGHT, Lane, Outbox, Sender, weight
from plugbay.link.stream import PipeStream
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import DeliverEvent, DeliverSnapshot, InvokeTool, PressKey, UseMouse, WriteLog
from plugbay.process.child import Spawner
from plugbay.process.command import Launch
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.lines import encode
from tests.link.test_stream import Ear, Pipes
from tests.support import jsonrpc
from tests.support.echo import EchoMachine
from tests.support.loops import Run
from tests.support.memory_stream import memory_pair
from tests.support.patience import until
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.model.operations import Operation

CODEC = MsgspecCodec()
MIB = 1 << 20


class Screens(EchoMachine):
    """The echo contract with large snapshots, and logs for keys."""

    TRAFFIC: ClassVar[Traffic] = Traffic(4_096, "newest", (WriteLog,), max_bytes=64 * MIB)

    def notify(self, op: Any) -> Failure | None:
        if not isinstance(op, DeliverSnapshot):
            return super().notify(op)
        self._out.append(encode(jsonrpc.notification("event", b'{"topic":"%b","payload":"%b"}' % (b"t", op.data))))
        return None


class Bench:
    """A sender whose peer takes bytes only when it is told to."""

    def __init__(self, machine: type[EchoMachine] = Screens) -> None:
        loop = asyncio.get_running_loop()
        self.machine = machine(Role.HOST, CODEC)
        self.ours, self.theirs = memory_pair(loop)
        self.theirs.open(Ear())
        self.refusals: list[Any] = []
        self.failures: list[Failure] = []
        self.sender = Sender(
            self.machine,
            self.ours,
            Incoming(self.ours, Deadlines(loop), self.failures.append),
            lambda op, failure: self.refusals.append((op, failure)),
        )
        self.ours.open(Listener(self.sender))
        self.sender.ready()


class Listener(Ear):
    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def write_drained(self) -> None:
        self._sender.drained()


def test_a_burst_of_large_snapshots_is_held_back_but_for_the_first(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        bench.theirs.stalled = True
        bench.sender.notify(DeliverEvent("t", 1))
        bench.sender.send_now()  # now the pipe is full, and what follows has to wait
        for _ in range(40):
            bench.sender.notify(DeliverSnapshot("t", b"x" * MIB))
        assert bench.ours.buffered < 2 * MIB
        assert not bench.machine.has_outgoing
        assert (len(bench.sender.outbox), bench.sender.outbox.dropped) == (40, 0)

    run(main)


def test_small_notifications_of_one_tick_go_out_together(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        for number in range(10):
            bench.sender.notify(DeliverEvent("t", number))
        assert bench.machine.has_outgoing
        await asyncio.sleep(0)
        assert not bench.machine.has_outgoing
        assert bench.ours.sent > 0

    run(main)


def test_a_snapshot_larger_than_all_calls_may_be_is_not_held_against_them(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        bench.theirs.stalled = True
        bench.sender.notify(DeliverSnapshot("t", b"x" * (12 * MIB)))
        assert bench.ours.buffered > sender.MAX_UNSENT
        assert bench.sender.has_room()
        bench.machine.call(1, InvokeTool("t", CODEC.dump("x" * sender.MAX_UNSENT)))
        bench.sender.send_now()
        assert not bench.sender.has_room()

    run(main)


@requirement("ainb:host-keys-before-render")
def test_what_was_urgent_before_a_call_goes_before_it_and_the_rest_after(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        bench.theirs.stalled = True
        bench.sender.notify(DeliverEvent("fill", 0))
        bench.sender.send_now()
        bench.sender.notify(DeliverEvent("queued", 0))
        bench.sender.notify(WriteLog("key", "pressed"))
        assert bench.sender.admits_call()
        bench.machine.call(1, InvokeTool("picture", CODEC.dump(1)))
        bench.sender.send_now()
        waiting = bytes(bench.ours._out)
        assert b"fill" in waiting and b"queued" not in waiting
        assert waiting.index(b"pressed") < waiting.index(b"picture")

    run(main)


def test_nothing_urgent_goes_out_before_the_greeting_is_over(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        bench.sender._ready = False
        bench.sender.notify(WriteLog("key", "pressed"))
        assert bench.sender.admits_call()
        assert (len(bench.sender.outbox), bench.machine.has_outgoing) == (1, False)
        bench.sender.ready()
        assert len(bench.sender.outbox) == 0 and bench.ours.sent > 0

    run(main)


def test_after_the_end_nothing_is_sent(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        bench.sender.over = True
        bench.sender.notify(DeliverEvent("t", 1))
        bench.machine.call(1, InvokeTool("t", CODEC.dump(1)))
        bench.sender.send()
        await asyncio.sleep(0)
        assert (bench.ours.sent, len(bench.sender.outbox)) == (0, 0)

    run(main)


def taken(bench: Bench) -> int:
    assert bench.sender.unread is not None
    return bench.sender.unread[1]


def test_a_peer_for_which_too_much_waits_is_not_read_until_it_has_taken_everything(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MAX_UNREAD", 100_000)

    async def main() -> None:
        bench = Bench()
        bench.theirs.stalled = True
        bench.machine.call(1, InvokeTool("t", CODEC.dump("x" * 300_000)))
        assert (bench.sender.unread, bench.ours._reading) == (None, True)
        bench.sender.send_now()
        assert taken(bench) == 0 and not bench.ours._reading
        bench.theirs.stalled = False
        bench.ours._push()
        assert taken(bench) > 0
        bench.theirs.resume()
        await until(lambda: bench.sender.unread is None)
        assert bench.ours._reading

    run(main)


def test_what_the_machine_will_not_send_is_counted_and_told(run: Run) -> None:
    class Picky(Screens):
        def notify(self, op: Any) -> Failure | None:
            return Failure(Code.FRAME_TOO_LARGE, "too large")

    async def main() -> None:
        bench = Bench(Picky)
        bench.sender.notify(DeliverEvent("t", 1))
        bench.sender.notify(WriteLog("key", "k"))
        assert (bench.sender.outbox.dropped, bench.sender.outbox.urgent_dropped) == (1, 1)
        assert [op for op, _ in bench.refusals] == [DeliverEvent("t", 1), WriteLog("key", "k")]

    run(main)


def test_for_a_peer_that_has_closed_its_input_nothing_more_is_written(run: Run) -> None:
    class Counting(Screens):
        written = 0

        def notify(self, op: Any) -> Failure | None:
            type(self).written += 1
            return super().notify(op)

    async def main() -> None:
        Counting.written = 0
        pipes = Pipes()
        incoming = Incoming(pipes.stream, Deadlines(asyncio.get_running_loop()), print)
        sender = Sender(Counting(Role.HOST, CODEC), pipes.stream, incoming, print)
        pipes.stream.open(Listener(sender))
        sender.ready()
        for _ in range(20):
            sender.notify(DeliverSnapshot("t", b"x" * MIB))
        assert pipes.stream.buffered and Counting.written == 1
        os.close(pipes.child_in)
        await until(lambda: not pipes.stream.buffered)
        sender.notify(DeliverSnapshot("t", b"x"))
        assert (Counting.written, len(sender.outbox)) == (2, 19)
        pipes.stream.close()
        os.close(pipes.child_out)

    run(main)


def test_what_cannot_be_sent_does_not_hold_up_what_comes_after_it(run: Run) -> None:
    class Picky(Screens):
        def notify(self, op: Any) -> Failure | None:
            return Failure(Code.FRAME_TOO_LARGE, "too large") if op.data == b"no" else super().notify(op)

    async def main() -> None:
        bench = Bench(Picky)
        bench.sender.notify(DeliverSnapshot("t", b"x" * MIB))
        for data in (b"no", b"yes"):
            bench.sender.notify(DeliverSnapshot("t", data))
        bench.theirs.resume()
        await until(lambda: not bench.ours.buffered and not bench.sender.outbox)
        assert [op.data for op, _ in bench.refusals] == [b"no"]

    run(main)


# A real process.

READS_LATE = """
import json, pathlib, sys, time

print(json.dumps({"jsonrpc": "2.0", "method": "hello", "params": {}}), flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.01)
order = []
for line in sys.stdin:
    m = json.loads(line)
    if m["method"] == "call":
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": order}), flush=True)
        break
    order.append(m["params"]["message"] if m["method"] == "log" else m["method"])
"""


@requirement("ainb:host-keys-overtake-events")
def test_a_key_overtakes_fifty_large_snapshots_that_a_real_process_has_not_read(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        tmp_path.joinpath("go").unlink(missing_ok=True)
        loop, spawner = asyncio.get_running_loop(), Spawner()
        launch = Launch(argv=(sys.executable, "-c", READS_LATE), cwd=tmp_path, env={}, label="late")
        child = await spawner.spawn(launch, 10)
        stream = PipeStream(loop, *child.take_pipes())
        link = Link(Screens(Role.HOST, CODEC), stream, Deadlines(loop))
        assert await link.open(10) is None
        for _ in range(50):
            link.notify(DeliverSnapshot("t", b"x" * MIB))
        for key in ("first key", "second key"):
            link.notify(WriteLog("key", key))
        assert 0 < stream.buffered < 2 * MIB
        tmp_path.joinpath("go").touch()
        await until(lambda: stream.sent > 50 * MIB, seconds=20)
        answer = await link.call(InvokeTool("order", CODEC.dump(0)), 20)
        assert CODEC.load(answer.value) == ["hello", "event", "first key", "second key", *["event"] * 49]
        assert (link.dropped, link.urgent_dropped) == (0, 0)
        link.close()
        await spawner.close()

    run(main)


SCREENS = Traffic(4_096, "newest", (PressKey, UseMouse), max_bytes=64 * MIB)


def event(number: int) -> DeliverEvent:
    return DeliverEvent("t", number)


def snapshot(size: int) -> DeliverSnapshot:
    return DeliverSnapshot("t", b"x" * size)


def key(number: int) -> PressKey:
    return PressKey("s", {"code": {"type": "char", "ch": "k"}}, number)


def mouse(number: int) -> UseMouse:
    return UseMouse("s", {"kind": {"type": "scroll_up"}}, number)


def drained(outbox: Outbox) -> list[object]:
    return [outbox.take() for _ in range(len(outbox))]


def test_operations_come_out_in_the_order_they_went_in() -> None:
    outbox = Outbox(Traffic())
    for number in range(3):
        outbox.offer(event(number))
    assert drained(outbox) == [event(0), event(1), event(2)]
    assert outbox.take() is None


def test_a_full_outbox_drops_the_newest_or_the_oldest_as_the_contract_says() -> None:
    newest, oldest = Outbox(Traffic(2, "newest")), Outbox(Traffic(2, "oldest"))
    for number in range(4):
        newest.offer(event(number))
        oldest.offer(event(number))
    assert (drained(newest), newest.dropped) == ([event(0), event(1)], 2)
    assert (drained(oldest), oldest.dropped) == ([event(2), event(3)], 2)


def test_urgent_operations_overtake_the_others_and_keep_their_own_order() -> None:
    outbox = Outbox(Traffic(urgent=[WriteLog]))
    for op in (event(0), WriteLog("a", "1"), event(1), WriteLog("b", "2")):
        outbox.offer(op)
    assert drained(outbox) == [WriteLog("a", "1"), WriteLog("b", "2"), event(0), event(1)]


@requirement("ainb:host-keys-overtake-events")
def test_keys_go_before_the_mouse_and_the_mouse_before_everything_else() -> None:
    outbox = Outbox(SCREENS)
    for op in (snapshot(1), mouse(0), key(0), snapshot(2), key(1), mouse(1)):
        outbox.offer(op)
    assert drained(outbox) == [key(0), key(1), mouse(0), mouse(1), snapshot(1), snapshot(2)]


@requirement("ainb:host-key-queue")
def test_of_too_many_keys_the_oldest_are_dropped_and_counted_apart() -> None:
    outbox = Outbox(SCREENS)
    for number in range(100):
        outbox.offer(key(number))
    assert (outbox.urgent_dropped, outbox.dropped) == (36, 0)
    assert drained(outbox) == [key(number) for number in range(36, 100)]


def test_no_lane_takes_room_from_another() -> None:
    outbox = Outbox(Traffic(2, "newest", (PressKey, UseMouse), urgent_capacity=2))
    for number in range(5):
        for op in (event(number), mouse(number), key(number)):
            outbox.offer(op)
    assert (outbox.dropped, outbox.urgent_dropped) == (3, 6)
    assert drained(outbox) == [key(3), key(4), mouse(3), mouse(4), event(0), event(1)]


def test_what_could_not_be_sent_is_counted_in_its_own_lane() -> None:
    outbox = Outbox(SCREENS)
    outbox.lost(key(1))
    assert (outbox.dropped, outbox.urgent_dropped) == (0, 1)
    outbox.lost(snapshot(1))
    assert (outbox.dropped, outbox.urgent_dropped) == (1, 1)


def test_the_urgent_ones_can_be_taken_alone() -> None:
    outbox = Outbox(SCREENS)
    for op in (snapshot(1), mouse(0), key(0)):
        outbox.offer(op)
    assert outbox.take_urgent() == [key(0), mouse(0)]
    assert outbox.take_urgent() == []
    assert drained(outbox) == [snapshot(1)]


# Bytes.


def test_a_lane_is_full_when_its_bytes_are_however_few_operations_wait() -> None:
    outbox = Outbox(SCREENS)
    for _ in range(100):
        outbox.offer(snapshot(2 * MIB))
    assert (len(outbox), outbox.dropped) == (31, 69)
    outbox.take()
    outbox.offer(snapshot(2 * MIB))
    assert (len(outbox), outbox.dropped) == (31, 69)


def test_a_lane_without_a_limit_of_bytes_counts_operations_only() -> None:
    outbox = Outbox(Traffic())
    for _ in range(65):
        outbox.offer(snapshot(2 * MIB))
    assert (len(outbox), outbox.dropped) == (64, 1)


def test_small_operations_have_a_weight_too() -> None:
    assert weight(event(1)) == weight(key(1)) == LIGHT
    assert weight(snapshot(10)) == LIGHT + 10
    assert BURST // LIGHT == 32


@pytest.mark.parametrize("drops", ["newest", "oldest"])
def test_an_operation_that_could_never_fit_displaces_no_other(drops: str) -> None:
    lane = Lane(10, drops, 10 * LIGHT)
    lane.offer(event(1))
    lane.offer(snapshot(10 * LIGHT))
    assert (len(lane), lane.dropped, lane.take()) == (1, 1, event(1))


def test_as_many_of_the_oldest_give_way_as_a_large_one_needs() -> None:
    lane = Lane(10, "oldest", 10 * LIGHT)
    for number in range(10):
        lane.offer(event(number))
    lane.offer(snapshot(2 * LIGHT))
    assert (len(lane), lane.dropped) == (8, 3)
    assert [lane.take() for _ in range(8)] == [*(event(number) for number in range(3, 10)), snapshot(2 * LIGHT)]


OPERATIONS = st.one_of(
    st.builds(event, st.integers(0, 9)),
    st.builds(key, st.integers(0, 9)),
    st.builds(mouse, st.integers(0, 9)),
    st.builds(snapshot, st.integers(0, 3 * LIGHT)),
    st.none(),
)


@given(st.lists(OPERATIONS, max_size=60), st.sampled_from(["newest", "oldest"]))
def test_everything_is_sent_or_counted_and_each_lane_keeps_its_order(steps: list[Operation | None], drops: str) -> None:
    """None takes one; an operation is offered."""
    outbox = Outbox(Traffic(6, drops, (PressKey, UseMouse), urgent_capacity=3, max_bytes=8 * LIGHT))
    offered: list[Operation] = []
    taken: list[object] = []
    for step in steps:
        if step is not None:
            outbox.offer(step)
            offered.append(step)
        elif outbox:
            taken.append(outbox.take())
        assert len(outbox) <= 12
        assert sum(weight(op) for op in outbox._plain._ops) == outbox._plain._bytes <= 8 * LIGHT
    taken += drained(outbox)
    assert len(taken) + outbox.dropped + outbox.urgent_dropped == len(offered)
    for kinds in ((PressKey,), (UseMouse,), (DeliverEvent, DeliverSnapshot)):
        went_in = iter([op for op in offered if isinstance(op, kinds)])
        assert all(any(op is before for before in went_in) for op in taken if isinstance(op, kinds))
