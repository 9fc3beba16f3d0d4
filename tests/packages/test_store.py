"""The store: the link decides which release is current, and no crash leaves a partial release reachable."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay import CallFailed, SyncHost
from plugbay.cli.exit_codes import Exit
from plugbay.host.disk.release import LIST
from plugbay.model.errors import ConfigInvalid, ManifestInvalid
from plugbay.packages import archive
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.installer import Installer
from plugbay.packages.store import Highest, Release, State, Store, store_of
from tests.packages.builders import NOW, PLUGIN, Bench, plugin
from tests.support.commands import plugbay
from tests.support.requirements import requirement


def test_a_store_that_does_not_exist_holds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "gone")
    assert (store.installed(), store.find("x"), store.state("x")) == ([], None, None)
    assert not (tmp_path / "gone").exists()


def test_a_store_is_known_by_its_folder_of_plugins_also_through_a_link(bench: Bench, tmp_path: Path) -> None:
    assert store_of(bench.store.plugins) is None, "nothing is there"
    bench.store.create()
    bench.install(bench.release("1.0.0"))
    with bench.store.staging():
        (tmp_path / "link").symlink_to(bench.store.plugins)
        for folder in (bench.store.plugins, tmp_path / "link"):
            found = store_of(folder)
            assert found is not None and found.root == bench.store.root
    assert store_of(bench.store.root) is None


@pytest.mark.parametrize("other", ["packages/web", "tmp/notes.txt"])
def test_folders_with_other_contents_are_no_store_because_a_change_would_delete_them(bench: Bench, other: str) -> None:
    bench.store.create()
    assert store_of(bench.store.plugins) is not None, "the control"
    (bench.store.root / other).mkdir()
    assert store_of(bench.store.plugins) is None


@pytest.mark.parametrize("missing", ["packages", "state", "tmp"])
def test_a_folder_of_plugins_alone_is_no_store(bench: Bench, missing: str) -> None:
    bench.store.create()
    (bench.store.root / missing).rmdir()
    assert store_of(bench.store.plugins) is None


def test_a_host_loads_the_plugins_folder_of_a_store(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    with SyncHost.load(bench.store.plugins) as host:
        assert host.call("t", {}) == {"version": "1.0.0"}


def test_a_release_lies_under_its_digest_in_a_folder_with_the_plugins_name(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    installed = bench.store.find(PLUGIN)
    assert installed is not None
    digest = installed.current.digest.removeprefix("sha256:")
    assert os.readlink(installed.folder) == f"../packages/{digest}/{PLUGIN}"
    assert installed.folder.resolve() == bench.store.package_folder(installed.current.digest, PLUGIN).resolve()


@requirement("vai:package-read-only")
def test_a_release_is_read_only_and_readable_whatever_the_umask_says(bench: Bench) -> None:
    before = os.umask(0o077)
    try:
        bench.install(bench.release("1.0.0"))
    finally:
        os.umask(before)
    release = (bench.store.plugins / PLUGIN).resolve()
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (release, *release.iterdir())}
    plain = dict.fromkeys(("rterm-plugin.json", "marketplace.signature.json"), 0o444)
    assert modes == {PLUGIN: 0o555, "run.sh": 0o555, **plain}


def test_a_release_gets_another_signature_stays_read_only_and_is_discarded(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    installed = bench.store.find(PLUGIN)
    assert installed is not None
    digest = installed.current.digest
    release = bench.store.package_folder(digest, PLUGIN)
    with bench.store.locked():
        bench.store.replace_signature(digest, PLUGIN, b"another")
    file = release / "marketplace.signature.json"
    assert file.read_bytes() == b"another"
    assert [path.stat().st_mode & 0o7777 for path in (release, file)] == [0o555, 0o444]
    with bench.store.locked():
        bench.store.discard(digest)
        bench.store.discard(digest)
    assert not release.parent.exists() and list((bench.store.root / "tmp").iterdir()) == []


def as_anybody() -> None:
    """Drop capabilities, so that file modes count for root too."""
    if os.geteuid() == 0:
        drop, override, search = 24, 1, 2  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc = ctypes.CDLL(None)
        assert libc.prctl(drop, override, 0, 0, 0) == libc.prctl(drop, search, 0, 0, 0) == 0


COMPILING = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from plugbay import CallFailed, SyncHost
from plugbay.host.disk.release import LIST
from plugbay.packages.installer import Installer
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustStore

folder, store = Path(sys.argv[1]), Store(Path(sys.argv[2]))
installer = Installer(store, TrustStore(Path("/nowhere")), lambda: datetime(2026, 11, 15, tzinfo=UTC))

def call(plugins):
    with SyncHost.load(plugins) as host:
        return host.call("t", {})["version"]

def compiled(place):
    return sorted(path.name for path in Path(place).resolve().rglob("__pycache__"))

print(call(folder), compiled(folder))
for package in sys.argv[3:]:
    with installer.candidate(Path(package), allow_unsigned=True) as candidate:
        installer.install(candidate)
    print(call(store.plugins), compiled(store.root))
installer.rollback("acme.notes")
print(call(store.plugins), compiled(store.root))
installer.uninstall("acme.notes")
print(os.listdir(store.plugins), os.listdir(store.root / "packages"), os.listdir(store.root / "tmp"))
"""


@requirement("vai:package-read-only")
def test_a_release_stays_as_it_is_when_it_runs_and_goes_when_it_is_removed(tmp_path: Path) -> None:
    folders = [plugin(tmp_path, version) for version in ("1.0.0", "2.0.0")]
    for folder in folders:
        (folder / "helper.py").write_text("")
        script = folder / "run.sh"
        script.write_text(script.read_text().replace("\n", f"\n{sys.executable} -c 'import helper' </dev/null\n", 1))
    packages = [str(archive.pack(folder, tmp_path).path) for folder in folders]
    command = [sys.executable, "-c", COMPILING, str(folders[0]), str(tmp_path / "store"), *packages]
    done = subprocess.run(command, preexec_fn=as_anybody, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        ["1.0.0 ['__pycache__']", "1.0.0 []", "2.0.0 []", "1.0.0 []", "[] [] []"],
    )


CONFINED = """
[sandbox]
require = true
"""


@pytest.mark.parametrize("config", ["", CONFINED], ids=["unconfined", "confined"])
def test_a_release_that_was_changed_after_it_was_installed_is_not_started(bench: Bench, config: str) -> None:
    bench.root.chmod(0o755)
    (bench.root / "plugbay.toml").write_text(config)
    bench.install(bench.release("1.0.0"))
    release = (bench.store.plugins / PLUGIN).resolve()
    with SyncHost.load(bench.store.plugins, config=bench.root / "plugbay.toml") as host:
        assert host.call("t", {}) == {"version": "1.0.0"}
        release.chmod(0o755)
        (release / "run.sh").chmod(0o755)
        (release / "run.sh").write_text((release / "run.sh").read_text().replace("1.0.0", "evil"))
        with pytest.raises(CallFailed) as refused:
            host.call("t", {})
        assert (refused.value.code, refused.value.failure.detail["file"]) == ("launch_failed", "run.sh")
        (release.parent / LIST).unlink()  # the positive control: without its list the changed program runs
        assert host.call("t", {}) == {"version": "evil"}


def test_a_manifest_that_was_changed_while_it_was_read_starts_nothing_though_it_is_restored(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    manifest = (bench.store.plugins / PLUGIN).resolve() / "rterm-plugin.json"
    manifest.chmod(0o644)
    good = manifest.read_text()
    manifest.write_text(good.replace("./run.sh", "/bin/cat"))
    with pytest.raises(ManifestInvalid, match="changed after the package was installed"):
        SyncHost.load(manifest.parent)
    (manifest.parent.parent / LIST).rename(manifest.parent.parent / "list")  # the positive control: without its list
    host = SyncHost.load(manifest.parent)
    assert [status.spec.command for status in host.plugins()] == [("/bin/cat",)]
    manifest.write_text(good)


@pytest.mark.parametrize("words", [["call", "PLUGIN", "t", "{}"], ["conform", "PLUGIN"]], ids=lambda words: words[0])
def test_a_command_that_would_start_a_changed_release_ends_with_the_status_of_integrity(
    bench: Bench, words: list[str]
) -> None:
    bench.install(bench.release("1.0.0"))
    release = (bench.store.plugins / PLUGIN).resolve()
    release.chmod(0o755)
    (release / "added.py").write_text("")
    done = plugbay(*(release if word == "PLUGIN" else word for word in words), cwd=bench.root)
    assert done.returncode == Exit.INTEGRITY, done
    assert b"'added.py' is not part of the installed package" in done.stderr


def test_a_store_may_be_a_link_to_another_place(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    installer = Installer(Store(tmp_path / "link"), bench.trust, lambda: NOW)
    with installer.candidate(bench.release("1.0.0")) as candidate:
        installer.install(candidate)
    assert [item.id for item in Store(tmp_path / "link").installed()] == [PLUGIN]
    with SyncHost.load(tmp_path / "link" / "plugins") as host:
        assert host.call("t", {}) == {"version": "1.0.0"}


def release(digit: str, version: str) -> Release:
    return Release(
        digest=f"sha256:{digit * 64}", version=version, contract="rune", source="f", key_id=None, installed_at="now"
    )


def test_the_link_alone_decides_on_the_current_release(tmp_path: Path) -> None:
    store = Store(tmp_path)
    highest = Highest(version="3", digest=f"sha256:{'3' * 64}")
    releases = [release(digit, digit) for digit in "123"]
    with store.locked():
        store.record(State(id="p", highest=highest, releases=releases))
        assert store.find("p") is None
        for position, item in enumerate(releases):
            store.package_folder(item.digest, "p").mkdir(parents=True)
            store.switch("p", item.digest)
            found = store.find("p")
            assert found is not None
            assert (found.current, found.earlier) == (item, releases[:position])
        store.unlink("p")
    assert (store.find("p"), store.installed()) == (None, [])


def test_a_link_that_leads_elsewhere_is_no_installed_plugin(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.locked():
        store.record(State(id="p", highest=Highest(version="1", digest=f"sha256:{'1' * 64}")))
        (store.plugins / "p").symlink_to("/etc")
    assert store.find("p") is None


@pytest.mark.parametrize("text", ["", "{}", '{"id": "other", "highest": {"version": "1", "digest": "sha256:0"}}'])
def test_a_state_of_no_use_is_an_error_that_names_its_file(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path)
    with store.locked():
        (tmp_path / "state" / "p.json").write_text(text)
    with pytest.raises(ConfigInvalid, match=r"p\.json"):
        store.find("p")


def test_a_state_in_another_plugins_file_is_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.locked():
        store.record(State(id="p", highest=Highest(version="1", digest=f"sha256:{'1' * 64}")))
        (tmp_path / "state" / "p.json").rename(tmp_path / "state" / "q.json")
    with pytest.raises(ConfigInvalid, match="another file"):
        store.state("q")


def test_sweeping_removes_unreferenced_folders_and_keeps_the_rest(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    root = bench.store.root
    before = sorted(root.rglob("*"))
    (root / "packages" / ("f" * 64) / "x").mkdir(parents=True)
    (root / "tmp" / "abandoned" / "x").mkdir(parents=True)
    (root / "tmp" / "link").symlink_to("nowhere")
    with bench.store.locked():
        bench.store.sweep()
    assert sorted(root.rglob("*")) == before


def test_the_staging_folder_of_a_running_process_is_private_and_not_swept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.staging() as own:
        with store.locked():
            store.sweep()
        assert own.is_dir()
        assert own.stat().st_mode & 0o777 == 0o700
    assert not own.exists()


def test_the_staging_folder_of_a_killed_process_is_swept(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from plugbay.packages.store import Store\n"
        "with Store(pathlib.Path(sys.argv[1])).staging() as own:\n"
        "    (own / 'half').write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert len(os.listdir(tmp_path / "tmp")) == 1
    store = Store(tmp_path)
    with store.locked():
        store.sweep()
    assert os.listdir(tmp_path / "tmp") == []


@requirement("vai:package-immutable")
def test_a_release_that_was_changed_in_the_store_is_not_taken_for_the_package(bench: Bench) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")
    bench.install(one)
    bench.install(two)
    installed = bench.store.find(PLUGIN)
    assert installed is not None
    old = bench.store.package_folder(installed.earlier[0].digest, PLUGIN)
    old.chmod(0o755)
    (old / "run.sh").chmod(0o755)
    (old / "left-behind").write_text("by the plugin itself")
    assert bench.install(one, allow_downgrade=True) == "1.0.0"
    bench.install(two)
    (old / "run.sh").write_text("#!/bin/sh\necho owned\n")
    with pytest.raises(PackageRefused) as caught:
        bench.install(one, allow_downgrade=True)
    assert (caught.value.reason, caught.value.detail["file"]) == (Reason.TAMPERED, "run.sh")
