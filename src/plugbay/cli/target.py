"""The host that a command asks: the running server, or a host of this command for the plugins of a folder.

Each command prints the choice: on stderr, or as `asked` in its JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from plugbay.cli import local_host, remote
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.cli.remote import ServerClient
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host

T = TypeVar("T")

START_SECONDS = 20.0
"""Maximum wait for plugins that start with a local host."""

Folder = Annotated[
    Path | None,
    typer.Option("--plugins", metavar="DIR", help="Run this plugin or folder of plugins here, without a server."),
]


@dataclass(frozen=True, slots=True)
class Target:
    """The host that one command asks."""

    name: str
    """`the server URL`, or `a host of this command for DIR`."""
    asked: str
    """The same for programs: the URL or the folder."""
    client: ServerClient | None
    """None: a local host."""
    found: list[Found] = field(default_factory=list)
    config: Config | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, work: Callable[[Host], Coroutine[Any, Any, T]], *, settled: bool = True) -> T:
        """Run `work` on a local host and stop it. Plugins that start with their host have started if `settled`."""
        output.show_host_log()

        async def started(host: Host) -> T:
            if settled:
                await host.settled(START_SECONDS)
            return await work(host)

        return local_host.run_with(local_host.make_host(self.found, self.config, eager=True, **self.options), started)


def choose(
    plugins: Path | None,
    server: str | None,
    token_file: Path | None,
    config: Path | None = None,
    *,
    quiet: bool,
    **options: Any,
) -> Target:
    """The local host if a folder is named, else the running server; raises `Refusal`. Prints which, unless `quiet`.

    `options` are those of a local host: grants, grant_all, unconfined.
    """
    if plugins is None:
        if any(options.values()) or config is not None:
            text = "--grant, --grant-all, --no-sandbox and --config do not work with a server; they need --plugins DIR"
            raise refusal(text, "plugbay grant ID CAP grants a capability on the running server", Exit.USAGE)
        return _server(server, token_file, quiet)
    if server is not None:
        raise refusal("--plugins and --server name two different hosts", "give one of them", Exit.USAGE)
    settings = local_host.load_config(config)
    found = local_host.discover_in(plugins)
    grants = {"grants": options.get("grants"), **{name: value for name, value in options.items() if name != "grants"}}
    name = local_host.describe(plugins)
    if not quiet:
        output.using(name)
    return Target(name, str(plugins), None, found, settings, grants)


def _server(server: str | None, token_file: Path | None, quiet: bool) -> Target:
    try:
        client = remote.find(server, token_file, quiet=quiet)
    except remote.NoServer as error:
        hint = f"{error.hint}; --plugins DIR runs the plugins of a folder" if error.hint else ""
        raise remote.NoServer(error.failure.message, hint) from None
    if server is not None and not quiet:
        output.using(f"the server {client.url}")
    return Target(f"the server {client.url}", client.url, client)
