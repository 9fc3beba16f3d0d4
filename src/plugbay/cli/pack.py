"""`plugbay pack DIR`: a plugin's folder as one file that is the same for the same files.

Owns the command's words and its JSON; how an archive is made is `packages.archive`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import folders, output
from plugbay.cli.package_view import AsJson, size_text, told

if TYPE_CHECKING:
    from plugbay.packages.archive import Packed


def pack(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The plugin's folder.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of ID-VERSION.tar.gz here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Pack a plugin's folder into one file; the same files make the same digest.

    Left out: what tools leave behind (.git, __pycache__, .venv, …), keys, and what .plugbayignore names.
    """
    from plugbay.packages.archive import SUFFIX
    from plugbay.packages.archive import pack as make
    from plugbay.packages.folder import would_be_packed

    found = folders.look(path)
    if found.spec is None:
        raise typer.Exit(folders.refuse(found, "pack"))
    folder, place = folders.folder_of(path), out or Path()
    if would_be_packed(folder, place / f"any{SUFFIX}" if place.is_dir() else place):
        text = "the package would lie in the folder it is made of, and be a part of the next one"
        raise typer.BadParameter(f"{text}; name another place with --out")
    with told(as_json):
        packed = make(folder, out)
    if as_json:
        output.print_json(to_json(packed))
        return
    page, package = output.out(), packed.package
    page.line((package.id, output.NAME), f" {package.version}")
    page.field("file", str(packed.path))
    page.field("digest", packed.digest)
    page.field("size", f"{size_text(packed.size)}, {output.count(len(package.files), 'file')}")


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
