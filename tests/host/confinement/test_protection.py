"""Protected paths, which no plugin of any contract reaches: real hosts, as root and as another user."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.config.config import load
from plugbay.host.confinement.protection import KEY_FILE, Protection
from plugbay.host.discovery.folders import discover, inspect
from plugbay.host.discovery.servers import find_servers
from plugbay.model.protected import DATABASE, FILE, SETTINGS, Entry
from tests.process.sandbox.drivers import IDENTITIES
from tests.support.kaged import write_kaged_plugin
from tests.support.tiers import first_alone

BOTH = pytest.mark.parametrize("identity", first_alone(IDENTITIES))
DRIVER = Path(__file__).with_name("protection_driver.py")


@functools.cache
def report(identity: str) -> Any:
    """What became of every attack, on a host that protects and on one that does not."""
    # Somebody else may not get at the Python of these tests, but perhaps at the machine's own with the same packages.
    words = [*IDENTITIES[identity], sys.executable if identity == "root" else "/usr/bin/python3"]
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o777)
        packages = os.pathsep.join(path for path in sys.path if "site-packages" in path or path.endswith("src"))
        env = {"PATH": "/usr/bin:/bin", "HOME": home, "LC_ALL": "C.UTF-8", "PYTHONPATH": packages}
        if subprocess.run([*words, "-c", "import plugbay.host.host"], cwd="/", env=env, check=False).returncode:
            pytest.skip("somebody else cannot read this Python")
        done = subprocess.run(
            [*words, "-B", str(DRIVER)], capture_output=True, text=True, env=env, timeout=600, cwd="/", check=False
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@BOTH
def test_a_project_around_everything_shows_neither_data_nor_settings_nor_neighbours(identity: str) -> None:
    seen = report(identity)["protected"]["project"]
    assert "canary" not in json.dumps({path: said for path, said in seen.items() if path != "ROOT/note"})
    assert seen["ROOT/note"] == "canary of note"
    assert seen["ROOT/data"] == "" and seen["ROOT/plugbay.toml"] == "Permission denied"
    assert "def tool" not in seen["ROOT/plugins/reads/child.py"]


@BOTH
def test_the_same_project_shows_all_of_it_to_a_plugin_of_a_host_that_protects_nothing(identity: str) -> None:
    seen = report(identity)["open"]["project"]
    assert seen["ROOT/data/operator.token"] == "canary of data/operator.token"
    assert seen["ROOT/data/plugbay.db"] == "canary of data/plugbay.db"
    assert "[project]" in seen["ROOT/plugbay.toml"] and "def tool" in seen["ROOT/plugins/reads/child.py"]


@BOTH
@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        ("reads", "ROOT/data/plugbay.db must not be visible to a plugin: it is in ROOT/data, the server's data folder"),
        ("writes", "ROOT/plugins must not be written by a plugin: the host looks for plugins in ROOT/plugins"),
    ],
)
def test_a_manifest_that_names_a_protected_path_is_refused_with_the_reason(
    identity: str, plugin: str, words: str
) -> None:
    said = report(identity)["protected"]
    assert words in said[plugin]["refused"] and said[plugin]["hint"]
    assert said["statuses"][plugin].startswith("refused: ") and words in said["statuses"][plugin]


@BOTH
def test_the_same_manifests_get_it_from_a_host_that_protects_nothing(identity: str) -> None:
    said = report(identity)["open"]
    assert said["reads"]["seen"] == ["canary of data/plugbay.db"]
    assert said["writes"]["changed"] == ["changed", "changed"]


@BOTH
def test_a_manifest_that_names_a_folder_around_it_gets_the_rest(identity: str) -> None:
    *kept, neighbour, plain = report(identity)["protected"]["around"]["seen"]
    assert plain == "canary of note"
    assert set(kept) <= {"Permission denied", "No such file or directory"}
    assert neighbour == "No such file or directory"
    *kept, neighbour, _ = report(identity)["open"]["around"]["seen"]
    assert kept[1] == "canary of data/operator.token" and "def tool" in neighbour


@BOTH
def test_the_host_opens_none_of_it_for_a_plugin_either(identity: str) -> None:
    said = report(identity)["protected"]
    assert [said[f"asks {name}"] for name in ("plugbay.toml", "data/operator.token")] == [
        "capability denied: read_paths"
    ] * 2
    assert "ReadFile: ROOT/plugbay.toml is plugbay.toml, which no grant allows" in said["notes"]
    assert "ReadFile: ROOT/data/operator.token lies in the server's data folder, which no grant allows" in said["notes"]
    assert said["asks note"] == "canary of note\n"
    assert report(identity)["open"]["asks data/operator.token"] == "canary of data/operator.token\n"


@BOTH
def test_a_file_that_an_editor_replaces_is_out_of_sight_again_soon(identity: str) -> None:
    said = report(identity)["protected"]
    assert said["replaced"][-1] == "Permission denied"
    assert any("ROOT/plugbay.toml became visible to it" in text for text in said["spy's notes"])
    assert report(identity)["open"]["replaced"] == ["canary of what was saved"]


# The list.


def paths_of(protection: Protection, root: Path) -> dict[str, Entry]:
    spec = inspect(root).spec
    assert spec is not None
    return {entry.path: entry for entry in protection.of(spec).entries}


def test_the_list_has_all_that_plugbay_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "etc"))
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    root = write_kaged_plugin(tmp_path / "plugins", "mine")
    file = tmp_path / "plugbay.toml"
    file.write_text('[host]\nstate_dir = "state"\nlog_dir = "logs"\n[memory]\npath = "memory.db"\n')
    config = load(file)
    entries = paths_of(Protection(config, tmp_path / "state", tmp_path / "logs"), root)
    for name in ("share/plugbay", "etc/plugbay", "state", "logs"):
        assert str(tmp_path / name) in entries
    assert {name: entries[str(tmp_path / name)].kind for name in ("plugbay.toml", "key")} == {
        "plugbay.toml": SETTINGS,
        "key": FILE,
    }
    for name in ("memory.db", "memory.db-wal", "memory.db-shm", "memory.vectors.db", "memory.vectors.db-wal"):
        assert entries[str(tmp_path / name)].kind == DATABASE


def test_a_path_counts_as_it_was_written_and_as_it_is(tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path / "plugins", "mine")
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to("real")
    entries = paths_of(Protection(load(_config(tmp_path)), tmp_path / "way" / "state"), root)
    assert {str(tmp_path / "way" / "state"), str(tmp_path / "real" / "state")} <= set(entries)


def test_every_other_plugin_is_on_it_named_or_not_and_its_own_folder_is_not(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    roots = {name: str(write_kaged_plugin(plugins, name)) for name in ("mine", "other", "beside")}
    (plugins / "notes").mkdir()
    for found in (discover([plugins]), discover([plugins / "mine"])):
        entries = paths_of(Protection(load(_config(tmp_path)), found=found), Path(roots["mine"]))
        assert {roots["other"], roots["beside"]} <= set(entries)
        assert not {roots["mine"], str(plugins / "notes"), str(plugins)} & set(entries)


def test_only_a_folder_in_which_the_host_looks_for_plugins_is_a_plugins_folder(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    spec = inspect(write_kaged_plugin(plugins, "mine")).spec
    assert spec is not None
    for found, plugin_folders in ((discover([plugins]), (str(plugins),)), (discover([plugins / "mine"]), ())):
        assert Protection(load(_config(tmp_path)), found=found).of(spec).plugin_folders == plugin_folders


def test_a_server_declared_in_a_file_owns_no_folder_and_no_plugin_reads_the_file(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"files": {"command": "cat"}}}')
    mine = write_kaged_plugin(tmp_path, "mine")
    entries = paths_of(Protection(load(_config(tmp_path)), found=discover([tmp_path])), mine)
    assert str(tmp_path) not in entries
    assert entries[str(tmp_path / ".mcp.json")].kind == FILE


def test_a_server_of_the_settings_owns_its_bundle_and_not_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    server = {"type": "binary", "entry_point": "run", "mcp_config": {"command": "cat"}}
    manifest = {"manifest_version": "0.3", "name": "notes", "version": "2.0", "server": server}
    (tmp_path / "bundle" / "manifest.json").write_text(json.dumps(manifest))
    file = tmp_path / "plugbay.toml"
    file.write_text('[mcp.files]\ncommand = ["cat"]\n[mcp.packed]\nbundle = "bundle"\n')
    config = load(file)
    mine = write_kaged_plugin(tmp_path / "plugins", "mine")
    entries = paths_of(Protection(config, found=find_servers(config)), mine)
    assert str(tmp_path) not in entries
    assert entries[str(tmp_path / "bundle")].what == "the folder of the plugin packed"


def _config(folder: Path) -> Path:
    path = folder / "plugbay.toml"
    path.touch()
    return path
