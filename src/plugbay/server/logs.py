"""Log format of a server: one line per record, JSON for machines, coloured text on a terminal. Never log secrets."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

QUIET = ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic", "aiosqlite", "asyncio")
"""Libraries that log warnings and errors only."""

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}
"""Standard attributes of a log record."""

_ENCODER = json.JSONEncoder(default=repr)
"""Encodes any value."""

_FAST_ENCODER = msgspec.json.Encoder(enc_hook=repr)
"""Ten times as fast; refuses lone surrogates and keys that are not text, and does not escape other than ASCII."""


def configure(*, as_json: bool | None = None, level: int = logging.INFO) -> None:
    """Log to stderr; as JSON unless stderr is a terminal; `as_json` overrides that."""
    plain = as_json if as_json is not None else not sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(plain))
    # The lines have neither the source line nor the thread; to find them takes as long as to format the line.
    logging._srcfile = None  # as the documentation of logging advises
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def formatter(as_json: bool) -> logging.Formatter:
    """The formatter for all loggers of the standard library."""
    if as_json:
        return JsonFormatter()
    import structlog  # and with it rich: a tenth of a second that only a terminal needs

    before: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    console = structlog.dev.ConsoleRenderer(colors=colours)
    without = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=[without, console])


class JsonFormatter(logging.Formatter):
    """One JSON object per line. Used for every request; structlog takes three times as long."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        fields["event"] = record.getMessage()
        fields["level"] = record.levelname.lower()
        fields["logger"] = record.name
        fields["timestamp"] = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _encode(fields)


def _encode(fields: dict[str, Any]) -> str:
    """One line of ASCII."""
    try:
        line = _FAST_ENCODER.encode(fields)
    except Exception:  # the other encoder takes it, or says why not
        return _ENCODER.encode(fields)
    return line.decode() if line.isascii() else _ENCODER.encode(fields)
