"""Log lines: `notifications/message` into lines of the host's log, and back.

Owns what becomes of a logger's name and of data that is no text: both stay in the line's fields, and are put back when
the line is sent on. Refuses to know who may hear it.
"""

from __future__ import annotations

from plugbay.contracts.mcp.messages import LEVELS
from plugbay.model.operations import WriteLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_OTHER_WORDS = {"trace": "debug", "warn": "warning"}
"""Levels of other contracts in MCP's words."""

KEYS = frozenset({"logger", "data"})
"""The fields that hold what MCP says beyond a level and a text."""


def heard(params: dict[str, Any], encode: Callable[[Any], bytes]) -> WriteLog | str:
    """The line in a `notifications/message`, or what is wrong with it. A level that is none is `info`."""
    level, logger, data = params.get("level"), params.get("logger"), params.get("data")
    if "data" not in params:
        return "a log message needs data"
    fields: dict[str, Any] = {}
    if isinstance(logger, str):
        fields["logger"] = logger
    if not isinstance(data, str):
        fields["data"] = data
    known = level if isinstance(level, str) and level in LEVELS else "info"
    return WriteLog(known, _text(data, encode), fields or None)


def _text(data: Any, encode: Callable[[Any], bytes]) -> str:
    if isinstance(data, str):
        return data
    message = data.get("message") if isinstance(data, dict) else None
    return message if isinstance(message, str) else encode(data).decode()


def said(op: WriteLog) -> dict[str, Any]:
    """The parameters of the `notifications/message` that carries a line."""
    level = _OTHER_WORDS.get(op.level, op.level)
    line = {"level": level if level in LEVELS else "info", "data": op.message}
    fields = op.fields if isinstance(op.fields, dict) else {}
    if KEYS.issuperset(fields):
        return {**line, **fields}
    return {**line, "data": {"message": op.message, **fields}}


def is_wanted(level: str, lowest: str) -> bool:
    """Whether a line of this level is to be heard by who wants `lowest` and above."""
    return LEVELS.index(level) >= LEVELS.index(lowest)
