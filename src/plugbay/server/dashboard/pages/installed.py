"""Pages of the operator's installed plugins: list, install and upgrade with a look before the consent, roll back, pin,
unpin, uninstall.

The form of a consent names the digests that its page has shown: of the package, and of the release that it replaces.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from starlette.responses import Response

from plugbay.packages.rules import DEFAULT_LIMITS
from plugbay.packages.store import Installed, Store
from plugbay.packages.trust import TrustedKey
from plugbay.server.api.models import parse_page
from plugbay.server.api.routes.packages import SourceIn
from plugbay.server.dashboard.actions import Question, confirm, failed, is_confirmed, parse_body
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.pages.packages import FILES
from plugbay.server.dashboard.pages.plugins import plugin_path
from plugbay.server.dashboard.tables import SHOWN, Cell, Filter, NextStep, Table, table_of
from plugbay.server.dashboard.text import moment, sentence
from plugbay.server.dashboard.uploads import require_upload
from plugbay.server.dashboard.views.installed import (
    ReleaseRow,
    change_facts,
    look_of,
    registry_of,
    releases_of,
    short,
    signer_of,
)
from plugbay.server.dashboard.views.tones import CALM, GOOD, WARN
from plugbay.server.domain.errors import GatewayError, invalid, not_found
from plugbay.server.domain.installed_plugins import Changed
from plugbay.server.domain.principal import HOST
from plugbay.store.pages import Part

COLUMNS = ("Plugin", "Version", "Pinned", "Signed by", "From", "Since")

RELEASE_COLUMNS = ("Version", "Status", "Signed by", "From", "Digest", "Installed")

OPERATIONS = ("rollback", "pin", "unpin", "uninstall")

LAYOUT = "installing.html"


def installed_path(plugin_id: str) -> str:
    """The path of an installed plugin's page."""
    return f"/installed/{quote(plugin_id, safe='/')}"


# The list, and the way in.


@require_session(HOST)
async def show_installed(visit: Visit) -> Response:
    """The installed plugins, and the form for another one."""
    return await _installed_page(visit)


@require_upload(HOST, FILES)
async def upload_package(visit: Visit, files: Mapping[str, Path]) -> Response:
    """Keep an uploaded package, and show it before anything is installed."""
    try:
        if "archive" not in files:
            raise invalid("request.invalid", "choose the file of a package", "archive")
        signature = files.get("signature")
        data = None if signature is None else await asyncio.to_thread(signature.read_bytes)
        kept = await visit.gateway.installed_plugins.offer(visit.principal, files["archive"], data)
    except GatewayError as error:
        return await _installed_page(visit, error)
    return visit.redirect(f"/installing/{kept.id}")


@require_session(HOST)
async def pull_package(visit: Visit) -> Response:
    """The same for a package of a registry."""
    try:
        body = parse_body(SourceIn, {"source": visit.field("source").strip()})
        kept = await visit.gateway.installed_plugins.pull(visit.principal, body.source)
    except GatewayError as error:
        return await _installed_page(visit, error)
    return visit.redirect(f"/installing/{kept.id}")


async def _installed_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    store = await visit.gateway.installed_plugins.store()
    return visit.page(
        "installed.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        table=None if store is None else await _table(visit, store),
        form=_form(visit, visit.field("source"), problem),
        options="" if store is None else _options(visit, store),
        folders=[str(folder) for folder in visit.gateway.settings.folders],
    )


def _form(visit: Visit, source: str, problem: GatewayError | None = None) -> dict[str, object]:
    """The values of the form for a package."""
    return {
        "source": source,
        "most": DEFAULT_LIMITS.packed >> 20,
        "unsigned": visit.gateway.installed_plugins.allows_unsigned,
        "problem": problem,
    }


def _options(visit: Visit, store: Store) -> str:
    """Options of commands for the store and the trusted keys of these pages."""
    return f"--store {shlex.quote(str(store.root))} --trust {shlex.quote(str(visit.gateway.releases.trust.path))}"


async def _table(visit: Visit, store: Store) -> Table:
    search, cursor = visit.query("search"), visit.query("cursor")
    area = visit.gateway.installed_plugins
    part: Part[Installed] = await area.page(visit.principal, parse_page(SHOWN, cursor or None), search)
    keys = await area.keys(visit.principal)
    empty = NextStep(
        "No installed plugins",
        "Upload a package above: the next page shows its signature and its permissions before anything is installed. "
        "Or use a command with the same store and the same trusted publishers:",
        f"plugbay install weather-1.0.0.tar.gz {_options(visit, store)}",
    )
    return table_of(
        "Installed plugins",
        "/installed",
        COLUMNS,
        part,
        lambda item: installed_row(item, keys),
        filters=(Filter("search", "Search", search, hint="part of an id, version or origin"),),
        empty=empty,
        cursor=cursor,
    )


def installed_row(item: Installed, keys: Mapping[str, TrustedKey]) -> tuple[Cell, ...]:
    release = item.current
    signer = signer_of(release.key_id, keys)
    return (
        Cell(item.id, release.contract, installed_path(item.id)),
        Cell(release.version),
        Cell("pinned", tone=CALM) if item.state.pinned else Cell(),
        Cell(signer.word, release.key_id or "", tone=signer.tone),
        Cell(release.source.partition("@")[0]),
        Cell(at=moment(release.installed_at)),
    )


# The look before the consent.


@require_session(HOST)
async def show_package(visit: Visit) -> Response:
    """A kept package: all that it asks for, and its differences from the installed release."""
    return await _look_page(visit)


@require_session(HOST)
async def install_package(visit: Visit) -> Response:
    """Install exactly the package that was shown."""
    look_id = visit.request.path_params["look_id"]
    try:
        done = await visit.gateway.installed_plugins.install(
            visit.principal, look_id, visit.field("digest"), visit.field("before")
        )
    except GatewayError as error:
        if error.status == 404:
            raise
        return await _look_page(visit, error)
    return visit.redirect(installed_path(done.installed.id), _installed_notice(visit, done))


@require_session(HOST)
async def discard_package(visit: Visit) -> Response:
    """Remove a kept package without installing it."""
    await visit.gateway.installed_plugins.discard(visit.principal, visit.request.path_params["look_id"])
    return visit.redirect("/installed", Notice(GOOD, "The package was discarded. Nothing was installed."))


async def _look_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    look_id = visit.request.path_params["look_id"]
    kept, look = await visit.gateway.installed_plugins.look(visit.principal, look_id)
    return visit.page(
        "installed_look.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        look_id=look_id,
        look=look_of(look, kept.source, installed_path(look.spec.id)),
    )


def _installed_notice(visit: Visit, done: Changed) -> Notice:
    release = done.installed.current
    named = f"{done.installed.id} {release.version}"
    if done.is_same:
        return Notice(GOOD, f"{named} is installed already.")
    return _loaded_notice(visit, done, f"{named} is installed.")


def _loaded_notice(visit: Visit, done: Changed, text: str) -> Notice:
    """The notice of a change, with what is left to do."""
    if done.problem:
        return Notice(WARN, text, f"The server did not load it: {sentence(done.problem)}")
    hosted = visit.gateway.installed_plugins.hosted(done.installed)
    if hosted is None or not hosted.is_current:
        return Notice(WARN, text, "The plugin is stopped; it uses this release when it is started.")
    if hosted.missing:
        return Notice(WARN, text, f"Nothing was granted. It asks for {', '.join(hosted.missing)}.")
    return Notice(GOOD, text, "The server has loaded it.")


# One plugin.


@require_session(HOST)
async def show_plugin(visit: Visit) -> Response:
    """An installed plugin and its releases."""
    return await _plugin_page(visit)


async def _plugin_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    area = visit.gateway.installed_plugins
    item = await area.get(visit.principal, visit.request.path_params["plugin_id"])
    keys = await area.keys(visit.principal)
    releases = releases_of(item, keys)
    return visit.page(
        "installed_plugin.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        item=item,
        path=installed_path(item.id),
        plugin=plugin_path(item.id),
        hosted=area.hosted(item),
        current=next(row for row in releases if row.digest == item.current.digest),
        table=table_of(
            f"Releases of {item.id}",
            installed_path(item.id),
            RELEASE_COLUMNS,
            Part(tuple(releases)),
            release_cells,
            filters=(),
            empty=NextStep("No releases", ""),
        ),
        form=_form(visit, registry_of(item)),
    )


def release_cells(row: ReleaseRow) -> tuple[Cell, ...]:
    return (
        Cell(row.version),
        Cell(row.badge.word, row.badge.why, tone=row.badge.tone),
        Cell(row.signer.word, row.key_id, tone=row.signer.tone),
        Cell(row.source.partition("@")[0]),
        Cell(short(row.digest), mono=True),
        Cell(at=row.at),
    )


@require_session(HOST)
async def change_plugin(visit: Visit) -> Response:
    """Roll back or uninstall after a confirmation; pin or unpin at once."""
    operation = visit.request.path_params["operation"]
    if operation not in OPERATIONS:
        raise not_found("operation", operation)
    try:
        return await _change(visit, visit.request.path_params["plugin_id"], operation)
    except GatewayError as error:
        if error.status == 404:
            raise
        return await _plugin_page(visit, error)


async def _change(visit: Visit, plugin_id: str, operation: str) -> Response:
    area = visit.gateway.installed_plugins
    if operation == "rollback":
        return await _roll_back(visit, plugin_id)
    if operation == "uninstall":
        return await _uninstall(visit, plugin_id)
    done = await area.pin(visit.principal, plugin_id, operation == "pin")
    version = done.installed.current.version
    text = f"{plugin_id} is pinned to {version}." if operation == "pin" else f"{plugin_id} is no longer pinned."
    return visit.redirect(installed_path(plugin_id), Notice(GOOD, text))


async def _roll_back(visit: Visit, plugin_id: str) -> Response:
    area, to = visit.gateway.installed_plugins, visit.field("to")
    if is_confirmed(visit):
        done = await area.rollback(visit.principal, plugin_id, to)
        text = f"{plugin_id} {done.installed.current.version} is current again."
        return visit.redirect(installed_path(plugin_id), _loaded_notice(visit, done, text))
    shown = await area.look_back(visit.principal, plugin_id, to)
    signer = signer_of(shown.release.key_id, await area.keys(visit.principal))
    facts = (
        ("from", shown.installed.current.version),
        ("to", shown.release.version),
        ("digest", shown.release.digest),
        ("signed by", f"{signer.word}: {signer.why}" if signer.why else signer.word),
        *change_facts(shown.difference),
    )
    text = "The server replaces the plugin after its running calls. Grants stay; new requests wait for your decision."
    title = f"Roll {plugin_id} back to {shown.release.version}?"
    return confirm(visit, Question(title, text, "Roll back", installed_path(plugin_id), facts, LAYOUT))


async def _uninstall(visit: Visit, plugin_id: str) -> Response:
    area = visit.gateway.installed_plugins
    if is_confirmed(visit):
        await area.uninstall(visit.principal, plugin_id)
        return visit.redirect("/installed", Notice(GOOD, f"{plugin_id} is uninstalled."))
    item = await area.get(visit.principal, plugin_id)
    facts = (("version", item.current.version), ("releases", ", ".join(each.version for each in item.state.releases)))
    text = (
        "This removes all its releases; running calls may finish. Its settings, secrets and grants stay. "
        f"Versions older than {item.state.highest.version} stay refused."
    )
    return confirm(
        visit, Question(f"Uninstall {plugin_id}?", text, "Uninstall", installed_path(plugin_id), facts, LAYOUT)
    )
