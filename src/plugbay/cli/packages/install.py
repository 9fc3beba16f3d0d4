"""`plugbay install`, `upgrade`, `list`, `rollback`, `pin`, `unpin`, `uninstall`: the store of installed plugins.

Parses, prints, and asks for consent when an upgrade requests more capabilities. `packages.installer` verifies packages
and changes the store.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from plugbay.cli.completion import offer
from plugbay.cli.exit_codes import Exit, for_refusal
from plugbay.cli.options import AsJson
from plugbay.cli.packages.common import (
    SHORT_DIGEST,
    PlainHttp,
    StoreDir,
    TrustFile,
    as_refusal,
    now,
    open_store,
    open_trust_store,
    report_refusals,
)
from plugbay.cli.packages.outdated import Status, Update, find_updates
from plugbay.cli.packages.publish import fetch
from plugbay.cli.render import output
from plugbay.model.errors import ConfigInvalid, ManifestInvalid, PlugbayError
from plugbay.packages.errors import PackageRefused, Reason

if TYPE_CHECKING:
    from plugbay.packages.installer import Candidate, Installer
    from plugbay.packages.store import Installed

PackageName = Annotated[
    str, typer.Argument(metavar="FILE|REF", help="A package file, or oci://… for one in a registry.")
]
Unsigned = Annotated[bool, typer.Option("--allow-unsigned", help="Also accept a package without a signature.")]
Downgrade = Annotated[
    bool, typer.Option("--allow-downgrade", help="Also accept a version older than the installed one.")
]


def install(
    package: PackageName,
    store: StoreDir = None,
    trust: TrustFile = None,
    allow_unsigned: Unsigned = False,
    allow_downgrade: Downgrade = False,
    plain_http: PlainHttp = False,
    as_json: AsJson = False,
) -> None:
    """Verify a package and install it for hosts.

    Runs no code of the package, and grants nothing. Exits with 6 when the signature or the contents are invalid, with 5
    when a newer version was installed before.
    """
    with (
        report_refusals(as_json),
        _open_candidate(package, store, trust, allow_unsigned, plain_http) as (installer, candidate),
    ):
        if candidate.before and not candidate.unchanged:
            text = f"{candidate.package.id} {candidate.before.current.version} is already installed"
            raise PackageRefused(Reason.ALREADY_INSTALLED, text, hint=f"plugbay upgrade {package}")
        installed = installer.install(candidate, allow_downgrade=allow_downgrade)
        _show_result(installed, candidate, as_json)


def upgrade(
    package: Annotated[
        str | None, typer.Argument(metavar="FILE|REF", help="A package file, or oci://… for one in a registry.")
    ] = None,
    upgrade_all: Annotated[
        bool, typer.Option("--all", help="Upgrade each plugin from its registry, except pinned ones.")
    ] = False,
    store: StoreDir = None,
    trust: TrustFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Agree to all requested capabilities.")] = False,
    allow_unsigned: Unsigned = False,
    allow_downgrade: Downgrade = False,
    plain_http: PlainHttp = False,
    as_json: AsJson = False,
) -> None:
    """Replace an installed plugin by a newer release.

    Shows additional capabilities that it requests, and exits with 5 unless you agree. plugbay rollback undoes it.

    With --all, one failure does not stop the others; the exit status is that of the worst.
    """
    if (package is None) is not upgrade_all:
        raise typer.BadParameter("name one package, or give --all")
    if package is None:
        options = Options(store, trust, yes, allow_unsigned, allow_downgrade, plain_http)
        with report_refusals(as_json):
            _upgrade_all(options, as_json)
        return
    with (
        report_refusals(as_json),
        _open_candidate(package, store, trust, allow_unsigned, plain_http) as (installer, candidate),
    ):
        if candidate.before is None:
            text = f"{candidate.package.id} is not installed"
            raise PackageRefused(Reason.NOT_INSTALLED, text, hint=f"plugbay install {package}")
        _require_consent(candidate, yes)
        installed = installer.install(candidate, allow_downgrade=allow_downgrade)
        _show_result(installed, candidate, as_json)


class Options(NamedTuple):
    """The options of `upgrade --all`."""

    store: Path | None
    trust: Path | None
    yes: bool
    allow_unsigned: bool
    allow_downgrade: bool
    plain_http: bool


class Upgraded(NamedTuple):
    """One plugin after `upgrade --all`."""

    update: Update
    status: str
    """`upgraded`, `current`, `pinned`, `unknown` or `failed`."""
    version: str
    reason: str = ""
    refused: PackageRefused | None = None
    exit_status: int = Exit.OK

    def to_json(self) -> dict[str, Any]:
        installed = self.update.installed
        return {
            "id": installed.id,
            "status": self.status,
            "before": installed.current.version,
            "version": self.version,
            "reason": self.reason,
            "refused": self.refused and self.refused.to_json(),
        }


def _upgrade_all(options: Options, as_json: bool) -> None:
    found = [_upgrade_one(update, options) for update in find_updates(options.store, plain_http=options.plain_http)]
    if as_json:
        output.print_json({"plugins": [each.to_json() for each in found]})
    elif found:
        rows = [
            ((each.update.installed.id, each.update.installed.current.version, each.version), [_cell(each)])
            for each in found
        ]
        output.out().table(("PLUGIN", "BEFORE", "NOW", "RESULT"), rows)
    else:
        output.note(f"no plugin is installed in {open_store(options.store).root}")
    raise typer.Exit(max((each.exit_status for each in found), default=Exit.OK))


def _cell(each: Upgraded) -> output.Part:
    style = {"upgraded": output.GOOD_STYLE, "failed": output.BAD_STYLE}.get(each.status, "")
    return f"{each.status}: {each.reason}" if each.reason else each.status, style


def _upgrade_one(update: Update, options: Options) -> Upgraded:
    installed = update.installed
    version = installed.current.version
    if installed.state.pinned:
        return Upgraded(update, "pinned", version)
    if update.refused is not None:
        return _failed(update, update.refused)
    if update.status is not Status.OUTDATED:
        return Upgraded(update, str(update.status), version, update.reason)
    try:
        return Upgraded(update, "upgraded", _install_update(update, options).current.version)
    except (PackageRefused, ManifestInvalid, ConfigInvalid) as error:
        return _failed(update, as_refusal(error))
    except OSError as error:
        return Upgraded(update, "failed", version, str(error), exit_status=Exit.FAILURE)


def _failed(update: Update, refused: PackageRefused) -> Upgraded:
    version, status = update.installed.current.version, for_refusal(refused.reason)
    return Upgraded(update, "failed", version, refused.message, refused, status)


def _install_update(update: Update, options: Options) -> Installed:
    """Install a newer release with the rules of `upgrade`."""
    reference, id = update.latest, update.installed.id
    assert reference is not None
    plain_http = options.plain_http and reference.is_local
    opened = _open_candidate(str(reference), options.store, options.trust, options.allow_unsigned, plain_http)
    with opened as (installer, candidate):
        if candidate.package.id != id:
            text = f"{reference} holds {candidate.package.id}, not {id}"
            raise PackageRefused(Reason.IDENTITY_MISMATCH, text)
        _require_consent(candidate, options.yes)
        return installer.install(candidate, allow_downgrade=options.allow_downgrade)


@contextmanager
def _open_candidate(
    text: str, store: Path | None, trust: Path | None, allow_unsigned: bool, plain_http: bool
) -> Iterator[tuple[Installer, Candidate]]:
    """Fetch and verify a package; yields the installer and the candidate, which is gone after the block."""
    from plugbay.packages.installer import Installer
    from plugbay.packages.reference import is_reference

    installer = Installer(open_store(store), open_trust_store(trust), now)
    with tempfile.TemporaryDirectory(prefix="plugbay-") as scratch:
        archive, source = Path(text), ""
        if not is_reference(text) and not archive.exists():
            hint = "a package in a registry has a name like oci://REGISTRY/NAME:TAG"
            raise PackageRefused(Reason.NOT_FOUND, f"there is no file {text}", hint=hint)
        if is_reference(text):
            pulled = fetch(text, Path(scratch), plain_http=plain_http)
            archive, source = pulled.archive, str(pulled.reference)
        with installer.candidate(archive, source, allow_unsigned=allow_unsigned) as candidate:
            yield installer, candidate


def _require_consent(candidate: Candidate, yes: bool) -> None:
    """Show the differences; raise `PackageRefused` if new capabilities are requested and not agreed to."""
    changes, before = candidate.difference, candidate.before
    if changes is None or before is None or candidate.unchanged:
        return
    page, package = output.err(), candidate.package
    page.line((package.id, output.NAME), f" {before.current.version} → {package.version}")
    for mark, style, words, names in (
        ("+", output.WARN_STYLE, "requests", changes.asked),
        ("-", output.DIM, "no longer requests", changes.dropped),
        ("+", output.DIM, "exports", changes.added_exports),
        ("-", output.DIM, "no longer exports", changes.removed_exports),
    ):
        for name in names:
            page.line((mark, style), f" {words} ", (name, output.CODE), indent=2)
    if not changes.asked or yes:
        return
    if not output.confirm("Agree to the requested capabilities?"):
        text = f"{package.id} {package.version} requests more capabilities: {', '.join(changes.asked)}"
        raise PackageRefused(Reason.CONSENT_NEEDED, text, hint="--yes agrees to them", difference=changes.to_json())


def _show_result(installed: Installed, candidate: Candidate, as_json: bool) -> None:
    if as_json:
        output.print_json(_to_json(installed, candidate))
        return
    release, page = installed.current, output.out()
    page.line((installed.id, output.NAME), f" {release.version}")
    page.field("folder", str(installed.folder))
    page.field("digest", release.digest[:SHORT_DIGEST])
    page.field("signature", f"key {release.key_id}" if release.key_id else "none")
    page.field("requests", ", ".join(candidate.package.spec.capabilities) or ("no capabilities", output.DIM))
    if output.err().is_terminal:
        serve = f"plugbay serve {shlex.quote(str(installed.folder.parent))}"
        reload = f"plugbay reload {shlex.quote(installed.id)}"  # a running server keeps the old release until then

        output.err().line(("try: ", output.DIM), (serve if candidate.before is None else reload, output.CODE))


def _to_json(installed: Installed, candidate: Candidate) -> dict[str, Any]:
    """The public shape."""
    return {
        "id": installed.id,
        "folder": str(installed.folder),
        **installed.current.model_dump(),
        "changed": not candidate.unchanged,
        "difference": candidate.difference and candidate.difference.to_json(),
    }


# Installed plugins.


def _complete_installed(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    try:
        found = open_store(ctx.params.get("store")).installed()
    except (PlugbayError, OSError):  # a message would stand in the middle of the line that is typed
        return []
    return offer([(item.id, item.current.version) for item in found], incomplete)


PluginId = Annotated[str, typer.Argument(metavar="ID", help="An installed plugin.", autocompletion=_complete_installed)]


def list_(store: StoreDir = None, as_json: AsJson = False) -> None:
    """List the installed plugins, with their earlier releases."""
    place = open_store(store)
    with report_refusals(as_json):
        found = place.installed()
    if as_json:
        output.print_json({"folder": str(place.plugins), "plugins": [to_json(item) for item in found]})
        return
    if not found:
        output.note(f"no plugin is installed in {place.root}")
    for item in found:
        release = item.current
        pinned = f"{output.DOT}pinned" if item.state.pinned else ""
        signed = f"signed by key {release.key_id}" if release.key_id else "unsigned"
        about = f"{release.contract}{output.DOT}{signed}{output.DOT}{release.digest[:SHORT_DIGEST]}{pinned}"
        output.out().line((item.id, output.NAME), f" {release.version}  ", (about, output.DIM))
        if item.earlier:
            versions = ", ".join(earlier.version for earlier in reversed(item.earlier))
            output.out().field("earlier", versions)


def rollback(plugin_id: PluginId, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Return to the previous release of a plugin."""
    with report_refusals(as_json):
        _show(_installer(store).rollback(plugin_id), "is current again", as_json)


def pin(plugin_id: PluginId, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Keep a plugin at its current release. Upgrade and rollback refuse it."""
    with report_refusals(as_json):
        _show(_installer(store).pin(plugin_id, True), "is pinned", as_json)


def unpin(plugin_id: PluginId, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Allow upgrade and rollback of a pinned plugin again."""
    with report_refusals(as_json):
        _show(_installer(store).pin(plugin_id, False), "is no longer pinned", as_json)


def uninstall(plugin_id: PluginId, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Remove a plugin with all its releases.

    Settings and secrets stay. Older versions stay refused.
    """
    with report_refusals(as_json):
        _show(_installer(store).uninstall(plugin_id), "is uninstalled", as_json)


def _installer(store: Path | None) -> Installer:
    from plugbay.packages.installer import Installer

    return Installer(open_store(store), open_trust_store(None), now)


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
