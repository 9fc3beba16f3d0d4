"""Pipes in memory, which tell when they have been read."""

from __future__ import annotations

from threading import Thread

import pytest

from plugbay.sdk.testing.wire import MemoryWire, Pipe


def test_what_is_written_is_read_in_order_and_then_comes_the_end() -> None:
    pipe = Pipe()
    pipe.write(b"one ")
    pipe.write(b"two")
    assert pipe.read() == b"one two"
    pipe.close()
    assert pipe.read() == b""
    with pytest.raises(BrokenPipeError):
        pipe.write(b"three")


def test_a_pipe_is_read_when_its_reader_comes_back_for_more() -> None:
    pipe = Pipe()
    pipe.write(b"one")
    assert not pipe.wait_until_read(0)
    reader = Thread(target=lambda: [pipe.read(), pipe.read()])
    reader.start()
    assert pipe.wait_until_read(5)
    pipe.close()
    reader.join()


def test_to_leave_ends_the_conversation_and_not_the_process() -> None:
    wire = MemoryWire()
    gone: list[str] = []
    with pytest.raises(SystemExit):
        wire.leave(3, lambda: gone.append("workers"))
    assert (wire.status, gone, wire.said.read()) == (3, ["workers"], b"")
    assert not wire.is_heard() and wire.said.wait_until_closed(0)
    with pytest.raises(SystemExit):
        wire.read()


def test_a_wire_without_a_resident_plugin_is_settled_when_it_is_read() -> None:
    wire = MemoryWire()
    assert not wire.settle(0)
    reader = Thread(target=wire.read)
    reader.start()
    assert wire.settle(5)
    wire.heard.close()
    reader.join()
