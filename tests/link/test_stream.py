"""The real stream over real pipes: partial writes, end of input, a peer that is gone."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from plugbay.link import stream
from plugbay.link.stream import FINAL_SECONDS, MOMENT, READ_SIZE, SMALLEST_READ, PipeStream, Tap
from tests.link.test_link import Pair
from tests.support.loops import Run
from tests.support.patience import until


class Ear:
    def __init__(self) -> None:
        self.heard = bytearray()
        self.ended = 0
        self.drained = 0

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def eof_received(self) -> None:
        self.ended += 1

    def write_drained(self) -> None:
        self.drained += 1


class Pipes:
    """A stream, and the two ends a child would hold."""

    def __init__(self) -> None:
        self.from_child, self.child_out = os.pipe2(os.O_CLOEXEC)
        self.child_in, self.to_child = os.pipe2(os.O_CLOEXEC)
        for fd in (self.from_child, self.to_child):
            os.set_blocking(fd, False)
        self.stream = PipeStream(asyncio.get_running_loop(), self.from_child, self.to_child)
        self.ear = Ear()

    async def take(self, size: int) -> bytes:
        """What the child would read: exactly `size` bytes, or fewer at the end of its input."""
        os.set_blocking(self.child_in, False)
        received = bytearray()
        while len(received) < size:
            try:
                data = os.read(self.child_in, 65_536)
            except BlockingIOError:
                await asyncio.sleep(0)
                continue
            if not data:
                break
            received += data
        return bytes(received)

    def close(self) -> None:
        self.stream.close()
        for fd in (self.child_out, self.child_in):
            try:
                os.close(fd)
            except OSError:
                pass


def test_bytes_travel_both_ways_and_the_end_is_told_once(run: Run) -> None:
    async def main() -> None:
        pipes = Pipes()
        pipes.stream.open(pipes.ear)
        os.write(pipes.child_out, b"hello")
        await until(lambda: pipes.ear.heard == b"hello")
        pipes.stream.write(b"answer")
        assert os.read(pipes.child_in, 100) == b"answer"
        assert (pipes.stream.sent, pipes.stream.buffered) == (6, 0)
        os.close(pipes.child_out)
        await until(lambda: pipes.ear.ended == 1)
        pipes.close()

    run(main)


def test_what_the_pipe_does_not_take_waits_and_arrives_whole_and_in_order(run: Run) -> None:
    async def main() -> None:
        pipes = Pipes()
        pipes.stream.open(pipes.ear)
        payload = bytes(range(256)) * 2048
        pipes.stream.write(payload)
        pipes.stream.write(b"tail")
        assert pipes.stream.buffered > 0
        assert await pipes.take(len(payload) + 4) == payload + b"tail"
        await until(lambda: pipes.ear.drained == 1)
        assert pipes.stream.sent == len(payload) + 4
        pipes.close()

    run(main)


def test_closing_the_write_side_waits_for_what_is_buffered(run: Run) -> None:
    async def main() -> None:
        pipes = Pipes()
        pipes.stream.open(pipes.ear)
        pipes.stream.write(b"x" * 200_000)
        pipes.stream.close_write()
        pipes.stream.write(b"never sent")
        assert len(await pipes.take(300_000)) == 200_000
        pipes.close()

    run(main)


def test_a_peer_that_closed_its_input_costs_nothing_but_the_bytes(run: Run) -> None:
    async def main() -> None:
        pipes = Pipes()
        pipes.stream.open(pipes.ear)
        os.close(pipes.child_in)
        pipes.stream.write(b"lost")
        pipes.stream.write(b"lost")
        assert pipes.stream.buffered == 0
        os.write(pipes.child_out, b"still heard")
        await until(lambda: pipes.ear.heard == b"still heard")
        pipes.close()

    run(main)


def test_reading_what_is_available_takes_everything_a_dead_peer_left_although_the_pipe_is_held_open(
    run: Run,
) -> None:
    async def main() -> None:
        pipes = Pipes()
        pipes.stream.open(pipes.ear)
        os.set_blocking(pipes.child_out, False)
        written = os.write(pipes.child_out, b"y" * 65_536)
        pipes.stream.read_available()
        assert len(pipes.ear.heard) == written
        assert pipes.ear.ended == 0
        pipes.close()

    run(main)


class SlowEar(Ear):
    """Takes so long over each piece, on a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.takes = 0.0
        self.sizes: list[int] = []

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.sizes.append(len(data))
        self.now += self.takes


def test_a_slow_listener_gets_smaller_reads_until_it_is_fast_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        pipes, ear = Pipes(), SlowEar()
        monkeypatch.setattr(stream, "monotonic", lambda: ear.now)
        pipes.stream.open(ear)
        flood = b"y" * READ_SIZE

        async def hear() -> list[int]:
            ear.sizes.clear()
            ear.heard.clear()
            os.write(pipes.child_out, flood)
            await until(lambda: len(ear.heard) == len(flood))
            return ear.sizes[:]

        assert await hear() == [READ_SIZE]
        ear.takes = 2 * MOMENT
        assert await hear() == [READ_SIZE], "nobody knows before"
        sizes = await hear()
        assert sizes[:3] == [READ_SIZE // 2, READ_SIZE // 4, READ_SIZE // 8]
        assert (await hear())[0] == SMALLEST_READ
        ear.takes = MOMENT / 2
        assert set(await hear()) == {SMALLEST_READ}, "long enough"
        ear.takes = 0.0
        assert (await hear())[:3] == [SMALLEST_READ, 2 * SMALLEST_READ, 4 * SMALLEST_READ]
        await hear()
        assert await hear() == [READ_SIZE]
        pipes.close()

    run(main)


def test_the_last_words_of_a_flood_are_heard_for_a_while_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        pipes, ear = Pipes(), SlowEar()
        monkeypatch.setattr(stream, "thread_time", lambda: ear.now)
        monkeypatch.setattr(stream, "READ_SIZE", 1000)
        pipes.stream.open(ear)
        os.write(pipes.child_out, b"y" * 10_000)
        ear.takes = FINAL_SECONDS / 2
        pipes.stream.read_available()
        assert len(ear.heard) == 3000
        ear.takes = 0.0
        pipes.stream.read_available()
        assert len(ear.heard) == 10_000
        pipes.close()

    run(main)


def test_a_paused_stream_pushes_back_and_a_closed_one_leaves_no_descriptor(run: Run) -> None:
    async def main() -> None:
        before = len(os.listdir("/proc/self/fd"))
        pipes = Pipes()
        pipes.stream.open(pipes.ear)
        pipes.stream.pause()
        os.write(pipes.child_out, b"unheard")
        await asyncio.sleep(0.02)
        assert pipes.ear.heard == b""
        pipes.close()
        pipes.stream.close()
        assert len(os.listdir("/proc/self/fd")) == before

    run(main)


class Seen:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.out = b""
        self.back = b""
        self.pending: list[int] = []

    def sent(self, data: bytes) -> None:
        self.out += data

    def received(self, data: bytes, pending: int) -> None:
        self.back += data
        self.pending.append(pending)


_: type[Tap] = Seen


def test_a_tap_is_shown_every_byte_each_way(run: Run) -> None:
    async def main() -> None:
        pair = Pair()
        seen = Seen()
        pair.host.tap(seen)
        await pair.open()
        assert await pair.ask("tea") == "tea"
        out, back = ([json.loads(line) for line in data.splitlines()] for data in (seen.out, seen.back))
        assert [len(out), len(back)] == [2, 2]
        assert '"tea"' in seen.out.decode() and '"tea"' in seen.back.decode()
        assert seen.pending == [0, 0]

    run(main)


def test_what_one_end_writes_is_what_the_other_reads(run: Run) -> None:
    async def main() -> None:
        pair = Pair()
        host, plugin = Seen(), Seen()
        pair.host.tap(host)
        pair.plugin.tap(plugin)
        await pair.open()
        assert await pair.ask("x" * 200_000) == "x" * 200_000  # more than a pipe takes at once
        assert host.out == plugin.back and plugin.out == host.back
        assert any(plugin.pending)

    run(main)


def test_a_link_can_be_tapped_later_and_let_go_again(run: Run) -> None:
    async def main() -> None:
        pair = await Pair().open()
        await pair.ask("before")
        seen = Seen()
        pair.host.tap(seen)
        await pair.ask("during")
        pair.host.tap(None)
        await pair.ask("after")
        told = (seen.out + seen.back).decode()
        assert "during" in told and "before" not in told and "after" not in told

    run(main)
