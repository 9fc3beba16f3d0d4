"""`plugbay mcp serve DIR…`: every plugin in some folders as one MCP server, on stdio or over HTTP.

Owns the words on the command line, and that over stdio nothing but the protocol is ever written to stdout: the wire is
taken before anything else happens. What is served and how is `bridge`'s.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import ephemeral, folders, output, tracing
from plugbay.cli.call import ConfigFile, Grant, GrantAll, NoSandbox, Timeout, load_config
from plugbay.cli.call_view import HumanView
from plugbay.cli.exit_codes import Exit

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.mcp_server.server import McpServer

EXAMPLES = """\
Examples
plugbay mcp serve plugins/
plugbay mcp serve plugins/ --only weather --only 'notes/read_*' --grant network
plugbay mcp serve plugins/ --http 127.0.0.1:8765"""

TOKEN_VARIABLE = "PLUGBAY_MCP_TOKEN"
"""The token of the HTTP server, for those who start it with a secret of their own."""

Where = Annotated[list[Path] | None, typer.Argument(metavar="DIR…", help="Plugins, or folders of plugins.")]
Http = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve over HTTP at /mcp instead of stdio.")]
TokenFile = Annotated[Path | None, typer.Option(metavar="FILE", help=f"The token, instead of {TOKEN_VARIABLE}.")]
AllowHost = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A name this host is reached by; repeatable.")
]
AllowOrigin = Annotated[list[str] | None, typer.Option(metavar="URL", help="A web page's origin; repeatable.")]
Only = Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Serve only PLUGIN or PLUGIN/EXPORT; repeatable.")]
NamesRule = Annotated[
    str,
    typer.Option("--names", metavar="full|short", help="Tools with their plugin's name, as if left out, or without."),
]


def _rule(word: str) -> Callable[[str, str], str]:
    from plugbay.mcp_server.listing import NAMING_RULES

    if word not in NAMING_RULES:
        raise typer.BadParameter(f"it is {' or '.join(NAMING_RULES)}, not {word!r}", param_hint="--names")
    return NAMING_RULES[word]


def serve(
    places: Where = None,
    http: Http = None,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    only: Only = None,
    names: NamesRule = "full",
    timeout: Timeout = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
) -> None:
    """Serve every tool of some plugins as one MCP server: on stdio for the client that starts it, or over HTTP.

    Resources and prompts of MCP servers are served as well. Everything that is said to people goes to stderr.
    """
    from plugbay.mcp_server.stdio import take_wire

    if http is None and os.isatty(0):
        output.note("an MCP client is expected at the other end, and this is a terminal: see plugbay mcp install")
    wire = take_wire() if http is None else None
    rule = _rule(names)
    door = None if http is None else _door(http, token_file, allow_host or [], allow_origin or [])
    found, settings = _find(places or [Path()], config)
    output.note_what_hosts_log()

    from plugbay.mcp_server.questions import QuestionRouter
    from plugbay.mcp_server.server import McpServer

    desk = QuestionRouter()
    options = {"grant_all": grant_all, "unconfined": no_sandbox, "questions": desk.ask}

    async def work(host: Host) -> None:
        async with McpServer(host, desk, rule=rule, only=only or (), timeout=timeout) as bridge:
            _tell(bridge)
            if wire is not None:
                from plugbay.mcp_server import stdio

                await stdio.serve(bridge, wire)
            elif door is not None:
                await door.serve(bridge)

    with tracing.exporting(os.environ, output.note) as tracer:
        host = ephemeral.make(found, settings, grants=grant, eager=True, joins=True, tracer=tracer, **options)
        ephemeral.visit(host, work)


def _find(places: list[Path], config: Path | None) -> tuple[list[Found], Any]:
    """The plugins, and the operator's settings. A broken plugin is told of and left out, as long as one is left."""
    from plugbay.host.discovery.folders import discover

    settings = load_config(config)
    found = discover([place if place.is_file() else ephemeral.check_folder(place) for place in places])
    if not any(item.spec for item in found) and not (settings and settings.mcp):
        ephemeral.found_in(places[0])  # says what is wrong
    there = [item for item in found if not folders.is_absent(item)]
    HumanView().warned(there, ())
    return there, settings


def _tell(bridge: McpServer) -> None:
    """What is served, and what is not and why."""
    offer = bridge.listing.offer
    counted = [output.count(len(offer["tools"]), "tool")]
    for part, noun in (("resources", "resource"), ("resource_templates", "template"), ("prompts", "prompt")):
        if offer[part]:
            counted.append(output.count(len(offer[part]), noun))
    output.err().line("serving ", (", ".join(counted), output.NAME))
    for plugin_id, refusal in bridge.refused_plugins().items():
        hint = refusal.detail.get("hint", "")
        output.note(f"{plugin_id} is left out: {refusal.message}{f'; {hint}' if hint else ''}")


def _door(http: str, token_file: Path | None, hosts: list[str], origins: list[str]) -> Any:
    """The HTTP server, not open yet; says what is missing to have one."""
    try:
        from plugbay.mcp_server.http_server import HttpServer, NotAllowed
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "uvicorn":
            raise
        output.problem("serving over HTTP needs uvicorn, which is not installed", hint="pip install 'plugbay[serve]'")
        raise typer.Exit(Exit.FAILURE) from None
    try:
        return HttpServer(http, _token(token_file), hosts, origins, say=output.err().line)
    except NotAllowed as error:
        raise typer.BadParameter(str(error)) from None


def _token(file: Path | None) -> str | None:
    """The token somebody chose; None: one is made up."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    token = file.read_text(encoding="utf-8").strip()
    if not token:
        raise typer.BadParameter(f"{file} is empty")
    return token
