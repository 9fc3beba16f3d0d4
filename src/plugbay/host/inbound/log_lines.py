"""`LogDesk`: the lines one process of a plugin wants in the host's log, those that matter and not too many.

Owns what a line looks like, which levels are kept and how fast lines may come. Where they are kept is the journal's
business.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from plugbay.host.journal import LEVELS, OWN_LINE
from plugbay.host.rate import Bucket
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable

if TYPE_CHECKING:
    from plugbay.model.operations import WriteLog

LINES_PER_SECOND = 200.0
LINE_BURST = 1000.0
"""Lines of one process; what comes faster is counted and dropped."""

_CODEC = MsgspecCodec()


class Write(Protocol):
    """Keeps one line."""

    def __call__(self, kind: str, text: str, *, level: str) -> object: ...


class LogDesk:
    """The log as one process sees it."""

    def __init__(self, level: str, write: Write, clock: Callable[[], float] = time.monotonic) -> None:
        self._lowest = LEVELS.index(level)
        self._write = write
        self._clock = clock
        self._bucket = Bucket(LINES_PER_SECOND, LINE_BURST)

    def write(self, op: WriteLog) -> None:
        """Keep a line, unless its level is too low or there are too many. A level nobody knows is `info`."""
        level = op.level if op.level in LEVELS else "info"
        if LEVELS.index(level) < self._lowest:
            return
        if not self._bucket.take(self._clock()):
            self._write("log_dropped", f"more than {LINES_PER_SECOND:g} lines a second", level="warn")
            return
        self._write(f"{OWN_LINE}{level}", op.message + _shown(op.fields), level=level)


def _shown(fields: Any) -> str:
    """What a line says beside its text, as JSON; nothing when it is nothing."""
    if fields is None or fields == {} or fields == []:
        return ""
    try:
        raw = fields if isinstance(fields, msgspec.Raw) else _CODEC.dump(fields)
    except Unencodable:
        return ""
    return " " + bytes(raw).decode("utf-8", "backslashreplace")
