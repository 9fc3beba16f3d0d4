"""How a server logs: one line for each thing that happens, as JSON for machines and with colours for a terminal.

Owns the form. What is logged says so itself; secrets are never given to a logger.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

import structlog

QUIET = ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic", "aiosqlite", "asyncio")
"""Libraries that are heard only when something is wrong."""

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}
"""What every record has, beside what it was told."""

_ENCODER = json.JSONEncoder(default=repr)
"""Takes anything, also text that is none."""


def configure(*, as_json: bool | None = None, level: int = logging.INFO) -> None:
    """Log to stderr from now on; as JSON unless that is a terminal, or as told."""
    plain = as_json if as_json is not None else not sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(plain))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def formatter(as_json: bool) -> logging.Formatter:
    """Makes a line of what any logger of the standard library is told."""
    if as_json:
        return Lines()
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


class Lines(logging.Formatter):
    """Each record as one JSON object on a line. There is one for every request; structlog takes three times as long."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {name: value for name, value in vars(record).items() if name not in _USUAL}
        said["event"] = record.getMessage()
        said["level"] = record.levelname.lower()
        said["logger"] = record.name
        said["timestamp"] = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return _ENCODER.encode(said)
