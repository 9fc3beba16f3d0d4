"""`plugbay pack`: the archive, its digest, and refusals. The real command line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.packages.builders import key, pack, plugin, sign
from tests.packages.registry_server import serve
from tests.support.requirements import requirement


@requirement("vai:package-deterministic")
def test_a_folder_is_packed_and_its_digest_printed(run: Run, cwd: Path) -> None:
    plugin(cwd)
    done = run("pack", "1.0.0/acme.notes")
    assert (done.code, done.err) == (0, "")
    digest = f"sha256:{hashlib.sha256((cwd / 'acme.notes-1.0.0.tar.gz').read_bytes()).hexdigest()}"
    assert (digest in done.out, "2 files" in done.out) == (True, True)
    shown = run("pack", "1.0.0/acme.notes", "--out", "x.tgz", "--json").json
    assert (shown["digest"], shown["id"], shown["version"]) == (digest, "acme.notes", "1.0.0")
    assert (shown["file"], shown["files"]) == ("x.tgz", ["rterm-plugin.json", "run.sh"])


def test_what_has_no_ending_is_a_folder_and_is_made(run: Run, cwd: Path) -> None:
    folder = plugin(cwd)
    for place in ("dist", "dist/", "deep/er/", "v1.0/"):
        run("pack", folder, "--out", place)
        assert (cwd / place / "acme.notes-1.0.0.tar.gz").is_file()
    run("pack", folder, "--out", "new/x.tgz")
    assert (cwd / "new" / "x.tgz").is_file()


def test_a_manifest_that_was_not_written_anew_is_remarked_upon(run: Run, cwd: Path) -> None:
    folder = cwd / "weather"
    folder.mkdir()
    source = "from plugbay.sdk import Plugin\nplugin = Plugin('weather')\nplugin.tool('t')(lambda: 1)\nplugin.run()\n"
    (folder / "plugin.py").write_text(source)
    run("manifest", "weather", "--contract", "rune")
    assert run("pack", "weather").err == ""
    (folder / "plugin.py").write_text(source.replace("'t'", "'u'"))
    done = run("pack", "weather", "--json")
    assert (done.code, done.json["id"]) == (0, "weather")
    assert done.err.startswith("note:  the declarations of plugin.py have changed since this manifest was written; ")


def test_a_signature_of_an_earlier_package_causes_a_note(run: Run, cwd: Path) -> None:
    folder = plugin(cwd)
    assert run("pack", folder).err == ""
    (cwd / "acme.notes-1.0.0.tar.gz.signature.json").write_text("{}")
    assert "plugbay sign makes a new one" in run("pack", folder).err


def test_a_folder_without_a_plugin_is_not_found(run: Run, cwd: Path) -> None:
    assert run("pack", ".").code == 4


def test_a_broken_manifest_is_listed(run: Run, cwd: Path) -> None:
    (cwd / "rterm-plugin.json").write_text("{}")
    done = run("pack", ".")
    assert (done.code, "plugin_id" in done.err) == (3, True)


def test_a_link_is_refused_with_a_way_out(run: Run, cwd: Path) -> None:
    (plugin(cwd) / "link").symlink_to("run.sh")
    done = run("pack", "1.0.0/acme.notes")
    assert (done.code, "symbolic link" in done.err, ".plugbayignore" in done.err) == (6, True, True)
    assert list(cwd.glob("*.tar.gz")) == []


@requirement("vai:package-deterministic")
def test_a_package_never_becomes_a_part_of_the_next_one(run: Run, cwd: Path) -> None:
    folder = plugin(cwd)
    for place in (folder, folder / "x.tgz"):
        done = run("pack", folder, "--out", place)
        assert (done.code, "--out" in done.err) == (2, True)
    assert sorted(path.name for path in folder.iterdir()) == ["rterm-plugin.json", "run.sh"]
    (folder / "rterm-plugin.json").rename(cwd / "rterm-plugin.json")
    assert run("pack", ".").code == 2


def test_a_package_may_lie_in_a_part_of_the_folder_that_is_ignored(run: Run, cwd: Path) -> None:
    folder = plugin(cwd)
    (folder / "dist").mkdir()
    (folder / ".plugbayignore").write_text("dist\n")
    one, two = (run("pack", folder, "--out", folder / "dist", "--json").json for _ in range(2))
    assert one["digest"] == two["digest"]


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


@requirement("vai:package-plain-http-named")
def test_a_registry_that_plugbay_toml_names_is_asked_without_tls(run: Run, cwd: Path, registry: str) -> None:
    pack(cwd)
    refused = run("pull", "oci://registry.example/acme/x:1", "--plain-http")
    assert refused.code == 5 and '[registries."registry.example"] plain_http = true' in refused.err
    (cwd / "plugbay.toml").write_text(f'[registries."{registry}"]\nplain_http = true\n')
    assert run("push", PACKAGE, f"oci://{registry}/acme/named").code == 0
    assert run("pull", f"oci://{registry}/acme/named:1.0.0", "--out", "named.tgz").code == 0
    (cwd / "plugbay.toml").write_text("[registries.x]\nplain = true\n")
    assert run("pull", f"oci://{registry}/acme/named:1.0.0").code == 3
