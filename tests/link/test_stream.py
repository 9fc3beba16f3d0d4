"""The real stream over real pipes: partial writes, end of input, a peer that is gone."""

from __future__ import annotations

import asyncio
import os

from plugbay.link.stream import PipeStream
from tests.support.loops import Run, until


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
