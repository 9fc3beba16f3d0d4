"""`plugbay paths`: the directories of plugbay (XDG on Linux and macOS) and the plugbay.toml in use. Creates nothing."""

from __future__ import annotations

import warnings
from pathlib import Path

from plugbay.cli.options import AsJson
from plugbay.cli.render import output

CONFIG_NAME = "plugbay.toml"
"""Same as in `plugbay.host.config.config`; repeated because importing that module loads pydantic."""

WIDTH = len(CONFIG_NAME) + 2

MEANINGS = {
    "config": "trusted keys, and your own keys",
    "data": "installed plugins, and the data of plugbay serve",
    "state": "settings of plugbay config, storage of plugins, addresses of running servers",
    "cache": "not used yet",
    "log": "stderr of plugins",
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


def paths(as_json: AsJson = False) -> None:
    """Show the folders of plugbay, and the plugbay.toml in use."""
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
    none = (f"none; {CONFIG_NAME} in the current directory would be read", output.DIM)
    page.field(CONFIG_NAME, str(config) if config else none, indent=0, width=WIDTH)
