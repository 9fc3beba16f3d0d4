"""Pages of MCP servers: list, add by command or URL, remove. The page of the plugin shows the offer to approve.

For the operator of all orgs. To add a server is to choose a command that this machine runs, so the form asks for the
operator token.
"""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from plugbay.contracts.mcp import remote
from plugbay.host.admin.servers import ServerEntry, parse_header, parse_variable
from plugbay.server.dashboard.actions import Question, confirm, failed, is_confirmed
from plugbay.server.dashboard.authentication import Notice, Visit, require_session, require_token_again
from plugbay.server.dashboard.pages.plugins import plugin_path
from plugbay.server.dashboard.tables import Cell, Filter, NextStep, table_of
from plugbay.server.dashboard.views.tones import BAD, CALM, GOOD, WARN
from plugbay.server.domain.errors import GatewayError, invalid, not_found, unprocessable
from plugbay.server.domain.principal import HOST
from plugbay.store.pages import Part

COLUMNS = ("Server", "State", "Offers", "Command or URL", "Remove")
STATES = {"approved": GOOD, "pending": WARN, "changed": WARN, "invalid": BAD}
FIELDS = ("name", "program", "variables", "headers", "folder")

MAX_LINES = 100
"""Variables or headers of one form."""


@require_session(HOST)
async def show_servers(visit: Visit) -> Response:
    """The MCP servers of plugbay.toml and of the folders."""
    return _servers_page(visit)


@require_session(HOST)
async def add_server(visit: Visit) -> Response:
    """Declare a server in plugbay.toml; its page then offers a look at its offer."""
    try:
        entry = parse_entry(visit)
        await require_token_again(visit)
        missing = await visit.gateway.operator_servers.declare(visit.principal, entry)
    except GatewayError as error:
        return _servers_page(visit, error)
    text = f"{entry.name} is added, and waits for your approval."
    if missing:
        notice = Notice(WARN, text, f"First set its secrets: {', '.join(missing)}.")
        return visit.redirect(f"/settings?plugin={quote(entry.name, safe='')}", notice)
    return visit.redirect(plugin_path(entry.name), Notice(GOOD, text, "Look at its offer, then approve it."))


@require_session(HOST)
async def remove_server(visit: Visit) -> Response:
    """Remove a server of plugbay.toml, after a confirmation."""
    name = visit.request.path_params["name"]
    server = next((each for each in visit.gateway.operator_servers.servers() if each["name"] == name), None)
    if server is None or not server["declared"]:
        raise not_found("server", name)
    if not is_confirmed(visit):
        text = "Its approval, its secrets and its login are removed too. Running calls end first."
        facts = (("server", name), ("command or URL", server["program"]))
        return confirm(visit, Question(f"Remove {name}?", text, "Remove", "/servers", facts))
    await visit.gateway.operator_servers.remove(visit.principal, name)
    return visit.redirect("/servers", Notice(GOOD, f"{name} is removed."))


def parse_entry(visit: Visit) -> ServerEntry:
    """The server that a form describes; raises `server.invalid` with the name of the field."""
    entry, program = ServerEntry(visit.field("name").strip()), visit.field("program").strip()
    param = "program"
    try:
        if remote.is_url(program) and " " not in program:
            entry.set_url(program)
        else:
            entry.command = shlex.split(program)
            entry.cwd = visit.field("folder").strip() or None
        if not entry.url and not entry.command:
            raise ValueError("command or URL is missing")
        param = "headers"
        for line in _lines(visit, param):
            entry.add_header(*parse_header(line))
        param = "variables"
        for line in _lines(visit, param):
            entry.add_variable(*parse_variable(line))
    except ValueError as error:
        raise unprocessable("server.invalid", f"the {error}" if param == "program" else str(error), param) from None
    return entry


def _lines(visit: Visit, field: str) -> list[str]:
    lines = [line.strip() for line in visit.field(field).splitlines() if line.strip()]
    if len(lines) > MAX_LINES:
        raise invalid("request.invalid", f"a server has at most {MAX_LINES} {field}", field)
    return lines


def _servers_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    search = visit.query("search")
    words = search.lower()
    servers = [
        each
        for each in visit.gateway.operator_servers.servers()
        if words in f"{each['name']} {each['program']}".lower()
    ]
    empty = NextStep(
        "No MCP servers",
        "A server of the Model Context Protocol offers its tools like any plugin. Add one above, or with a command:",
        "plugbay mcp add hub https://mcp.example.com/mcp",
    )
    filters = (Filter("search", "Search", search, hint="part of a name, command or URL"),)
    table = table_of("MCP servers", "/servers", COLUMNS, Part(tuple(servers)), server_row, filters=filters, empty=empty)
    return visit.page(
        "servers.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        table=table,
        typed={name: visit.field(name) for name in FIELDS},
        problem=problem,
    )


def server_row(server: dict[str, Any]) -> tuple[Cell, ...]:
    name, state = server["name"], server["state"]
    link = "" if state == "invalid" else plugin_path(name)
    button = Cell("Remove…", act=f"/servers/{quote(name, safe='')}:remove") if server["declared"] else Cell()
    return (
        Cell(name, link=link),
        Cell(state, server["problem"], tone=STATES.get(state, CALM)),
        Cell(server["offers"]),
        Cell(server["program"], mono=True),
        button,
    )
