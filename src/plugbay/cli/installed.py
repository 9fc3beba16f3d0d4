"""`plugbay list`, `rollback`, `pin`, `unpin`, `uninstall`: what is in the store, and which release counts.

Owns the commands' words and their JSON; the changes are `packages.installer`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import output
from plugbay.cli.package_view import SHORT_DIGEST, AsJson, StoreDir, now, store_at, told, trust_in

if TYPE_CHECKING:
    from pathlib import Path

    from plugbay.packages.installer import Installer
    from plugbay.packages.store import Installed

PluginId = Annotated[str, typer.Argument(metavar="ID", help="An installed plugin.")]


def list_(store: StoreDir = None, as_json: AsJson = False) -> None:
    """Show the installed plugins and the releases to go back to."""
    place = store_at(store)
    with told(as_json):
        found = place.installed()
    if as_json:
        output.print_json({"folder": str(place.plugins), "plugins": [to_json(item) for item in found]})
        return
    if not found:
        output.note(f"nothing is installed in {place.root}")
    for item in found:
        release = item.current
        pinned = f"{output.DOT}pinned" if item.state.pinned else ""
        signed = f"signed by key {release.key_id}" if release.key_id else "unsigned"
        about = f"{release.contract}{output.DOT}{signed}{output.DOT}{release.digest[:SHORT_DIGEST]}{pinned}"
        output.out().line((item.id, output.NAME), f" {release.version}  ", (about, output.DIM))
        if item.earlier:
            versions = ", ".join(earlier.version for earlier in reversed(item.earlier))
            output.out().field("before", versions)


def rollback(plugin_id: PluginId, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Go back to the release before the current one."""
    with told(as_json):
        _show(_installer(store).rollback(plugin_id), "is current again", as_json)


def pin(plugin_id: PluginId, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Keep a plugin at its current release: neither upgrade nor rollback moves it."""
    with told(as_json):
        _show(_installer(store).pin(plugin_id, True), "is pinned", as_json)


def unpin(plugin_id: PluginId, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Let upgrade and rollback move a plugin again."""
    with told(as_json):
        _show(_installer(store).pin(plugin_id, False), "is no longer pinned", as_json)


def uninstall(plugin_id: PluginId, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Remove a plugin and every release of it.

    Settings and secrets stay, and older versions stay refused.
    """
    with told(as_json):
        _show(_installer(store).uninstall(plugin_id), "is uninstalled", as_json)


def _installer(store: Path | None) -> Installer:
    from plugbay.packages.installer import Installer

    return Installer(store_at(store), trust_in(None), now)


def to_json(installed: Installed) -> dict[str, Any]:
    """The public shape."""
    return {
        "id": installed.id,
        "folder": str(installed.folder),
        "pinned": installed.state.pinned,
        "highest": installed.state.highest.version,
        **installed.current.model_dump(),
        "earlier": [release.model_dump() for release in reversed(installed.earlier)],
    }


def _show(installed: Installed, words: str, as_json: bool) -> None:
    if as_json:
        output.print_json(to_json(installed))
    else:
        output.out().line((installed.id, output.NAME), f" {installed.current.version} {words}")
