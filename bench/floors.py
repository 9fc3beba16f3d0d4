"""The two floors of `link`: a blocking host on a pipe, once with bytes and once with JSON.

They share only the children with plugbay, so they show the limit of the machine. Reads are 64 KiB: larger ones cross
glibc's mmap threshold and triple the floor.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from bench.harness import CHILDREN, PAYLOAD, Sample, Stopwatch, apart, percentile, started

READ_SIZE = 65_536
IN_FLIGHT = 64


class Peer(msgspec.Struct):
    """A blocking conversation: make the bytes of the next call, send bytes, receive some answers."""

    request: Callable[[], bytes]
    send: Callable[[bytes], None]
    receive: Callable[[], int]
    """Waits for at least one answer; how many came, all of them decoded."""


def raw_pipe(params: dict[str, Any]) -> Sample:
    """Bytes there and back."""
    line = PAYLOAD.encode() + b"\n"
    with started([sys.executable, "-I", "-S", str(CHILDREN / "raw_child.py"), *apart()]) as child:
        assert child.stdin is not None and child.stdout is not None
        writer, reader = child.stdin.fileno(), child.stdout.fileno()
        received = 0

        def receive() -> int:
            nonlocal received
            before = received // len(line)
            received += len(os.read(reader, READ_SIZE))
            return received // len(line) - before

        return _measure(Peer(lambda: line, lambda data: write(writer, data), receive), params)


def json_pipe(params: dict[str, Any]) -> Sample:
    """A JSON-RPC round trip: Python values in and out, without checks."""
    with started([sys.executable, str(CHILDREN / "fast_child.py"), *apart()]) as child:
        assert child.stdin is not None and child.stdout is not None
        writer, reader = child.stdin.fileno(), child.stdout.fileno()
        write(writer, b'{"jsonrpc":"2.0","method":"hello","params":{}}\n')
        assert b"hello" in os.read(reader, READ_SIZE)
        return _measure(_json_peer(writer, reader), params)


class Call(msgspec.Struct):
    """The request of the JSON floor."""

    id: int
    params: dict[str, Any]
    method: str = "call"
    jsonrpc: str = "2.0"


class Answer(msgspec.Struct):
    """Its answer, with the result as a Python value."""

    id: int
    result: dict[str, Any]


def _json_peer(writer: int, reader: int) -> Peer:
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(Answer).decode
    number, rest = 0, b""

    def request() -> bytes:
        nonlocal number
        number += 1
        return encode(Call(number, {"tool": "echo", "input": {"text": PAYLOAD}})) + b"\n"

    def receive() -> int:
        nonlocal rest
        *lines, rest = (rest + os.read(reader, READ_SIZE)).split(b"\n")
        for line in lines:
            assert decode(line).result["text"]
        return len(lines)

    return Peer(request, lambda data: write(writer, data), receive)


def write(fd: int, data: bytes) -> None:
    """All of it, however small the pipe's bites."""
    while data:
        data = data[os.write(fd, data) :]


def _measure(peer: Peer, params: dict[str, Any]) -> Sample:
    _sequential(peer, params["calls"] // 10)
    watch = Stopwatch()
    times = sorted(_sequential(peer, params["calls"]))
    sample = {
        "p50_us": percentile(times, 0.5),
        "p99_us": percentile(times, 0.99),
        "cpu_us": watch.cpu_us(params["calls"]),
    }
    _windowed(peer, params["burst"] // 10)
    watch = Stopwatch()
    _windowed(peer, params["burst"])
    return sample | {
        "calls_per_s": watch.per_second(params["burst"]),
        "burst_cpu_us": watch.cpu_us(params["burst"]),
    }


def _sequential(peer: Peer, calls: int) -> list[float]:
    """One call at a time; microseconds of each."""
    request, send, receive, clock = peer.request, peer.send, peer.receive, time.perf_counter_ns
    times = []
    for _ in range(calls):
        began = clock()
        send(request())
        while not receive():
            pass
        times.append((clock() - began) / 1e3)
    return times


def _windowed(peer: Peer, calls: int) -> None:
    """Always `IN_FLIGHT` calls unanswered; as many new ones go out, in one write, as answers came in."""
    unsent, unanswered = calls, calls
    room = IN_FLIGHT
    while unanswered:
        fresh = min(room, unsent)
        peer.send(b"".join([peer.request() for _ in range(fresh)]))
        unsent -= fresh
        room = peer.receive()
        unanswered -= room
