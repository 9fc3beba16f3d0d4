"""`plugbay memory add|search|forget|clear`: the memory of agents, of the running server or of this machine's hosts.

The local memory is the file that a host of a command uses: that of plugbay.toml, else one in the state folder.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from plugbay.cli import local_host, remote
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.options import AsJson, ConfigFile, Server, TokenFile
from plugbay.cli.render import output
from plugbay.cli.target import Target

if TYPE_CHECKING:
    from plugbay.host.services.memory import AgentMemory

T = TypeVar("T")

PATH = "/api/v1/memories"

EXAMPLES = """\
Examples
plugbay memory add demo "Ada drinks tea without milk." --tag people
plugbay memory search demo tea --json
plugbay memory forget demo 6a1e2f0c-5a6b-4c1d-8e9f-0a1b2c3d4e5f
plugbay memory clear demo --local"""

memory = typer.Typer(
    name="memory",
    help="Fill, search and clear the memory of agents.",
    epilog=EXAMPLES,
    cls=HelpGroup,
    no_args_is_help=True,
)

Agent = Annotated[str, typer.Argument(metavar="AGENT", help="The agent that owns the memory.")]
Local = Annotated[
    bool, typer.Option("--local", help="Use the memory of plugbay.toml or of the state folder, without a server.")
]


@memory.command(cls=HelpCommand, epilog=EXAMPLES)
def add(
    agent: Agent,
    content: Annotated[str, typer.Argument(metavar="TEXT", help="The entry.")],
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag of the entry; repeatable.")] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="The type of the entry.")] = None,
    local: Local = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Store an entry in the memory of an agent."""
    asked = _choose(local, config, server, token_file, as_json)
    if asked.client is None:
        entry = _use(asked, lambda kept: kept.remember(agent, content, tags=tag or (), memory_type=kind)).to_json()
    else:
        body = {"agent_id": agent, "content": content, "tags": tag or [], "memory_type": kind}
        entry = asked.client.post(PATH, body)
    if as_json:
        output.print_json({"asked": asked.asked, "entry": entry})
    else:
        output.err().line((output.OK, output.GOOD_STYLE), f" stored {entry['id']}")


@memory.command(cls=HelpCommand, epilog=EXAMPLES)
def search(
    agent: Agent,
    query: Annotated[
        str, typer.Argument(metavar="WORDS", help="Words to search for; without them, the newest entries.")
    ] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Entries at most; 10 by default.")] = 10,
    local: Local = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the entries of an agent that match, best first, as a plugin's memory.recall finds them."""
    asked = _choose(local, config, server, token_file, as_json)
    if asked.client is None:
        found = [entry.to_json() for entry in _use(asked, lambda kept: kept.recall(agent, query, limit))]
    else:
        found = asked.client.get(PATH, agent_id=agent, query=query, limit=limit)["entries"]
    if as_json:
        output.print_json({"asked": asked.asked, "entries": found})
        return
    for entry in found:
        tags = f"  {', '.join(entry['tags'])}" if entry["tags"] else ""
        output.out().line((f"{entry['created_at']} {entry['id']} ", output.DIM), entry["content"], (tags, output.DIM))
    if not found:
        output.note(f"{agent} has no {'matching ' if query.strip() else ''}entries there")


@memory.command(cls=HelpCommand, epilog=EXAMPLES)
def forget(
    agent: Agent,
    entry: Annotated[str, typer.Argument(metavar="ID", help="The id of an entry; plugbay memory search shows it.")],
    local: Local = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove one entry from the memory of an agent."""
    from urllib.parse import quote

    asked = _choose(local, config, server, token_file, as_json)
    if asked.client is not None:
        asked.client.delete(f"{PATH}/{quote(entry, safe='')}", agent_id=agent)
    elif not _use(asked, lambda kept: kept.forget(agent, entry)):
        hint = f"plugbay memory search {agent} lists its entries"
        raise refusal(f"{agent} has no entry {entry!r} in {asked.name}", hint, Exit.NOT_FOUND)
    _report(asked, 1, as_json)


@memory.command(cls=HelpCommand, epilog=EXAMPLES)
def clear(
    agent: Agent,
    local: Local = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove every entry of an agent, for good."""
    asked = _choose(local, config, server, token_file, as_json)
    if asked.client is None:
        removed = _use(asked, lambda kept: kept.clear(agent))
    else:
        removed = asked.client.delete(PATH, agent_id=agent)["removed"]
    _report(asked, removed, as_json)


def _report(asked: Target, removed: int, as_json: bool) -> None:
    if as_json:
        output.print_json({"asked": asked.asked, "removed": removed})
        return
    words = output.count(removed, "entry", "entries")
    output.err().line((output.OK, output.GOOD_STYLE), f" removed {words}")


def _choose(local: bool, config: Path | None, server: str | None, token_file: Path | None, quiet: bool) -> Target:
    """The memory of the server that is named or runs, else the local one; prints which, unless `quiet`."""
    if server is not None and (local or config is not None):
        raise refusal("--server and --local or --config name different memories", "give one of them", Exit.USAGE)
    asked = None if local or config is not None else _server(server, token_file)
    if asked is None:
        settings = local_host.load_config(config)
        place = str(_memory(Target("", "", None, config=settings)).path)
        asked = Target(f"the local memory {place}", place, None, config=settings)
    if not quiet:
        output.using(asked.name)
    return asked


def _server(server: str | None, token_file: Path | None) -> Target | None:
    try:
        client = remote.find(server, token_file, quiet=True)
    except remote.NoServer:
        if server is not None:
            raise
        return None
    return Target(f"the memory of the server {client.url}", client.url, client)


def _memory(asked: Target) -> AgentMemory:
    """The memory that a host of a command with these settings uses."""
    return local_host.make_host([], _without_plugins(asked.config), grants=None).memory


def _without_plugins(config: Any) -> Any:
    return None if config is None else config.model_copy(update={"mcp": {}, "agents": {}})


def _use(asked: Target, work: Callable[[AgentMemory], Coroutine[Any, Any, T]]) -> T:
    """Do `work` on the local memory; raises `CallFailed`."""
    host = local_host.make_host([], _without_plugins(asked.config), grants=None)
    return local_host.run_with(host, lambda host: work(host.memory))
