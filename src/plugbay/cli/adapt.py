"""`plugbay adapt PATH… --to CONTRACT`: plugins of any contract as one plugin of another.

Starts the sources that declare their offer at run time, pins the offer, and writes the folder for the other host, or
speaks to that host at once. `plugbay.adapters` has the mapping and the running adapter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, lookup
from plugbay.cli.exit_codes import Exit, Refusal, refusal
from plugbay.cli.options import AsJson, ConfigFile, Grant, GrantAll, NoSandbox
from plugbay.cli.paths import config_in_use, directories
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.adapters.mapping import Row
    from plugbay.adapters.pin import Pin, Settings, Source
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found

CONTRACTS = ("rune", "nexo", "kaged", "ainb", "vai", "mcp")

Sources = Annotated[
    list[str],
    typer.Argument(metavar="PATH|SERVER…", help="Plugins, folders of plugins, or MCP servers of plugbay.toml."),
]
Target = Annotated[str, typer.Option("--to", metavar="CONTRACT", help=f"{', '.join(CONTRACTS)}.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="The folder to write; ./ID-CONTRACT by default.")
]
Id = Annotated[
    str, typer.Option("--id", metavar="ID", help="The id of the adapter; that of the only source by default.")
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="Adapt only this PLUGIN or PLUGIN/EXPORT; repeatable.")
]
Run = Annotated[bool, typer.Option("--run", help="Write nothing; speak to the host on stdin and stdout at once.")]
Explain = Annotated[bool, typer.Option("--explain", help="Write nothing; show what becomes of each export, and why.")]


def adapt(
    sources: Sources,
    to: Target,
    folder: Output = None,
    id: Id = "",
    only: Only = None,
    run: Run = False,
    explain: Explain = False,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a plugin of one contract from plugins of any other. Its program hosts them, confined and supervised.

    Writes a folder that a host of that contract installs like any other plugin. Offers of MCP servers are pinned as
    they are now. Nothing is left out silently: --explain lists every export.
    """
    if to not in CONTRACTS:
        raise typer.BadParameter(f"there is no contract {to!r}; there are {', '.join(CONTRACTS)}", param_hint="--to")
    if run and (explain or folder is not None):
        raise typer.BadParameter("--run writes nothing and explains nothing", param_hint="--run")
    if run:
        from plugbay.sdk.io.stdio import claim

        claim()
    from plugbay.adapters.pin import USUAL_VARIABLES, Settings

    loaded = local_host.load_config(config)
    found, servers = _find(sources, loaded)
    used = config_in_use(config)
    settings = Settings(
        config=str(_absolute(used)) if used else None,
        state=str(local_host.state_dir(loaded)),
        logs=str(Path(loaded.host.log_dir if loaded and loaded.host.log_dir else directories()["log"]).absolute()),
        grants=grant or (),
        grant_all=grant_all,
        unconfined=no_sandbox,
        environment={name: os.environ[name] for name in USUAL_VARIABLES if name in os.environ},
    )
    pin, rows = _pin(found, servers, loaded, to, settings, id, only or ())
    if run:
        from plugbay.adapters.serving import serve

        serve(pin)
    if explain:
        _explain(pin, rows, as_json)
        return
    words = [word for item in found if item.spec for word in item.spec.command]
    words += [word for name in servers if loaded for word in loaded.mcp[name].command or ()]
    _write(pin, rows, folder, [word for word in words if os.path.isabs(word)], as_json)


def _find(words: Sequence[str], config: Config | None) -> tuple[list[Found], list[str]]:
    """The plugins at the paths, and the names of servers in plugbay.toml; raises `Refusal`."""
    from plugbay.host.discovery.folders import reject_duplicates

    paths, servers = [], []
    for word in words:
        if lookup.is_source(Path(word)):
            raise refusal(f"{word} has no manifest", lookup.manifest_hint(Path(word)), Exit.INVALID)
        if local_host.declares_server(config, word):
            servers.append(word)
        else:
            paths.append(Path(word))
    found = reject_duplicates([item for path in paths for item in _discover(path)])
    for item in found:
        if item.spec is None:
            raise lookup.refusal(item, "adapt")
    return found, servers


def _discover(path: Path) -> list[Found]:
    from plugbay.host.discovery.folders import discover

    found = discover([_place(path)])
    if not found:
        raise refusal(f"there is no plugin in {path}", local_host.FOLDER_HINT, Exit.NOT_FOUND)
    return found


def _absolute(path: Path) -> Path:
    """The path without `..`, which a link may give another meaning; a link without `..` stays."""
    return path.resolve() if ".." in path.parts else path.absolute()


def _place(path: Path) -> Path:
    if not path.exists():
        hint = "name the folder of a plugin, or an MCP server of plugbay.toml"
        raise refusal(f"there is no {path}, and plugbay.toml declares no such server", hint, Exit.NOT_FOUND)
    return path if path.is_file() else local_host.check_folder(path)


def _sources(found: Sequence[Found], servers: Sequence[str]) -> list[Source]:
    from plugbay.adapters.pin import Source

    placed = [
        Source(item.spec.id, item.contract, str(_absolute(item.root / lookup.manifest_name(item))))
        for item in found
        if item.spec is not None
    ]
    return [*placed, *(Source(name, "mcp") for name in servers)]


def _pin(
    found: list[Found],
    servers: list[str],
    config: Config | None,
    target: str,
    settings: Settings,
    id: str,
    only: Sequence[str],
) -> tuple[Pin, tuple[Row, ...]]:
    from plugbay.adapters.learn import NothingMaps, learn, make_pin
    from plugbay.host.catalog.approvals import Approvals
    from plugbay.host.host import Host
    from plugbay.mcp_server.listing import NamesCollide
    from plugbay.model.errors import CallFailed, Failure

    sources = _sources(found, servers)
    if len(sources) > 1 and not id:
        names = ", ".join(source.id for source in sources)
        raise refusal(f"there are {len(sources)} sources: {names}", "--id gives their adapter a name", Exit.USAGE)
    approvals = Approvals(Path(settings.state))
    if config is not None:
        config = config.model_copy(update={"mcp": {name: config.mcp[name] for name in servers}})
    host = local_host.make_host(
        found,
        config,
        grants=settings.grants,
        grant_all=settings.grant_all,
        unconfined=settings.unconfined,
        trusted=[source.id for source in sources if approvals.stamp(source.id) is None],
    )

    async def work(host: Host) -> tuple[Pin, tuple[Row, ...]]:
        await learn(host)
        return make_pin(host, target, sources, settings, id=id, only=only)

    try:
        return local_host.run_with(host, work)
    except CallFailed as error:
        failure = error.failure
        text = f"{failure.plugin} cannot be adapted: {failure.message}"
        raise Refusal(Failure(failure.code, text, origin=failure.origin, detail=failure.detail)) from None
    except NothingMaps as error:
        hint = f"plugbay inspect shows its exports; {target} carries tools, and docs/adapt.md lists the rest"
        raise refusal(str(error), hint, Exit.INVALID) from None
    except NamesCollide as error:
        raise refusal(str(error), status=Exit.INVALID) from None


# Output.


def _explain(pin: Pin, rows: Sequence[Row], as_json: bool) -> None:
    if as_json:
        output.print_json(_document(pin, rows))
        return
    page = output.out()
    page.line((pin.id, output.NAME), f" {pin.version} for {pin.target}")
    _show_rows(page, rows)


def _document(pin: Pin, rows: Sequence[Row], **more: Any) -> dict[str, Any]:
    return {
        "id": pin.id,
        "version": pin.version,
        "target": pin.target,
        "sources": [source.to_json() for source in pin.sources],
        "exports": [row.to_json() for row in rows],
        **more,
    }


def _show_rows(page: output.Printer, rows: Sequence[Row]) -> None:
    for row in rows:
        mark, style = (output.OK, output.GOOD_STYLE) if row.form else (output.SKIP, output.DIM)
        what = f" → {row.form} {row.served}" if row.form else ""
        note = f"  {row.note}" if row.note else ""
        page.line((f"{mark} ", style), f"{row.kind} {row.plugin}/{row.name}", what, (note, output.DIM), indent=2)


def _write(pin: Pin, rows: Sequence[Row], named: Path | None, words: Sequence[str], as_json: bool) -> None:
    """Write the folder; `words` are paths in the commands of the sources."""
    from plugbay.adapters import folder as adapter_folder
    from plugbay.adapters.pin import FILE
    from plugbay.host.discovery.folders import inspect

    folder = _absolute(named or Path(adapter_folder.folder_name(pin)))
    if pin.target == "ainb" and folder.name != adapter_folder.folder_name(pin):
        name = adapter_folder.folder_name(pin)
        raise refusal(f"ainb needs the folder to be called {name!r}", f"--output {folder.parent / name}", Exit.USAGE)
    if folder.exists() and (not folder.is_dir() or (os.listdir(folder) and not (folder / FILE).exists())):
        raise refusal(f"{folder} exists and is not an adapter", "--output names another folder", Exit.USAGE)
    source = adapter_folder.conflicting(folder, pin.sources, words)
    if source:
        text = f"{folder} cannot be the adapter: its own source is there, at {source}"
        raise refusal(text, "--output names a folder apart from the sources", Exit.USAGE)
    written = adapter_folder.write(pin, rows, folder)
    made = inspect(folder, pin.target)
    if made.errors:
        raise Refusal(lookup.refusal(made, "adapt").failure, [made], Exit.INVALID)
    if as_json:
        output.print_json(_document(pin, rows, folder=str(folder), files=written))
        return
    page = output.out()
    page.line((pin.id, output.NAME), f" {pin.version} for {pin.target}: ", (str(folder), output.NAME))
    _show_rows(page, rows)
