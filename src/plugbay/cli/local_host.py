"""A host inside the process of one command: load plugbay.toml, find plugins, make the host, run work on it.

A signal cancels the work; the host then stops its plugins before this process exits (`run_with`).
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from plugbay.cli import exit_codes, lookup
from plugbay.cli.exit_codes import Exit, Refusal, refusal
from plugbay.cli.paths import CONFIG_NAME, config_in_use, directories
from plugbay.cli.render import call_view, output

if TYPE_CHECKING:
    from plugbay.host.bindings import Bindings
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.supervision.binding import Binding
    from plugbay.model.errors import Failure
    from plugbay.model.protected import Entry

T = TypeVar("T")
Context = TypeVar("Context", bound="AbstractAsyncContextManager[Any]")
"""A host, or another asynchronous context manager that owns child processes."""

INSTALLED = "plugins"
"""Folder of installed plugins, below the data folder."""

FOLDER_HINT = "name the folder of a plugin, which holds its manifest, or a folder of such folders"

MAX_SIGNALS = 3
"""Signals after which the process exits at once; the warden kills remaining children."""


class Interrupted(typer.Exit):
    """A signal cancelled the work; carries the exit status of that signal."""


@contextmanager
def loading() -> Iterator[None]:
    """Load modules without the collector: they are no garbage, and to look for some takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def load_config(named: Path | None) -> Config | None:
    """The given config file, or plugbay.toml of this directory, or None; raises `Refusal`."""
    from plugbay.host.config import config
    from plugbay.model.errors import ConfigInvalid

    if named is not None and (not named.exists() or named.is_dir()):
        problem = "is a folder" if named.is_dir() else "does not exist"
        hint = "--config names a file like plugbay.toml; without it, ./plugbay.toml is read if it exists"
        raise refusal(f"{named} {problem}", hint, Exit.INVALID)
    path = config_in_use(named)
    try:
        return config.load(path) if path else None
    except ConfigInvalid as error:
        raise Refusal(call_view.invalid_file(error), status=Exit.INVALID) from None


def find_plugin(path: Path, config: Config | None, contract: str | None = None) -> Found:
    """The plugin at `path`, or the MCP server that plugbay.toml or ./.mcp.json declares by this name."""
    from plugbay.host.discovery.servers import find_servers

    if lookup.is_source(path):
        from plugbay.cli.manifest.single_file import plugin_in

        found = plugin_in(path, contract or "")
        if contract not in (None, found.contract):
            raise refusal(
                f"{path} cannot be a plugin of {contract} without more files", _manifest_hint(path), Exit.INVALID
            )
        return found
    if path.exists() or path.name != str(path) or contract not in (None, "mcp"):
        return lookup.find(path, contract)
    declared = find_servers(config) if config else []
    beside = lookup.find_all(Path(".mcp.json")) if Path(".mcp.json").is_file() else []
    named = [found for found in (*declared, *beside) if found.entry == str(path)]
    return named[0] if named else lookup.find(path, contract)


def _manifest_hint(source: Path) -> str:
    return f"plugbay manifest {source} writes them, or gives the reason"


def discover_in(place: Path, prefer: str = "", *, may_be_empty: bool = False) -> list[Found]:
    """The plugins in a folder, at least one of them usable; raises `Refusal`.

    `prefer` names the contract to use for plugins with several manifests. With `may_be_empty`, a folder of plugins need
    not have a usable one yet.
    """
    from plugbay.host.discovery.folders import discover

    if lookup.is_source(place):
        from plugbay.cli.manifest.single_file import plugin_in

        return [plugin_in(place, prefer)]
    folder = check_folder(place)
    found = discover([place if place.is_file() else folder], prefer)
    if may_be_empty and all(item.plugins_folder is not None for item in found):
        return [with_drift(item) for item in found]
    if not any(item.spec for item in found):
        broken = any(not lookup.is_absent(item) for item in found)
        status = Exit.INVALID if broken else Exit.NOT_FOUND
        raise Refusal(call_view.no_usable_plugin(folder, found), found, status)
    return [with_drift(item) for item in found]


def with_drift(found: Found) -> Found:
    """The plugin, with a warning if its manifest was generated from another state of its source."""
    if not lookup.has_mark(found):
        return found
    from plugbay.cli.manifest import generated

    return generated.add_drift_warnings(found)


def check_folder(place: Path) -> Path:
    """The folder of a path that may name a manifest; raises `Refusal` when it does not exist."""
    folder = lookup.folder_of(place)
    if not folder.is_dir():
        raise refusal(f"there is no folder {place}", FOLDER_HINT, Exit.NOT_FOUND)
    return folder


def describe(place: Path | str) -> str:
    """The host of a command, in words, for `output.using`."""
    return f"a host of this command for {place}"


def announce(path: str, plugins: Path | None, config: Config | None) -> None:
    """Print the folder that the host of this command uses, unless `path` or `--plugins` can mean nothing else."""
    if plugins is not None:
        return
    if lookup.is_place(Path(path)):
        if could_be_id(path):
            output.using(f"{describe(f'the folder {path}')}, not the running server")
    elif declares_server(config, path):
        output.using(describe(f"{path} of {CONFIG_NAME}"))
    else:
        output.using(describe(find_home(path, None) or path))


def could_be_id(path: str) -> bool:
    """Whether the name of a folder could also be a plugin id of a running server."""
    from plugbay.server.occupancy import running_servers

    return "/" not in path and not path.startswith(".") and bool(running_servers(directories()["state"]))


def find_installed(plugin_id: str) -> Found | None:
    """The installed plugin of this id."""
    from plugbay.host.discovery.folders import discover

    place = directories()["data"] / INSTALLED
    found = discover([place]) if place.is_dir() else []
    return next((item for item in found if item.spec and item.spec.id == plugin_id), None)


def find_home(plugin_id: str, plugins: Path | None) -> Path | None:
    """The folder to search for this id: the given one, or that of installed plugins if the id is installed."""
    if plugins is not None:
        return plugins
    return directories()["data"] / INSTALLED if find_installed(plugin_id) else None


def discover_id(plugin_id: str, plugins: Path | None, prefer: str = "") -> list[Found]:
    """The plugins of the folder that has this id; raises `Refusal` when there is none."""
    home = find_home(plugin_id, plugins)
    if home is None:
        text = f"there is no folder {plugin_id}, and no installed plugin has this id"
        raise refusal(text, "--plugins DIR names the folder of a plugin that is not installed", Exit.NOT_FOUND)
    found = discover_in(home, prefer)
    check_id(plugin_id, found)
    return found


def declares_server(config: Config | None, named: str) -> bool:
    """Whether plugbay.toml declares an MCP server of this name. A folder of the same name takes precedence."""
    return config is not None and named in config.mcp and not lookup.is_place(Path(named))


def config_for(config: Config | None, named: str) -> Config | None:
    """The config for a host of one plugin: without the servers of plugbay.toml, unless it is one of them."""
    return config if config is None or declares_server(config, named) else config.model_copy(update={"mcp": {}})


def check_id(plugin_id: str, found: list[Found]) -> None:
    """Raise `Refusal` when no usable plugin has this id."""
    known = [item.spec.id for item in found if item.spec]
    if plugin_id not in known:
        raise Refusal(call_view.unknown_id(plugin_id, known), found)


def make_host(
    found: list[Found], config: Config | None, *, grants: Iterable[str] | None, joins: bool = False, **options: Any
) -> Host:
    """A host for these plugins, with its files where plugbay.toml or the system says.

    `options` are those of `Host`; plugins start on demand unless `eager` is given. The host joins the broker only with
    `joins`: a host that ends after one call has nothing to exchange with others.
    """
    from plugbay.host.host import Host

    if config is not None and not joins:
        config = config.model_copy(update={"broker": None})
    logs = None if config and config.host.log_dir else directories()["log"]
    kept = {"log_dir": logs, "state_dir": state_dir(config), "protected": protected_config()}
    return Host(found, config, grants=grants or (), **{"eager": False, **kept, **options})


def protected_config() -> tuple[Entry, ...]:
    """The plugbay.toml of this directory; protected even if another one is in use, as the next command reads it."""
    from plugbay.model.protected import SETTINGS, Entry

    return (Entry(str(Path(CONFIG_NAME).absolute()), CONFIG_NAME, SETTINGS),)


def state_dir(config: Config | None) -> Path:
    """The state folder: of plugbay.toml, or the system's default."""
    named = config and config.host.state_dir
    return Path(named).absolute() if named else directories()["state"]


def make_bindings(config: Config | None, grants: Iterable[str] | None, grant_all: bool) -> Bindings:
    """The bindings that such a host would use, without a host."""
    from plugbay.host.bindings import Bindings, Options, log_folder
    from plugbay.host.config.config import Config
    from plugbay.host.confinement.protection import Protection

    state, config = state_dir(config), config or Config.default()
    protection = Protection(config, state, log_folder(config), protected_config())
    return Bindings(config, Options(frozenset(grants or ()), grant_all), state, protection=protection)


def greet(binding: Binding, bindings: Bindings) -> tuple[Failure | None, Mapping[str, Any], float]:
    """Start a plugin, complete the handshake and stop it.

    Returns the failure if any, the plugin's hello message, and the duration up to it in seconds.
    """
    import asyncio

    return asyncio.run(_greet(binding, bindings))


async def _greet(binding: Binding, bindings: Bindings) -> tuple[Failure | None, Mapping[str, Any], float]:
    import asyncio
    import time

    from plugbay.host.journal import Journal
    from plugbay.host.supervision.instance import Deadline, Instance, Runtime, open_instance
    from plugbay.link.deadlines import Deadlines
    from plugbay.wire.fast_json import MsgspecCodec

    spawner, deadlines = bindings.spawner(None, Journal()), Deadlines(asyncio.get_running_loop())
    began = time.perf_counter()
    try:
        runtime = Runtime(spawner, deadlines, MsgspecCodec())
        instance = await open_instance(binding, runtime, Deadline(binding.spec.timeouts.call))
        if not isinstance(instance, Instance):
            return instance, {}, time.perf_counter() - began
        took = time.perf_counter() - began
        hello = instance.link.hello.hello if instance.link.hello is not None else {}
        if binding.spec.lifetime == "resident":
            await instance.shut_down()
        else:
            instance.kill()
        return None, hello, took
    finally:
        await spawner.close()
        deadlines.close()
        await bindings.scratch.close()


def run_with(host: Context, work: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
    """Enter `host`, run `work` on it in a new event loop and return its result; raises `Interrupted`."""
    import asyncio

    from plugbay.process.limits import raise_open_files

    raise_open_files()
    return asyncio.run(_run_with(host, work))


async def _run_with(host: Context, work: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
    """A signal cancels only the work; leaving the context then stops the host and its children in order."""
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
            # Keep ignored signals ignored: a command under nohup outlives its terminal.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, interrupt, number)
        await asyncio.wait({task})
    if task.cancelled() and received:
        raise Interrupted(exit_codes.for_signal(received[0]))
    return task.result()
