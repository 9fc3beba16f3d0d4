"""MCP servers that plugbay.toml declares, as plugins like those that are found in folders.

Owns how a section of the file becomes a plugin. What a server's entry means is the contract's to say, so a command here
and a command in `.mcp.json` make the same plugin.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from plugbay.contracts.mcp.manifest import parse_servers
from plugbay.contracts.registry import CONTRACTS
from plugbay.host.config.config import FILE_NAME, Config
from plugbay.host.config.sections import ServerConfig
from plugbay.host.discovery.folders import Found, inspect, judged
from plugbay.model.errors import Problem

CONTRACT = "mcp"


def declared(config: Config) -> list[Found]:
    """The servers of this configuration."""
    return [_declared(name, server, config.folder) for name, server in config.mcp.items()]


def _declared(name: str, server: ServerConfig, folder: Path) -> Found:
    if server.bundle is not None:
        return _bundled(name, server, Path(server.bundle))
    assert server.command is not None, "the file's reader has seen to it"
    program, *args = server.command
    said = {"command": program, "args": args, "env": server.env, "cwd": server.cwd}
    entry = {key: value for key, value in said.items() if value is not None}
    found = parse_servers(json.dumps({"mcpServers": {name: entry}}), folder, os.environ)
    _, spec, problems = found[0]
    if spec is not None:
        spec = replace(spec, env_inherit=(*spec.env_inherit, *server.inherit_env))
    return judged(folder, CONTRACTS[CONTRACT], name, spec, [_here(name, problem) for problem in problems])


def _bundled(name: str, server: ServerConfig, folder: Path) -> Found:
    found = inspect(folder, CONTRACT)
    if found.spec is None:
        return replace(found, entry=name)
    spec = replace(found.spec, id=name, env_inherit=(*found.spec.env_inherit, *server.inherit_env))
    return replace(found, spec=spec, entry=name)


def _here(name: str, problem: Problem) -> Problem:
    """A problem of the entry as one of the section: its line is that of a text nobody has seen."""
    _, _, rest = problem.path.partition(name)
    text = f"{FILE_NAME}: {problem.message}"
    return Problem(problem.code, f"{CONTRACT}.{name}{rest}", text, severity=problem.severity)
