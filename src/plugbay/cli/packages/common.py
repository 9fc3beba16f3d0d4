"""Shared by the package commands: options, the places of the store and of trusted keys, the report of refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli.exit_codes import for_refusal
from plugbay.cli.paths import directories
from plugbay.cli.render import output
from plugbay.model.errors import ConfigInvalid, ManifestInvalid
from plugbay.packages.errors import PackageRefused, Reason

if TYPE_CHECKING:
    from plugbay.packages.reference import Registries
    from plugbay.packages.store import Store
    from plugbay.packages.trust import TrustStore

TRUST_FILE = "trust.json"

StoreDir = Annotated[
    Path | None, typer.Option("--store", metavar="DIR", help="The store; plugbay paths shows the default data folder.")
]
TrustFile = Annotated[
    Path | None,
    typer.Option("--trust", metavar="FILE", help="The file of trusted keys; that of plugbay trust by default."),
]
PlainHttp = Annotated[
    bool,
    typer.Option(
        "--plain-http", help="Use HTTP without TLS, for a registry on this machine; plugbay.toml allows others."
    ),
]

SHORT_DIGEST = len("sha256:") + 12
"""Characters of a digest that are printed for people."""


def open_store(folder: Path | None) -> Store:
    """The store in `folder`, or in the data folder."""
    from plugbay.packages.store import Store

    return Store(folder or directories()["data"])


def open_trust_store(file: Path | None) -> TrustStore:
    """The trusted keys in `file`, or in the config folder."""
    from plugbay.packages.trust import TrustStore

    return TrustStore(file or directories()["config"] / TRUST_FILE)


def allowed_registries() -> Registries:
    """The registries that plugbay.toml of this directory allows more; raises `Refusal` for an invalid file."""
    from plugbay.cli.local_host import load_config
    from plugbay.packages.reference import Registries

    config = load_config(None)
    return Registries() if config is None else Registries.of(config.registries)


def now() -> datetime:
    """The current time; package commands use no other clock."""
    return datetime.fromtimestamp(time.time(), UTC)


@contextmanager
def report_refusals(as_json: bool) -> Iterator[None]:
    """End the command when the block raises a refusal: print it as text or JSON, and exit with its status."""
    try:
        yield
    except (PackageRefused, ManifestInvalid, ConfigInvalid) as error:
        if not as_json and isinstance(error, ManifestInvalid):
            raise  # `main` prints it, as for every other command

        refusal = as_refusal(error)
        if as_json:
            output.print_json({"refused": refusal.to_json()})
        else:
            output.problem(refusal.message, hint=refusal.hint)
        raise typer.Exit(for_refusal(refusal.reason)) from None


def as_refusal(error: PackageRefused | ManifestInvalid | ConfigInvalid) -> PackageRefused:
    """The error of a package as a refusal."""
    if isinstance(error, PackageRefused):
        return error
    reason = Reason.INVALID_MANIFEST if isinstance(error, ManifestInvalid) else Reason.INVALID_CONFIG
    problems = [problem.to_json() for problem in error.problems]
    hint = "correct the file, or delete it and lose its contents" if reason is Reason.INVALID_CONFIG else ""
    return PackageRefused(reason, str(error), hint=hint, problems=problems)


def format_size(size: int) -> str:
    """`512 bytes`, `1.2 KiB`, `34 MiB`."""
    number, units = float(size), ["KiB", "MiB", "GiB"]
    if size < 1024:
        return f"{size} bytes"
    while (number := number / 1024) >= 1024 and len(units) > 1:
        units.pop(0)
    return f"{number:.0f} {units[0]}" if number >= 10 else f"{number:.1f} {units[0]}"
