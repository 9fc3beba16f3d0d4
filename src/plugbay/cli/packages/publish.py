"""`plugbay pack`, `push` and `pull`: a plugin's folder as a reproducible archive, to and from a registry.

`packages.archive` makes archives; `packages.registry` transfers and verifies them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import lookup
from plugbay.cli.options import AsJson
from plugbay.cli.packages.common import PlainHttp, allowed_registries, format_size, report_refusals
from plugbay.cli.render import output

if TYPE_CHECKING:
    from rich.progress import TaskID

    from plugbay.host.discovery.folders import Found
    from plugbay.packages.archive import Packed
    from plugbay.packages.package import Package
    from plugbay.packages.reference import Reference
    from plugbay.packages.registry import Progress, Pulled


def pack(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The plugin's folder.")],
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE|DIR/", help="A file, or a folder for ID-VERSION.tar.gz; this directory by default."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pack a plugin's folder into one file. Equal files give equal digests.

    Leaves out files of tools (.git, __pycache__, .venv, …), keys, and the paths in .plugbayignore.
    """
    from plugbay.packages.archive import SUFFIX
    from plugbay.packages.archive import pack as make
    from plugbay.packages.package import would_be_packed

    found = lookup.find(path)
    if found.spec is None:
        raise lookup.refusal(found, "pack")
    folder, place = lookup.folder_of(path), Path(out or "")
    is_folder = place.is_dir() or not place.suffix or (out or "").endswith("/")
    if would_be_packed(folder, place / f"any{SUFFIX}" if is_folder else place):
        text = "the package would be inside the packed folder, and become part of the next package"
        raise typer.BadParameter(f"{text}; choose another path with --out")
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
    from plugbay.cli.manifest import generated
    from plugbay.packages.archive import signature_path
    from plugbay.packages.package import SIGNATURE_NAME

    for problem in generated.add_drift_warnings(found).problems[len(found.problems) :]:
        output.note(problem.message)
    signature = signature_path(packed.path)
    if signature.exists() and not (found.root / SIGNATURE_NAME).exists():
        output.note(f"{signature} belongs to an earlier package; plugbay sign makes a new one")


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


Where = Annotated[str, typer.Argument(metavar="REF", help="oci://registry/name, with an optional :tag or @sha256:….")]


def push(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="A package of plugbay pack.")],
    reference: Where,
    plain_http: PlainHttp = False,
    as_json: AsJson = False,
) -> None:
    """Upload a package and its signature to a registry.

    Prints the reference for plugbay pull. The default tag is the version. A tag of another package is not overwritten.
    """
    from plugbay.packages import registry
    from plugbay.packages.connection import PUSH, Connection

    with report_refusals(as_json):
        package = _read_package(archive)
        place = _with_tag(reference, package)
        exceptions = allowed_registries()
        with (
            Connection(place, plain_http=plain_http, actions=PUSH, registries=exceptions) as connection,
            progress_bars() as progress,
        ):
            pushed = registry.push(connection, place, archive, _annotations(package), progress)
    if as_json:
        output.print_json({"reference": str(pushed.reference), "digest": pushed.archive_digest})
        return
    output.out().line(str(pushed.reference))


def _read_package(archive: Path) -> Package:
    """Read an archive; raises `PackageRefused` for one that could not be installed, such as a wrong signature."""
    from plugbay.packages import signature as signatures
    from plugbay.packages.installer import signature_of
    from plugbay.packages.package import open_archive

    with tempfile.TemporaryDirectory(prefix="plugbay-") as scratch:
        opened = open_archive(archive, Path(scratch))
        data = signature_of(archive, opened)
        if data is not None:
            signatures.check_contents(signatures.read(data), opened.package)
        return opened.package


def _with_tag(text: str, package: Package) -> Reference:
    """The reference to push to; the default tag is the version."""
    from msgspec.structs import replace

    from plugbay.packages.reference import parse, tag_of

    place = parse(text)
    return replace(place, tag=place.tag or tag_of(package.version), digest=None)


def _annotations(package: Package) -> dict[str, str]:
    """OCI annotations for the registry's pages; `pull` does not trust them."""
    spec = package.spec
    prefix = "org.opencontainers.image."
    return {
        f"{prefix}title": spec.id,
        f"{prefix}version": spec.version,
        f"{prefix}description": spec.description,
    }


def pull(
    reference: Where,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file or a folder; this directory by default.")
    ] = None,
    plain_http: PlainHttp = False,
    as_json: AsJson = False,
) -> None:
    """Download a package and its signature from a registry.

    Checks all bytes against the digest; plugbay verify checks the signature.
    """
    with report_refusals(as_json):
        pulled = fetch(reference, out or Path(), plain_http=plain_http)
    if as_json:
        output.print_json(
            {
                "reference": str(pulled.reference),
                "file": str(pulled.archive),
                "signature": pulled.signature and str(pulled.signature),
                "digest": pulled.archive_digest,
                "size": pulled.size,
            }
        )
        return
    page = output.out()
    page.line(str(pulled.reference))
    page.field("file", str(pulled.archive), (f"  {format_size(pulled.size)}", output.DIM))
    page.field("signature", str(pulled.signature) if pulled.signature else "none")


def fetch(reference: str, out: Path, *, plain_http: bool) -> Pulled:
    """Pull a package into a file, with a progress bar."""
    from plugbay.packages import registry
    from plugbay.packages.connection import Connection
    from plugbay.packages.reference import parse

    place = parse(reference)
    exceptions = allowed_registries()
    with Connection(place, plain_http=plain_http, registries=exceptions) as connection, progress_bars() as progress:
        return registry.pull(connection, place, out, progress=progress)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A progress bar for each file on a terminal; nothing in a pipe."""
    if not output.err().is_terminal:
        yield lambda name, done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=output.err().console) as display:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = display.add_task(name, total=total)
            display.update(tasks[name], completed=done)

        yield show
