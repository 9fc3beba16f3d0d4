"""Plugins on disk: found, or reported; one broken folder never hides the others."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from plugbay.contracts.vai.platforms import named
from plugbay.host.catalog.catalog import Catalog, Entry
from plugbay.host.config import settings
from plugbay.host.discovery.folders import MAX_MANIFEST, PluginFiles, contracts_in, discover, inspect, inspect_all
from plugbay.model.errors import Problem
from plugbay.model.topics import subject_problem
from plugbay.packages.package import folder_name
from plugbay.process.stderr import log_name
from tests.contracts.vai.manifests import EXAMPLE, EXAMPLE_SCHEMAS, OBJECT
from tests.support.ainb import write_ainb_plugin
from tests.support.mcp_servers import declare
from tests.support.plugins import write_manifest, write_plugin
from tests.support.requirements import requirement


def test_a_folder_of_plugins_and_a_plugin_folder_both_work(tmp_path: Path) -> None:
    write_plugin(tmp_path, "b")
    write_plugin(tmp_path, "a")
    (tmp_path / "not-a-plugin").mkdir()
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / ".hidden").mkdir()
    assert [found.spec.id for found in discover([tmp_path]) if found.spec] == ["a", "b"]
    (one,) = discover([tmp_path / "a"])
    assert one.spec is not None
    assert one.contract == "rune"


LOOKS_AT_SIBLINGS = """
import os, sys
from pathlib import Path
from plugbay.host.discovery.folders import sibling_plugins
if os.geteuid() == 0:  # for whom nothing is closed
    os.setgid(65534)
    os.setuid(65534)
print(*(folder.name for folder in sibling_plugins(Path(sys.argv[1]))))
"""


def test_a_closed_folder_beside_a_plugin_is_no_plugin_and_no_error() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("closed", "mine", "open"):
            write_plugin(Path(folder), name)
        (Path(folder) / "closed").chmod(0)
        command = [sys.executable, "-c", LOOKS_AT_SIBLINGS, f"{folder}/mine"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        (Path(folder) / "closed").chmod(0o755)
    assert (done.stdout, done.stderr) == ("open\n", "")


def test_one_broken_manifest_is_reported_beside_the_good_ones(tmp_path: Path) -> None:
    write_plugin(tmp_path, "good")
    (write_plugin(tmp_path, "bad") / "rterm-plugin.json").write_text("{")
    bad, good = discover([tmp_path])
    assert good.spec is not None
    assert bad.spec is None
    assert bad.errors[0].code == "parse_error"


def test_two_plugins_with_one_id_are_both_refused_and_each_names_the_other(tmp_path: Path) -> None:
    write_plugin(tmp_path / "x", "same")
    write_plugin(tmp_path / "y", "same")
    write_plugin(tmp_path / "x", "other")
    found = discover([tmp_path / "x", tmp_path / "y"])
    assert [item.spec.id for item in found if item.spec] == ["other"]
    twins = [item for item in found if item.spec is None]
    assert [twin.errors[0].code for twin in twins] == ["duplicate_id", "duplicate_id"]
    assert str(tmp_path / "y" / "same") in twins[0].errors[0].message


def test_a_symlink_loop_is_a_problem_and_a_symlink_to_a_plugin_works(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    write_plugin(tmp_path / "elsewhere", "linked")
    (tmp_path / "z").symlink_to(tmp_path / "elsewhere" / "linked")
    loop, linked = [item for item in discover([tmp_path]) if item.root.name != "elsewhere"]
    assert "symbolic link" in loop.errors[0].message
    assert linked.spec is not None


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"\xff\xfe", "parse_error"), (b" " * (MAX_MANIFEST + 1), "too_large")],
    ids=["not UTF-8", "too large"],
)
def test_a_manifest_that_cannot_be_read_is_one_problem(tmp_path: Path, content: bytes, code: str) -> None:
    (tmp_path / "rterm-plugin.json").write_bytes(content)
    assert [problem.code for problem in inspect(tmp_path).problems] == [code]


def test_a_manifest_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rterm-plugin.json").mkdir()
    assert inspect(tmp_path).problems[0].code == "unreadable"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("./missing", "missing"),
        ("./folder", "folder"),
        ("no-such-program-anywhere", "no-such-program-anywhere"),
    ],
)
def test_a_command_that_cannot_start_is_warned_about_before_the_first_call(
    tmp_path: Path, command: str, words: str
) -> None:
    (tmp_path / "folder").mkdir()
    write_manifest(tmp_path, "p", {"command": command})
    found = inspect(tmp_path)
    assert found.spec is not None
    assert [(problem.code, problem.severity) for problem in found.problems] == [("command_unusable", "warning")]
    assert words in found.problems[0].message


def test_a_working_directory_that_is_not_there_is_warned_about(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)
    write_manifest(folder, "p", {"command": "./run.sh", "dir": "nowhere"})
    assert inspect(folder).problems[0].path == "dir"


def test_a_folder_without_a_manifest_and_a_missing_one_are_not_found(tmp_path: Path) -> None:
    assert inspect(tmp_path).problems[0].code == "not_found"
    assert "rterm-plugin.json" in inspect(tmp_path).problems[0].message
    assert inspect(tmp_path / "missing").problems[0].code == "not_found"
    assert discover([tmp_path / "missing"])[0].problems[0].code == "not_found"


def test_a_plugin_reached_twice_is_one_plugin(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)
    (found,) = discover([tmp_path, folder, tmp_path / "." / "p"])
    assert found.spec is not None
    assert found.problems == ()


def test_manifests_of_that_common_name_that_are_no_plugins_are_passed_over(tmp_path: Path) -> None:
    for name, text in {"a": "[package]\nname = 'a'\n", "b": "", "c": "[plugin]\nid = 'c'\n", "d": "broken ="}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.toml").write_text(text)
    (tmp_path / "manifest.toml").write_text("[workspace]\n")
    write_ainb_plugin(tmp_path, "p")
    assert [found.root.name for found in discover([tmp_path])] == ["p"]


def test_inspected_by_itself_the_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "manifest.toml").write_text("[package]\nname = 'a'\n")
    (problem,) = inspect(tmp_path).problems
    assert problem.code == "not_found"
    assert "manifest.toml is not a plugin's manifest: it has no [plugin] table" in problem.message


@requirement("ainb:manifest-isolated")
def test_one_bad_ainb_manifest_hides_none_of_the_others(tmp_path: Path) -> None:
    plugins = tmp_path / "dist" / "plugins"
    for name in "abcde":
        write_ainb_plugin(plugins, name, screens=["main"])
    (plugins / "b" / "manifest.toml").write_text("[plugin]\nname = ")
    (plugins / "c" / "manifest.toml").write_bytes(b"[plugin]\n\xff")
    (plugins / "d" / "manifest.toml").write_text('[plugin]\nname = "host"\nversion = "1.0.0"\nabi_version = 2\n')
    found = {item.root.name: item for item in discover([plugins])}
    assert [name for name, item in found.items() if item.spec is not None] == ["a", "e"]
    assert [found[name].errors[0].code for name in "bcd"] == ["parse_error", "parse_error", "reserved_name"]
    assert {item.contract for item in found.values()} == {"ainb"}


@requirement("ainb:manifest-program")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda program: program.unlink(), "does not exist"),
        (lambda program: program.chmod(0o644), "is not executable"),
        (lambda program: (program.unlink(), program.mkdir()), "is a directory"),
    ],
    ids=["missing", "not executable", "a folder"],
)
def test_an_ainb_plugin_without_its_program_is_broken(
    tmp_path: Path, change: Callable[[Path], object], words: str
) -> None:
    root = write_ainb_plugin(tmp_path, "p")
    assert inspect(root).spec is not None
    change(root / "p")
    found = inspect(root)
    assert found.spec is None
    assert [(problem.code, problem.severity) for problem in found.problems] == [("program_unusable", "error")]
    assert f"{root / 'p'} {words}" in found.problems[0].message


@requirement("ainb:manifest-name")
def test_an_ainb_plugin_in_a_folder_of_another_name_is_broken(tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "p").rename(tmp_path / "q")
    assert [problem.code for problem in inspect(tmp_path / "q").errors] == ["name_mismatch"]


def test_beside_the_manifest_of_another_contract_a_file_of_a_common_name_counts_for_nothing(tmp_path: Path) -> None:
    root = write_ainb_plugin(tmp_path, "p")
    write_plugin(tmp_path, "p")
    (root / "manifest.toml").write_text('title = "of some other program"\n')
    found = inspect(root)
    assert (found.contract, found.problems) == ("rune", ())


def write_both(tmp_path: Path) -> Path:
    """A plugin of rune and ainb, as a source that serves both has it."""
    root = write_ainb_plugin(tmp_path, "p")
    write_plugin(tmp_path, "p")
    return root


def test_a_plugin_of_several_contracts_is_hosted_under_the_first_and_says_so(tmp_path: Path) -> None:
    found = inspect(write_both(tmp_path))
    assert found.contract == "rune"
    assert found.spec is not None
    assert [(problem.code, problem.severity) for problem in found.problems] == [("several_manifests", "warning")]
    assert "used as rune; for another contract name its manifest: manifest.toml" in found.problems[0].message


def test_a_plugin_of_several_contracts_is_hosted_under_the_one_that_is_preferred(tmp_path: Path) -> None:
    write_both(tmp_path)
    (found,) = discover([tmp_path], prefer="ainb")
    assert found.contract == "ainb"
    assert found.spec is not None
    assert "for another contract name its manifest: rterm-plugin.json" in found.problems[-1].message
    (found,) = discover([tmp_path], prefer="vai")
    assert found.contract == "rune"


@pytest.mark.parametrize("contract", ["rune", "ainb"])
def test_one_of_several_contracts_can_be_selected(tmp_path: Path, contract: str) -> None:
    found = inspect(write_both(tmp_path), contract)
    assert (found.contract, found.problems) == (contract, ())
    assert inspect(tmp_path / "p", "vai").problems[0].code == "not_found"


@pytest.mark.parametrize(("name", "contract"), [("rterm-plugin.json", "rune"), ("manifest.toml", "ainb")])
def test_a_manifest_that_is_named_is_the_one_that_counts(tmp_path: Path, name: str, contract: str) -> None:
    root = write_both(tmp_path)
    (found,) = discover([root / name])
    assert (found.root, found.contract, found.problems) == (root, contract, ())
    assert inspect(root / name) == found


def test_two_manifests_of_one_folder_are_two_plugins_when_both_are_named(tmp_path: Path) -> None:
    root = write_both(tmp_path)
    both = discover([root / "rterm-plugin.json", root / "manifest.toml", root / "manifest.toml"])
    assert [item.contract for item in both] == ["rune", "ainb"]


def test_the_contracts_of_a_folder_are_those_of_its_manifests(tmp_path: Path) -> None:
    assert contracts_in(write_both(tmp_path)) == ["rune", "ainb"]
    assert contracts_in(tmp_path) == []
    assert contracts_in(tmp_path / "nowhere") == []


# vai packages, whose manifests name other files.


def write_vai_package(root: Path, text: str = EXAMPLE) -> Path:
    (root / "schemas").mkdir(parents=True)
    (root / "bin").mkdir()
    for name in EXAMPLE_SCHEMAS:
        (root / name).write_bytes(OBJECT)
    (root / "bin" / "plugin").write_text("#!/bin/sh\nexit 0\n")
    (root / "bin" / "plugin").chmod(0o755)
    here = PluginFiles(root).platform
    text = text.replace('os = ["linux"', f'os = ["{here[0]}"').replace('arch = ["amd64"', f'arch = ["{here[1]}"')
    (root / "vai-plugin.toml").write_text(text)
    return root


@requirement("vai:manifest-file")
def test_a_vai_package_is_found_with_its_four_exports(tmp_path: Path) -> None:
    write_vai_package(tmp_path / "devkit")
    (found,) = discover([tmp_path])
    assert (found.contract, found.problems) == ("vai", ())
    assert found.spec is not None
    assert found.spec.id == "acme/devkit"
    assert len(found.spec.exports) == 4


@requirement("vai:manifest-file")
def test_a_vai_manifest_in_a_subfolder_only_is_not_found(tmp_path: Path) -> None:
    write_vai_package(tmp_path / "package" / "inner")
    assert [problem.code for problem in inspect(tmp_path / "package").problems] == ["not_found"]


@requirement("vai:manifest-entrypoint")
@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        (lambda root: (root / "bin/plugin").unlink(), "invalid_entrypoint", "runtime.entrypoint[0]"),
        (lambda root: (root / "bin/plugin").chmod(0o644), "invalid_entrypoint", "runtime.entrypoint[0]"),
        (lambda root: (root / EXAMPLE_SCHEMAS[0]).unlink(), "file_missing", "exports[0].config_schema"),
        (
            lambda root: ((root / EXAMPLE_SCHEMAS[0]).unlink(), (root / EXAMPLE_SCHEMAS[0]).symlink_to("/etc/passwd")),
            "path_escape",
            "exports[0].config_schema",
        ),
    ],
    ids=["no program", "a program that is none", "not a schema", "a schema elsewhere"],
)
def test_a_vai_package_without_a_file_that_it_names_is_broken(
    tmp_path: Path, change: Callable[[Path], object], code: str, path: str
) -> None:
    root = write_vai_package(tmp_path / "devkit")
    change(root)
    found = inspect(root)
    assert found.spec is None
    assert [(problem.code, problem.path) for problem in found.problems] == [(code, path)]


@requirement("vai:manifest-platform")
def test_a_vai_package_for_other_machines_is_listed_with_warnings(tmp_path: Path) -> None:
    text = EXAMPLE.replace('os = ["linux", "darwin"]', 'os = ["plan9"]')
    found = inspect(write_vai_package(tmp_path / "devkit", text))
    assert found.spec is not None
    assert [(problem.severity, problem.code) for problem in found.problems] == [("warning", "unsupported_platform")]


def test_an_interpreter_that_this_machine_lacks_is_only_warned_about(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    text = EXAMPLE.replace('"./bin/plugin"', '"deno", "main.ts"')
    found = inspect(write_vai_package(tmp_path / "devkit", text))
    assert found.spec is not None
    assert [(problem.severity, problem.code) for problem in found.problems] == [("warning", "command_unusable")]


@requirement("vai:manifest-id-is-no-path")
def test_an_id_with_a_slash_is_never_a_path(tmp_path: Path) -> None:
    (found,) = discover([write_vai_package(tmp_path / "devkit")])
    assert found.spec is not None
    id = found.spec.id
    names = {log_name(id), settings.file_name(id), folder_name(id)}
    assert names == {"acme%2Fdevkit.log", "acme%2Fdevkit.json", "acme%2Fdevkit"}
    assert folder_name("acme%2Fdevkit") != folder_name(id)
    assert subject_problem(f"plugin.lifecycle.{id}.started") is None
    entry = Catalog([found.spec]).resolve("acme/devkit/jira_search")
    assert isinstance(entry, Entry)
    assert entry.full_name == "acme/devkit/jira_search"


@requirement("vai:manifest-id-is-no-path")
def test_two_plugins_whose_exports_have_one_full_name_are_both_refused(tmp_path: Path) -> None:
    write_vai_package(tmp_path / "a")
    write_plugin(tmp_path, "acme", tools=[{"name": "devkit/jira_search"}])
    write_plugin(tmp_path, "other", tools=[{"name": "jira_search"}])
    found = {item.root.name: item for item in discover([tmp_path])}
    assert [name for name, item in found.items() if item.spec] == ["other"]
    for name in ("a", "acme"):
        (problem,) = found[name].errors
        assert problem.code == "duplicate_export"
        assert "'acme/devkit/jira_search' is also offered by" in problem.message


@requirement("mcp:host-sources")
def test_one_manifest_may_name_several_plugins_and_stand_beside_folders_of_others(tmp_path: Path) -> None:
    write_plugin(tmp_path, "p")
    declare(tmp_path, "one", {"command": "python3"})
    declare(tmp_path, "far", {"type": "sse", "url": "https://x.example/mcp"})
    found = discover([tmp_path])
    assert [(item.entry, item.spec is not None) for item in found] == [("one", True), ("far", False), ("", True)]
    assert [item.entry for item in discover([tmp_path / ".mcp.json"])] == ["one", "far"]
    assert [item.entry for item in inspect_all(tmp_path)] == ["one", "far"]
    assert inspect(tmp_path).errors[0].code == "several_plugins"


def test_a_file_that_was_named_twice_counts_once_and_one_id_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        declare(tmp_path / name, "one", {"command": "python3"})
    assert len(discover([tmp_path / "a", tmp_path / "a" / ".mcp.json"])) == 1
    assert [item.errors[0].code for item in discover([tmp_path])] == ["duplicate_id", "duplicate_id"]


def test_beside_the_manifest_of_another_contract_a_list_of_servers_has_to_be_named(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, "p")
    declare(folder, "one", {"command": "python3"})
    (found,) = discover([folder])
    assert (found.contract, found.problems[-1].code) == ("rune", "several_manifests")
    assert [item.contract for item in discover([folder], prefer="mcp")] == ["mcp"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    folder = tmp_path / "plugin"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "run").write_text("#!/bin/sh\n")
    (folder / "bin" / "run").chmod(0o755)
    (folder / "data").write_bytes(b"0123456789")
    return folder


def code(found: bytes | Problem) -> str:
    assert isinstance(found, Problem)
    return found.code


def test_a_file_is_read_up_to_its_limit(root: Path) -> None:
    files = PluginFiles(root)
    assert files.read("data", 10) == b"0123456789"
    assert files.read("./bin/../data", 11) == b"0123456789"
    assert code(files.read("data", 9)) == "too_large"


@requirement("vai:manifest-schema-paths")
def test_links_are_followed_inside_and_never_out(root: Path) -> None:
    (root / "inside").symlink_to("bin/../data")
    (root / "out").symlink_to("../outside/secret")
    (root / "folder").symlink_to("../outside")
    (root / "absolute").symlink_to(root.parent / "outside" / "secret")
    (root / "loop").symlink_to("loop")
    files = PluginFiles(root)
    assert files.read("inside", 100) == b"0123456789"
    for path in ("out", "folder/secret", "absolute", "../outside/secret"):
        assert code(files.read(path, 100)) == "path_escape"
        assert "leads out" in (files.program_problem(path) or "")
    assert code(files.read("loop", 100)) == "file_missing"


def test_a_folder_that_is_reached_through_a_link_is_the_folder_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert PluginFiles(tmp_path / "link").read("data", 100) == b"0123456789"


def test_a_file_that_is_not_regular_is_missing_and_does_not_block(root: Path) -> None:
    os.mkfifo(root / "pipe")
    files = PluginFiles(root)
    for path in ("pipe", "bin", "gone", "data/below", "a" * 300):
        assert code(files.read(path, 100)) == "file_missing"


@requirement("vai:manifest-entrypoint")
def test_a_program_must_be_there_and_executable(root: Path) -> None:
    files = PluginFiles(root)
    assert files.program_problem("./bin/run") is None
    assert "does not exist" in (files.program_problem("./bin/gone") or "")
    assert "not executable" in (files.program_problem("./data") or "")
    assert "is a directory" in (files.program_problem("./bin") or "")


def test_this_machine_is_named_as_python_names_it(root: Path) -> None:
    assert PluginFiles(root).platform == named(sys.platform, platform.machine())
