"""The store: one link says what is current, and whatever happens to a process, nothing half is ever reachable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay import SyncHost
from plugbay.model.errors import ConfigInvalid
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.store import Highest, Release, State, Store
from tests.packages.builders import PLUGIN, Bench
from tests.support.requirements import requirement


def test_a_store_that_does_not_exist_holds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "gone")
    assert (store.installed(), store.find("x"), store.state("x")) == ([], None, None)
    assert not (tmp_path / "gone").exists()


def test_the_folder_of_plugins_is_what_a_host_loads(bench: Bench) -> None:
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
    assert (installed.folder / "run.sh").stat().st_mode & 0o777 == 0o755


def release(digit: str, version: str) -> Release:
    return Release(
        digest=f"sha256:{digit * 64}", version=version, contract="rune", source="f", key_id=None, installed_at="now"
    )


def test_the_link_alone_says_what_is_current(tmp_path: Path) -> None:
    store = Store(tmp_path)
    highest = Highest(version="3", digest=f"sha256:{'3' * 64}")
    releases = [release(digit, digit) for digit in "123"]
    with store.locked():
        store.record(State(id="p", highest=highest, releases=releases))
        assert store.find("p") is None
        for position, item in enumerate(releases):
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


def test_sweeping_removes_what_nothing_leads_to_and_keeps_the_rest(bench: Bench) -> None:
    bench.install(bench.release("1.0.0"))
    root = bench.store.root
    before = sorted(root.rglob("*"))
    (root / "packages" / ("f" * 64) / "x").mkdir(parents=True)
    (root / "tmp" / "abandoned" / "x").mkdir(parents=True)
    (root / "tmp" / "link").symlink_to("nowhere")
    with bench.store.locked():
        bench.store.sweep()
    assert sorted(root.rglob("*")) == before


def test_the_staging_folder_of_a_living_process_is_not_swept_and_is_for_nobody_else(tmp_path: Path) -> None:
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
    (old / "left-behind").write_text("by the plugin itself")
    assert bench.install(one, allow_downgrade=True) == "1.0.0"
    bench.install(two)
    (old / "run.sh").write_text("#!/bin/sh\necho owned\n")
    with pytest.raises(PackageRefused) as caught:
        bench.install(one, allow_downgrade=True)
    assert (caught.value.reason, caught.value.detail["file"]) == (Reason.TAMPERED, "run.sh")
