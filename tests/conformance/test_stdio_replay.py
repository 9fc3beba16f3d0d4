"""A mock moves its bytes over two descriptors, in time, and ends with its host."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from plugbay.conformance.mock_plugin import MockPlugin
from plugbay.conformance.stdio_replay import serve
from tests.conformance.recordings import call, recording, result, tell
from tests.support.patience import PATIENCE

LARGE = "x" * 300_000
"""More than a pipe takes at once."""


class Served:
    """A mock that is served in a thread, and the host's ends of its pipes."""

    def __init__(self, *lines: Any, **options: Any) -> None:
        self.mock = MockPlugin(recording("kaged", *lines), lambda text: None, **options)
        source, self.write = os.pipe()
        read, sink = os.pipe()
        self.read = os.fdopen(read, "rb")
        self.status: list[int] = []
        self._ends = (source, sink)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self.status.append(serve(self.mock, *self._ends))
        os.close(self._ends[1])

    def send(self, frame: Any) -> None:
        os.write(self.write, json.dumps(frame).encode() + b"\n")

    def line(self) -> Any:
        return json.loads(self.read.readline())

    def left(self) -> int:
        self._thread.join(PATIENCE)
        return self.status[0]


@contextmanager
def served(*lines: Any, **options: Any) -> Iterator[Served]:
    it = Served(*lines, **options)
    yield it
    it.read.close()


def test_it_answers_until_its_input_ends() -> None:
    with served((">", call(1, "a")), ("<", result(1, LARGE))) as it:
        for id in (1, 2):
            it.send(call(id, "a"))
            assert it.line() == result(id, LARGE)
        os.close(it.write)
        assert it.left() == 0 and it.read.read() == b""


def test_what_is_due_later_comes_without_another_word() -> None:
    with served((">", call(1, "a")), ("<", tell("soon")), ("<", result(1, 1)), speed=1.0) as it:
        it.send(call(1, "a"))
        assert [it.line(), it.line()] == [tell("soon"), result(1, 1)]
        os.close(it.write)


def test_it_leaves_as_the_plugin_did() -> None:
    with served((">", call(1, "a")), (".", {"event": "exit", "code": 3, "signal": None})) as it:
        it.send(call(1, "a"))
        assert it.left() == 3
        os.close(it.write)


@pytest.mark.filterwarnings("error")
def test_it_ends_when_nobody_reads_any_more() -> None:
    with served((">", call(1, "a")), ("<", result(1, LARGE))) as it:
        it.read.close()
        it.send(call(1, "a"))
        assert it.left() == 0
        os.close(it.write)
