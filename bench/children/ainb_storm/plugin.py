"""Publishes a data set of 10 MB in chunks of 2 MiB, again and again, as fast as its host reads. Runs on the core
BENCH_CORE.
"""

from __future__ import annotations

import binascii
import os
import threading

import msgspec

HELLO = b'{"jsonrpc":"2.0","id":1,"result":{"name":"ainb_storm","version":"1.0.0","abi_version":2}}'
PUBLISH = b'{"jsonrpc":"2.0","method":"host/snapshot/publish","params":{"topic":"bench.storm","payload":"%b"}}'
ITEM = {"model": "opus", "day": 17, "tokens": 10_600, "session": "0123456789abcdef"}
PIECES, ITEMS = 5, 40_000
"""So many items are about 2 MiB."""


def main() -> None:
    """Answer the greeting, then publish until the input ends."""
    frames = [framed(PUBLISH % binascii.b2a_base64(piece(index), newline=False)) for index in range(PIECES)]
    os.read(0, 65_536)
    threading.Thread(target=leave_at_end, daemon=True).start()
    send(framed(HELLO))
    while True:
        for frame in frames:
            send(frame)


def piece(index: int) -> bytes:
    """One of the five, in the envelope of the contract."""
    envelope = {
        "version": 1,
        "published_ns": 1,
        "partial": False,
        "chunk_index": index,
        "is_final": index == PIECES - 1,
    }
    return msgspec.msgpack.encode({**envelope, "data": {"items": [ITEM] * ITEMS}})


def leave_at_end() -> None:
    """The host shuts down or has exited; no response may interrupt a chunk."""
    os.read(0, 65_536)
    os._exit(0)


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def send(data: bytes) -> None:
    """All of it, however small the pipe's bites."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    if "BENCH_CORE" in os.environ:
        os.sched_setaffinity(0, {int(os.environ["BENCH_CORE"])})
    main()
