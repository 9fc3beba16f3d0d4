"""`plugbay start|stop|restart|reload ID`, `grant|revoke ID CAP…`: what an operator has a running server do to a plugin.

Owns the words on the command line and the line that says what came of it.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plugbay.cli import output, remote
from plugbay.cli.remote import Server, TokenFile

Id = Annotated[str, typer.Argument(metavar="ID", help="The plugin's id.")]
Capabilities = Annotated[list[str], typer.Argument(metavar="CAP…", help="Capabilities that it asks for.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the plugin as JSON.")]


def start(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Start a plugin of the running server that was stopped, or that was given up."""
    _operate("start", plugin, None, server, token_file, as_json)


def stop(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """End a plugin of the running server; calls to it fail until it is started."""
    _operate("stop", plugin, None, server, token_file, as_json)


def restart(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """End a plugin of the running server at once, and start it afresh."""
    _operate("restart", plugin, None, server, token_file, as_json)


def reload(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Start a plugin of the running server afresh, after the calls that run have come to their end."""
    _operate("reload", plugin, None, server, token_file, as_json)


def grant(
    plugin: Id,
    capabilities: Capabilities,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a plugin of the running server have what it asks for, for good: its plugbay.toml keeps it."""
    _operate("grant", plugin, {"capabilities": capabilities}, server, token_file, as_json)


def revoke(
    plugin: Id,
    capabilities: Capabilities,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Take away from a plugin of the running server what plugbay.toml grants it."""
    _operate("revoke", plugin, {"capabilities": capabilities}, server, token_file, as_json)


def _operate(operation: str, plugin: str, body: Any, server: Any, token_file: Any, as_json: bool) -> None:
    done = remote.find(server, token_file, quiet=as_json).post(remote.plugin_path(plugin, f":{operation}"), body)
    if as_json:
        output.print_json(done)
        return
    granted = ", ".join(done["granted"]) or "nothing"
    said = f" is {done['state']}{output.DOT}granted {granted}"
    output.err().line((output.OK, output.GOOD_STYLE), " ", (done["id"], output.NAME), said)
    if done["refused"]:
        output.note(f"{done['id']}: {done['refused']}")
