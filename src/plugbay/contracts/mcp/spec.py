"""The facts that every MCP server shares as a plugin, wherever it was declared.

Owns the names of its manifests, its lifetime, its timeouts and its optional capabilities.
"""

from __future__ import annotations

from pathlib import Path

from plugbay.model.spec import Export, Lifetime, PluginSpec, SettingsSpec, Timeouts

FILE_NAME = ".mcp.json"
BUNDLE_FILE_NAME = "manifest.json"

TIMEOUTS = Timeouts(handshake=30.0, call=60.0, teardown=2.0, term=2.0, kill=2.0)
"""Half a minute to greet and list: many servers are fetched from a registry when they start. Then the contract's way
out: its input closes, two seconds later comes SIGTERM, two seconds later SIGKILL."""

IDLE_SECONDS = 600.0
"""A server without calls for this long is stopped; the next call starts it again."""

OPTIONAL = ("sampling", "elicitation", "roots")
"""Requests that a server may send once the operator has granted them."""

USUAL_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LOGNAME", "USER", "SHELL", "TERM")
"""Variables of the host that usual clients pass to a server, and that its interpreter needs."""

UNKNOWN_VERSION = "0"
"""The version is known only after the greeting."""


def resident(
    id: str,
    command: tuple[str, ...],
    root: Path,
    *,
    version: str = UNKNOWN_VERSION,
    name: str = "",
    description: str = "",
    env: tuple[tuple[str, str], ...] = (),
    cwd: Path | None = None,
    exports: tuple[Export, ...] = (),
    settings: SettingsSpec | None = None,
) -> PluginSpec:
    """A server as a plugin: started with its first call, stopped when idle."""
    return PluginSpec(
        id=id,
        version=version,
        contract="mcp",
        root=root,
        command=command,
        name=name or id,
        description=description,
        cwd=cwd,
        env=env,
        env_inherit=USUAL_VARIABLES,
        lifetime=Lifetime.RESIDENT,
        exports=exports,
        optional_capabilities=OPTIONAL,
        timeouts=TIMEOUTS,
        idle_seconds=IDLE_SECONDS,
        settings=settings or SettingsSpec(),
    )
