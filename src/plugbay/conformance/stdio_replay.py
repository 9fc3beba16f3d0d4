"""Moves the bytes for a `MockPlugin`: what the host writes in, what the plugin would say out.

Owns two descriptors and the clock, and nothing else. Blocks, without a loop or a thread: a mock starts as often as the
plugin it stands for.
"""

from __future__ import annotations

import os
import select
import time

from plugbay.conformance.mock_plugin import MockPlugin

READ_SIZE = 65_536
"""One pipe's worth."""


def serve(mock: MockPlugin, source: int = 0, sink: int = 1) -> int:
    """Play until the host has nothing more to say; the status to leave with."""
    mock.start(time.monotonic())
    while _send(mock.outgoing(), sink) and mock.left is None:
        wait = None if mock.due is None else max(0.0, mock.due - time.monotonic())
        if select.select([source], [], [], wait)[0]:
            data = os.read(source, READ_SIZE)
            if not data:
                break
            mock.feed(data, time.monotonic())
        mock.tick(time.monotonic())
    return mock.left or 0


def _send(data: bytes, sink: int) -> bool:
    """False when nobody reads any more."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(sink, view) :]
    except BrokenPipeError:
        return False
    return True
