"""`plugbay outdated`: installed plugins that have a newer release in the registry from which they came."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from plugbay.cli.exit_codes import Exit
from plugbay.cli.options import AsJson
from plugbay.cli.packages.common import PlainHttp, StoreDir, allowed_registries, open_store, report_refusals
from plugbay.cli.render import output
from plugbay.packages.errors import PackageRefused

if TYPE_CHECKING:
    from plugbay.packages.reference import Reference, Registries
    from plugbay.packages.store import Installed

SECONDS = 60.0
"""For the tags of one repository."""


class Status(StrEnum):
    """Whether there is a newer release."""

    OUTDATED = "outdated"
    CURRENT = "current"
    UNKNOWN = "unknown"


class Update(NamedTuple):
    """An installed plugin and the newest release in its registry."""

    installed: Installed
    status: Status
    latest: Reference | None = None
    reason: str = ""
    """Why nothing is known."""
    refused: PackageRefused | None = None
    """The failure of the registry."""

    @property
    def version(self) -> str | None:
        from plugbay.packages.releases import version_of

        return None if self.latest is None or self.latest.tag is None else version_of(self.latest.tag)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.installed.id,
            "version": self.installed.current.version,
            "status": str(self.status),
            "latest": self.version,
            "reference": None if self.latest is None else str(self.latest),
            "pinned": self.installed.state.pinned,
            "source": self.installed.current.source,
            "reason": self.reason,
        }


def outdated(store: StoreDir = None, plain_http: PlainHttp = False, as_json: AsJson = False) -> None:
    """List the installed plugins with the newest release in the registry they came from.

    Asks registries for their tags; downloads and installs nothing. Exits with 9 when a plugin is outdated.
    """
    with report_refusals(as_json):
        found = find_updates(store, plain_http=plain_http)
    if as_json:
        output.print_json({"plugins": [update.to_json() for update in found]})
    elif found:
        output.out().table(("PLUGIN", "VERSION", "LATEST", "STATUS"), [_row(update) for update in found])
    else:
        output.note(f"no plugin is installed in {open_store(store).root}")
    if any(update.status is Status.OUTDATED for update in found):
        raise typer.Exit(Exit.FINDINGS)


def _row(update: Update) -> tuple[tuple[str, ...], list[output.Part]]:
    installed = update.installed
    pinned = f"{output.DOT}pinned" if installed.state.pinned else ""
    why = f": {update.reason}" if update.reason else ""
    style = output.WARN_STYLE if update.status is Status.OUTDATED else output.DIM
    return (installed.id, installed.current.version, update.version or "-"), [(f"{update.status}{why}{pinned}", style)]


def find_updates(store: Path | None, *, plain_http: bool) -> list[Update]:
    """Look for a newer release of each installed plugin; a registry that fails does not stop the others."""
    exceptions = allowed_registries()
    return [_find_update(installed, plain_http, exceptions) for installed in open_store(store).installed()]


def _find_update(installed: Installed, plain_http: bool, exceptions: Registries) -> Update:
    from plugbay.packages import releases
    from plugbay.packages.connection import Connection

    release = installed.current
    try:
        place = releases.origin(release.source)
        if place is None:
            return Update(installed, Status.UNKNOWN, reason=f"it was installed from the file {release.source}")
        plain_http = plain_http and place.is_local
        with Connection(place, plain_http=plain_http, registries=exceptions, seconds=SECONDS) as connection:
            latest = releases.newest(connection, place, release.version)
    except PackageRefused as error:
        return Update(installed, Status.UNKNOWN, reason=error.message, refused=error)
    if latest is None:
        return Update(installed, Status.UNKNOWN, reason=f"no tag of {place} is a version")
    newer = releases.is_newer(latest, release.version)
    return Update(installed, Status.OUTDATED if newer else Status.CURRENT, latest)
