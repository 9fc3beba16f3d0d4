"""`plugbay paths`: the directories of plugbay (XDG on Linux and macOS) and the plugbay.toml in use. Creates nothing."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from plugbay.cli.render import output

CONFIG_NAME = "plugbay.toml"
"""Same as in `plugbay.host.config.config`; repeated because importing that module loads pydantic."""

WIDTH = len(CONFIG_NAME) + 2

MEANINGS = {
    "config": "the keys you trust, and your own",
    "data": "installed plugins, and what plugbay serve keeps",
    "state": "settings made with plugbay config, what plugins keep through the host, where a server runs",
    "cache": "not used yet",
    "log": "what plugins wrote to stderr",
    "runtime": "not used yet",
}


def directories() -> dict[str, Path]:
    """Every directory plugbay may write to."""
    from platformdirs import PlatformDirs

    dirs = PlatformDirs("plugbay", appauthor=False)
    with warnings.catch_warnings():
        # platformdirs warns when XDG_RUNTIME_DIR is missing and falls back to another directory.
        warnings.simplefilter("ignore")
        return {name: getattr(dirs, f"user_{name}_path") for name in MEANINGS}


def config_in_use(named: Path | None = None) -> Path | None:
    """The config file to read: the given one, or the one in the current directory, or None."""
    if named is not None:
        return named
    here = Path(CONFIG_NAME)
    return here if here.exists() else None


def paths(as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False) -> None:
    """Show where plugbay keeps its files, and which plugbay.toml it would use."""
    found = directories()
    config = config_in_use()
    config = config and config.absolute()
    if as_json:
        everything = {**found, "config_file": config}
        output.print_json({name: path and str(path) for name, path in everything.items()})
        return
    page = output.out()
    for name, path in found.items():
        page.field(name, str(path), (f"  {MEANINGS[name]}", output.DIM), indent=0, width=WIDTH)
    none = (f"none; a {CONFIG_NAME} in the current directory would be used", output.DIM)
    page.field(CONFIG_NAME, str(config) if config else none, indent=0, width=WIDTH)
