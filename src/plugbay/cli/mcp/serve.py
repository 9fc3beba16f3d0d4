"""`plugbay mcp serve DIR…`: every plugin in some folders as one MCP server, on stdio or over HTTP.

Over stdio only protocol messages may go to stdout, so `take_wire` must run before anything can print. The package
`plugbay.mcp_server` implements the server.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, lookup, tracing
from plugbay.cli.call import ConfigFile, Grant, GrantAll, NoSandbox, Timeout, load_config
from plugbay.cli.exit_codes import Exit
from plugbay.cli.render import output
from plugbay.cli.render.call_view import HumanView

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
"""Environment variable with the token of the HTTP server; without one, a token is generated."""

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


def _naming_rule(word: str) -> Callable[[str, str], str]:
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
    rule = _naming_rule(names)
    http_server = None if http is None else _make_http_server(http, token_file, allow_host or [], allow_origin or [])
    found, settings = _find(places or [Path()], config)
    output.show_host_log()

    from plugbay.mcp_server.server import McpServer, QuestionRouter

    router = QuestionRouter()
    options = {"grant_all": grant_all, "unconfined": no_sandbox, "questions": router.ask}

    async def work(host: Host) -> None:
        async with McpServer(host, router, rule=rule, only=only or (), timeout=timeout) as server:
            _show_served(server)
            if wire is not None:
                from plugbay.mcp_server import stdio

                await stdio.serve(server, wire)
            elif http_server is not None:
                await http_server.serve(server)

    with tracing.export_traces(os.environ, output.note) as tracer:
        host = local_host.make_host(found, settings, grants=grant, eager=True, joins=True, tracer=tracer, **options)
        local_host.run_with(host, work)


def _find(places: list[Path], config: Path | None) -> tuple[list[Found], Any]:
    """The plugins and the operator's settings. Broken plugins are reported and left out; at least one must work."""
    from plugbay.host.discovery.folders import discover

    settings = load_config(config)
    found = discover([place if place.is_file() else local_host.check_folder(place) for place in places])
    if not any(item.spec for item in found) and not (settings and settings.mcp):
        local_host.discover_in(places[0])  # raises `Refusal` with the reason
    there = [item for item in found if not lookup.is_absent(item)]
    HumanView().show_warnings(there, ())
    return there, settings


def _show_served(server: McpServer) -> None:
    """Print what is served, and which plugins are left out and why."""
    offer = server.listing.offer
    counted = [output.count(len(offer["tools"]), "tool")]
    for part, noun in (("resources", "resource"), ("resource_templates", "template"), ("prompts", "prompt")):
        if offer[part]:
            counted.append(output.count(len(offer[part]), noun))
    output.err().line("serving ", (", ".join(counted), output.NAME))
    for plugin_id, refusal in server.refused_plugins().items():
        hint = refusal.detail.get("hint", "")
        output.note(f"{plugin_id} is left out: {refusal.message}{f'; {hint}' if hint else ''}")


def _make_http_server(http: str, token_file: Path | None, hosts: list[str], origins: list[str]) -> Any:
    """The HTTP server, not yet listening; exits with a hint when uvicorn is missing."""
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
    """The configured token; None when one is to be generated."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    token = file.read_text(encoding="utf-8").strip()
    if not token:
        raise typer.BadParameter(f"{file} is empty")
    return token
