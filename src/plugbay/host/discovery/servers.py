"""Turns the MCP servers in plugbay.toml into plugins.

Uses the contract's parser, so that a server here and the same server in `.mcp.json` make the same plugin.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from plugbay.contracts.registry import CONTRACTS
from plugbay.host.config.config import FILE_NAME, Config
from plugbay.host.config.references import SECRET
from plugbay.host.config.sections import ServerConfig
from plugbay.host.discovery.folders import Found, check_found, inspect
from plugbay.model.errors import Problem
from plugbay.model.spec import SettingsSpec

CONTRACT = "mcp"


def find_servers(config: Config) -> list[Found]:
    """The MCP servers of this config."""
    return [_server_plugin(name, server, config.folder) for name, server in config.mcp.items()]


def _server_plugin(name: str, server: ServerConfig, folder: Path) -> Found:
    if server.bundle is not None:
        return _bundle_plugin(name, server, Path(server.bundle))
    from plugbay.contracts.mcp.manifest import parse_servers  # only where plugbay.toml has servers

    found = parse_servers(json.dumps({"mcpServers": {name: _entry(server)}}), folder, os.environ)
    _, spec, problems = found[0]
    if spec is not None:
        settings = _client_secret(server) or spec.settings
        spec = replace(spec, env_inherit=(*spec.env_inherit, *server.inherit_env), settings=settings)
    return check_found(folder, CONTRACTS[CONTRACT], name, spec, [_relocate(name, problem) for problem in problems])


def _entry(server: ServerConfig) -> dict[str, Any]:
    """The server as an entry of `.mcp.json`."""
    if server.url is not None:
        return {"url": server.url, "headers": server.headers}
    assert server.command is not None, "validated by ServerConfig"
    program, *args = server.command
    fields = {"command": program, "args": args, "env": server.env, "cwd": server.cwd}
    return {key: value for key, value in fields.items() if value is not None}


def _client_secret(server: ServerConfig) -> SettingsSpec | None:
    """The settings of a server whose OAuth client has a secret. Only a login needs it."""
    secret = None if server.oauth is None else server.oauth.client_secret
    if secret is None or not secret.startswith(SECRET):
        return None
    named = {secret.removeprefix(SECRET): {"type": "string", "minLength": 1}}
    return SettingsSpec(secrets_schema={"type": "object", "properties": named, "required": []})


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
