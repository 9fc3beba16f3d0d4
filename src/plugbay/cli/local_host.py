"""A host that lives as long as one command: made from what was typed, visited once, stopped in good order.

Owns where such a host finds its plugins and keeps its files, and that a signal ends what it is asked and then this
process, its children first. What is asked is the command's business.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from plugbay.cli import exit_codes, lookup
from plugbay.cli.exit_codes import Exit
from plugbay.cli.paths import CONFIG_NAME, directories
from plugbay.cli.render import call_view
from plugbay.cli.render.call_view import Refusal
from plugbay.model.errors import Code, Failure

if TYPE_CHECKING:
    from plugbay.host.bindings import Bindings
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.model.protected import Entry

T = TypeVar("T")
Context = TypeVar("Context", bound="AbstractAsyncContextManager[Any]")
"""A host, or whatever else holds children for as long as it is entered."""

INSTALLED = "plugins"
"""What plugbay install has put below the data folder."""

MAX_SIGNALS = 3
"""Signals after which we leave at once; the warden clears up what is left."""


class Interrupted(typer.Exit):
    """A signal ended the visit before it came to its end; leaves with that signal's status."""


def discover_in(place: Path, prefer: str = "") -> list[Found]:
    """The plugins in a folder, one of which is usable at least; raises `Refusal`. Which contract is preferred, matters
    for those of several.
    """
    from plugbay.host.discovery.folders import discover

    folder = check_folder(place)
    found = discover([place if place.is_file() else folder], prefer)
    if not any(item.spec for item in found):
        broken = any(not lookup.is_absent(item) for item in found)
        status = Exit.INVALID if broken else Exit.NOT_FOUND
        raise Refusal(call_view.nothing_usable(folder, found), found, status)
    return found


def check_folder(place: Path) -> Path:
    """The folder that is meant; raises `Refusal` when it is not there."""
    folder = lookup.folder_of(place)
    if not folder.is_dir():
        hint = "name a plugin's folder, or a folder of such folders"
        raise Refusal(Failure(Code.NOT_FOUND, f"there is no folder {place}", detail={"hint": hint}))
    return folder


def find_installed(plugin_id: str) -> Found | None:
    """The plugin of this id that plugbay install has put in its place."""
    from plugbay.host.discovery.folders import discover

    place = directories()["data"] / INSTALLED
    found = discover([place]) if place.is_dir() else []
    return next((item for item in found if item.spec and item.spec.id == plugin_id), None)


def find_home(plugin_id: str, plugins: Path | None) -> Path | None:
    """Where to look for the plugin of this id: in the folder that was named, or among those that are installed."""
    if plugins is not None:
        return plugins
    return directories()["data"] / INSTALLED if find_installed(plugin_id) else None


def declares_server(config: Config | None, named: str) -> bool:
    """Whether plugbay.toml itself declares the plugin that somebody named: an MCP server. A folder goes first."""
    return config is not None and named in config.mcp and not lookup.folder_of(Path(named)).is_dir()


def config_for(config: Config | None, named: str) -> Config | None:
    """The settings for a host of what somebody named: without the servers of plugbay.toml, unless it is one of them."""
    return config if config is None or declares_server(config, named) else config.model_copy(update={"mcp": {}})


def check_id(plugin_id: str, found: list[Found]) -> None:
    """Raise `Refusal` when no usable plugin has this id."""
    known = [item.spec.id for item in found if item.spec]
    if plugin_id not in known:
        raise Refusal(call_view.unknown_id(plugin_id, known), found)


def make_host(
    found: list[Found], config: Config | None, *, grants: Iterable[str] | None, joins: bool = False, **options: Any
) -> Host:
    """A host for these plugins that keeps its files where plugbay.toml or the system says.

    Options are those of `Host`; plugins start when they are needed, unless `eager` is one of them. With other hosts it
    is joined only if it `joins`: one that is gone after a call has nothing to tell them, and hears nothing.
    """
    from plugbay.host.host import Host

    if config is not None and not joins:
        config = config.model_copy(update={"broker": None})
    logs = None if config and config.host.log_dir else directories()["log"]
    kept = {"log_dir": logs, "state_dir": state_dir(config), "protected": protected_config()}
    return Host(found, config, grants=grants or (), **{"eager": False, **kept, **options})


def protected_config() -> tuple[Entry, ...]:
    """The plugbay.toml of this directory, which the next command here reads, also when this one was given another."""
    from plugbay.model.protected import SETTINGS, Entry

    return (Entry(str(Path(CONFIG_NAME).absolute()), CONFIG_NAME, SETTINGS),)


def state_dir(config: Config | None) -> Path:
    """Where such a host keeps what it keeps: where plugbay.toml says, or where the system does."""
    named = config and config.host.state_dir
    return Path(named).absolute() if named else directories()["state"]


def make_bindings(config: Config | None, grants: Iterable[str] | None, grant_all: bool) -> Bindings:
    """What such a host would make of plugins, without a host."""
    from plugbay.host.bindings import Bindings, Options, log_folder
    from plugbay.host.config.config import Config
    from plugbay.host.confinement.protection import Protection

    state, config = state_dir(config), config or Config()
    protection = Protection(config, state, log_folder(config), protected_config())
    return Bindings(config, Options(frozenset(grants or ()), grant_all), state, protection=protection)


def run_with(host: Context, work: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
    """What `work` makes of the host, in an event loop of its own; raises `Interrupted`."""
    import asyncio

    return asyncio.run(_run_with(host, work))


async def _run_with(host: Context, work: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
    """A signal cuts short the work and nothing else: the host stops in good order, its children before us."""
    import asyncio

    received: list[int] = []
    async with host:
        task = asyncio.ensure_future(work(host))

        def interrupt(number: int) -> None:
            received.append(number)
            task.cancel()
            if len(received) >= MAX_SIGNALS:
                os._exit(exit_codes.for_signal(number))

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # What is ignored stays ignored: a command under nohup outlives its terminal.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, interrupt, number)
        await asyncio.wait({task})
    if task.cancelled() and received:
        raise Interrupted(exit_codes.for_signal(received[0]))
    return task.result()
