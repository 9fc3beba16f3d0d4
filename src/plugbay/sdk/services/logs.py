"""`ctx.log`: lines for the host's log, each with a level; on stderr where a contract has no word for them.

Hosts keep what a plugin writes on stderr, so nothing is lost either way. Refuses to know where a host shows its log and
which levels it keeps.
"""

from __future__ import annotations

from plugbay.model.operations import WriteLog
from plugbay.sdk.errors import ServiceError
from plugbay.sdk.io.stdio import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.sdk.services.host_client import Line


class Log:
    """`ctx.log("text")`, or with a level: `ctx.log.warn("text", path=path)`. Keywords are the line's fields."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def __call__(self, *parts: object, **fields: Any) -> None:
        self._write("info", parts, fields)

    def trace(self, *parts: object, **fields: Any) -> None:
        self._write("trace", parts, fields)

    def debug(self, *parts: object, **fields: Any) -> None:
        self._write("debug", parts, fields)

    def info(self, *parts: object, **fields: Any) -> None:
        self._write("info", parts, fields)

    def warn(self, *parts: object, **fields: Any) -> None:
        self._write("warn", parts, fields)

    warning = warn

    def error(self, *parts: object, **fields: Any) -> None:
        self._write("error", parts, fields)

    def _write(self, level: str, parts: tuple[object, ...], fields: dict[str, Any]) -> None:
        text = " ".join(str(part) for part in parts)
        try:
            self._line.tell(WriteLog(level, text, fields or None))
        except ServiceError:  # it has no log, or cannot be sent these fields
            note(_on_one_line(level, text, fields))


def _on_one_line(level: str, text: str, fields: dict[str, Any]) -> str:
    """The everyday level needs no word."""
    named = "".join(f" {key}={value!r}" for key, value in fields.items())
    return f"{text}{named}" if level == "info" else f"{level}: {text}{named}"
