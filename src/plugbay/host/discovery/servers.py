"""Turns the MCP servers in plugbay.toml into plugins.

Uses the contract's parser, so that a command here and the same command in `.mcp.json` make the same plugin.
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
from plugbay.host.discovery.folders import Found, check_found, inspect
from plugbay.model.errors import Problem

CONTRACT = "mcp"


def find_servers(config: Config) -> list[Found]:
    """The MCP servers of this config."""
    return [_server_plugin(name, server, config.folder) for name, server in config.mcp.items()]


def _server_plugin(name: str, server: ServerConfig, folder: Path) -> Found:
    if server.bundle is not None:
        return _bundle_plugin(name, server, Path(server.bundle))
    assert server.command is not None, "validated by ServerConfig"
    program, *args = server.command
    fields = {"command": program, "args": args, "env": server.env, "cwd": server.cwd}
    entry = {key: value for key, value in fields.items() if value is not None}
    found = parse_servers(json.dumps({"mcpServers": {name: entry}}), folder, os.environ)
    _, spec, problems = found[0]
    if spec is not None:
        spec = replace(spec, env_inherit=(*spec.env_inherit, *server.inherit_env))
    return check_found(folder, CONTRACTS[CONTRACT], name, spec, [_relocate(name, problem) for problem in problems])


def _bundle_plugin(name: str, server: ServerConfig, folder: Path) -> Found:
    found = inspect(folder, CONTRACT)
    if found.spec is None:
        return replace(found, entry=name)
    spec = replace(found.spec, id=name, env_inherit=(*found.spec.env_inherit, *server.inherit_env))
    return replace(found, spec=spec, entry=name)


def _relocate(name: str, problem: Problem) -> Problem:
    """A problem of the generated entry as a problem of the section; its line number would be meaningless."""
    _, _, rest = problem.path.partition(name)
    text = f"{FILE_NAME}: {problem.message}"
    return Problem(problem.code, f"{CONTRACT}.{name}{rest}", text, severity=problem.severity)
