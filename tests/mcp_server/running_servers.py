"""A running host with real plugins behind an `McpServer`."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from opentelemetry.trace import Tracer

from plugbay.host.config.config import Config
from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.mcp_server import listing
from plugbay.mcp_server.server import McpServer, QuestionRouter
from tests.mcp_server import everything


def declare(folder: Path, **eras: str) -> Path:
    """A folder with an `.mcp.json` that declares one `everything` server per name, each with its revision."""
    folder.mkdir(parents=True, exist_ok=True)
    program = str(Path(everything.__file__))
    servers = {name: {"command": sys.executable, "args": [program, era]} for name, era in eras.items()}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return folder


@asynccontextmanager
async def running_server(
    folder: Path, tracer: Tracer | None = None, config: Config | None = None, **options: Any
) -> AsyncIterator[tuple[Host, McpServer]]:
    """Serve all plugins in a folder, under short names; fully granted, unless a configuration says otherwise."""
    questions = QuestionRouter()
    state = folder.parent / "state"
    found = discover([folder])
    host = Host(
        found,
        config,
        grant_all=config is None,
        trusted=[item.spec.id for item in found if item.spec],
        state_dir=state,
        questions=questions.ask,
        tracer=tracer,
    )
    async with host, McpServer(host, questions, **{"rule": listing.short_name, **options}) as server:
        yield host, server
