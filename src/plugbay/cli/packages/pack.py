"""`plugbay pack DIR`: pack a plugin's folder into a reproducible archive. `packages.archive` makes the archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import lookup
from plugbay.cli.packages.common import AsJson, format_size, report_refusals
from plugbay.cli.render import output
from plugbay.cli.render.manifest_problems import refuse

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.packages.archive import Packed


def pack(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The plugin's folder.")],
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE|DIR/", help="A file, or a folder for ID-VERSION.tar.gz; here by default."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pack a plugin's folder into one file; the same files make the same digest.

    Left out: what tools leave behind (.git, __pycache__, .venv, …), keys, and what .plugbayignore names.
    """
    from plugbay.packages.archive import SUFFIX
    from plugbay.packages.archive import pack as make
    from plugbay.packages.package import would_be_packed

    found = lookup.find(path)
    if found.spec is None:
        raise typer.Exit(refuse(found, "pack"))
    folder, place = lookup.folder_of(path), Path(out or "")
    is_folder = place.is_dir() or not place.suffix or (out or "").endswith("/")
    if would_be_packed(folder, place / f"any{SUFFIX}" if is_folder else place):
        text = "the package would lie in the folder it is made of, and be a part of the next one"
        raise typer.BadParameter(f"{text}; name another place with --out")
    (place if is_folder else place.parent).mkdir(parents=True, exist_ok=True)
    with report_refusals(as_json):
        packed = make(folder, place)
    _warn(found, packed)
    if as_json:
        output.print_json(to_json(packed))
        return
    page, package = output.out(), packed.package
    page.line((package.id, output.NAME), f" {package.version}")
    page.field("file", str(packed.path))
    page.field("digest", packed.digest)
    page.field("size", f"{format_size(packed.size)}, {output.count(len(package.files), 'file')}")


def _warn(found: Found, packed: Packed) -> None:
    """Warn about a manifest that is older than its source, and about a signature of an earlier archive."""
    from plugbay.cli.manifest import drift
    from plugbay.packages.archive import signature_path
    from plugbay.packages.package import SIGNATURE_NAME

    for problem in drift.add_warnings(found).problems[len(found.problems) :]:
        output.note(problem.message)
    signature = signature_path(packed.path)
    if signature.exists() and not (found.root / SIGNATURE_NAME).exists():
        output.note(f"{signature} was there already; plugbay sign makes one for this package")


def to_json(packed: Packed) -> dict[str, Any]:
    """The public shape."""
    package = packed.package
    return {
        "file": str(packed.path),
        "id": package.id,
        "version": package.version,
        "contract": package.spec.contract,
        "digest": packed.digest,
        "size": packed.size,
        "tree_sha256": package.tree_sha256,
        "files": sorted(package.files),
    }
