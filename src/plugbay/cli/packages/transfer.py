"""`plugbay push` and `pull`: packages to and from a registry, with progress bars. `packages.registry` verifies them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli.packages.common import AsJson, PlainHttp, format_size, report_refusals
from plugbay.cli.render import output

if TYPE_CHECKING:
    from rich.progress import TaskID

    from plugbay.packages.package import Package
    from plugbay.packages.reference import Reference
    from plugbay.packages.registry import Progress, Pulled

Where = Annotated[
    str, typer.Argument(metavar="REF", help="oci://registry/name, with :tag or @sha256:… where it matters.")
]


def push(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="What plugbay pack has made.")],
    reference: Where,
    plain_http: PlainHttp = False,
    as_json: AsJson = False,
) -> None:
    """Put a package, and the signature beside it, into a registry.

    Prints the reference to pull it by. The tag is its version unless you name one. A tag that holds another
    package is left alone.
    """
    from plugbay.packages import registry
    from plugbay.packages.connection import PUSH, Connection

    with report_refusals(as_json):
        package = _read_package(archive)
        place = _with_tag(reference, package)
        with Connection(place, plain_http=plain_http, actions=PUSH) as connection, progress_bars() as progress:
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
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="A file, or a folder; here, if left out.")] = None,
    plain_http: PlainHttp = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a package and its signature from a registry.

    Every byte is checked against the digest; plugbay verify checks the signature.
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
    with Connection(place, plain_http=plain_http) as connection, progress_bars() as progress:
        return registry.pull(connection, place, out, progress=progress)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A progress bar for each file on a terminal; nothing in a pipe."""
    console = output.err().console
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as display:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = display.add_task(what, total=total)
            display.update(tasks[what], completed=done)

        yield show
