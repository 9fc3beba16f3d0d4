"""`plugbay push` and `pull`, against a real registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.packages.builders import key, pack, sign
from tests.packages.registry_server import serve
from tests.support.requirements import requirement

PACKAGE = "acme.notes-1.0.0.tar.gz"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("registry")) as address:
        yield address


@requirement("vai:package-oci")
def test_a_package_is_pushed_under_its_version_and_pulled_by_digest(run: Run, cwd: Path, registry: str) -> None:
    pack(cwd)
    pushed = run("push", PACKAGE, f"oci://{registry}/acme/notes", "--plain-http")
    reference = pushed.out.strip()
    assert (pushed.code, reference.startswith(f"oci://{registry}/acme/notes:1.0.0@sha256:")) == (0, True)
    pulled = run("pull", reference, "--plain-http", "--json").json
    assert (cwd / pulled["file"]).read_bytes() == (cwd / PACKAGE).read_bytes()
    assert (pulled["reference"], pulled["signature"]) == (reference, None)
    shown = run("pull", reference, "--out", "x.tgz", "--plain-http")
    assert ("x.tgz" in shown.out, "signature none" in shown.out, shown.err) == (True, True, "")


def test_a_bar_is_for_terminals_only(run: Run, on_terminal: Callable[..., str], cwd: Path, registry: str) -> None:
    pack(cwd)
    place = f"oci://{registry}/acme/bars:1"
    assert "━" in on_terminal("push", PACKAGE, place, "--plain-http")
    done = run("pull", place, "--plain-http")
    assert (done.code, done.err) == (0, "")


def test_what_is_no_package_is_not_pushed(run: Run, cwd: Path, registry: str) -> None:
    (cwd / "x.tgz").write_bytes(b"not an archive")
    done = run("push", "x.tgz", f"oci://{registry}/acme/x", "--plain-http", "--json")
    assert (done.code, done.json["refused"]["reason"]) == (6, "bad_archive")


def test_a_signature_of_other_files_is_not_pushed(run: Run, cwd: Path, registry: str) -> None:
    package = sign(pack(cwd), key())
    place = f"oci://{registry}/acme/signed"
    assert run("push", package, f"{place}:1", "--plain-http").code == 0
    signature = Path(f"{package}.signature.json")
    pack(cwd, "2.0.0")
    signature.rename(cwd / "acme.notes-2.0.0.tar.gz.signature.json")
    done = run("push", "acme.notes-2.0.0.tar.gz", f"{place}:2", "--plain-http")
    assert (done.code, "sign it again" in done.err) == (6, True)
    assert run("pull", f"{place}:2", "--plain-http").code == 4


def test_mistakes_are_reported_with_their_status(run: Run, cwd: Path, registry: str) -> None:
    assert run("pull", f"oci://{registry}/acme/gone:1", "--plain-http").code == 4
    assert run("pull", "oci://registry.example/acme/x:1", "--plain-http").code == 5
    assert run("pull", "not a reference").code == 4
    done = run("pull", f"oci://{registry}/acme/x:1")
    assert (done.code, "--plain-http" in done.err) == (1, True)
