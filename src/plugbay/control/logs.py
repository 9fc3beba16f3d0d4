"""How a server logs: one line for each thing that happens, as JSON for machines and with colours for a terminal.

Owns the form. What is logged says so itself; secrets are never given to a logger.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import structlog

QUIET = ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic", "aiosqlite", "asyncio")
"""Libraries that are heard only when something is wrong."""


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
    before: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    shown: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        shown += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        shown += [structlog.dev.ConsoleRenderer(colors=colours)]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=shown)
