"""`plugbay pack`: the archive, its digest, and refusals. The real command line."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.cli.conftest import Run
from tests.packages.builders import plugin
from tests.support.requirements import requirement


@requirement("vai:package-deterministic")
def test_a_folder_is_packed_and_its_digest_told(run: Run, cwd: Path) -> None:
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
    assert done.err.startswith("note:  plugin.py declares something else now than when this was written from it; ")


def test_a_signature_of_what_was_here_before_is_remarked_upon(run: Run, cwd: Path) -> None:
    folder = plugin(cwd)
    assert run("pack", folder).err == ""
    (cwd / "acme.notes-1.0.0.tar.gz.signature.json").write_text("{}")
    assert "plugbay sign makes one for this package" in run("pack", folder).err


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
