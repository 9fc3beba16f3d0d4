"""Each check of a plugin finds what would make its first call fail."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from plugbay.cli.doctor.checks import ERROR, OK, WARNING, Check
from plugbay.cli.doctor.plugin_checks import Readiness, check_command, check_interpreter, check_plugin, check_readiness
from plugbay.host.config.config import Config
from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.model.spec import PluginSpec
from plugbay.process.sandbox import programs
from tests.cli.conftest import MakePlugin, write_manifest
from tests.support.kaged import write_kaged_plugin
from tests.support.nexo import write_nexo_plugin
from tests.support.requirements import requirement


@pytest.fixture(autouse=True)
def _in_cwd(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cwd)


def by_id(path: Path) -> dict[str, Check]:
    return {check.id: check for check in check_plugin(path)}


def statuses(path: Path) -> dict[str, str]:
    return {name: check.status for name, check in by_id(path).items()}


def test_a_good_plugin_passes_every_check(make_plugin: MakePlugin) -> None:
    good = {"manifest": OK, "command": OK, "interpreter": OK, "confinement": OK, "handshake": OK, "grants": OK}
    assert statuses(make_plugin()) == good


def test_a_plugin_without_grants_is_a_finding_with_its_fix(make_plugin: MakePlugin, cwd: Path) -> None:
    folder = make_plugin(capabilities=["tool.execute"])
    pending = by_id(folder)["grants"]
    assert pending.status == WARNING
    assert "pending" in pending.detail
    assert "--grant tool.execute" in pending.fix
    (cwd / "plugbay.toml").write_text('[plugins."example.echo"]\ngrants = ["tool.execute"]\n')
    assert by_id(folder)["grants"].status == OK
    (cwd / "plugbay.toml").write_text('[plugins."example.echo"]\nenabled = false\n')
    assert "disabled" in by_id(folder)["grants"].detail


def test_a_handshake_without_a_declared_tool_is_an_error(make_plugin: MakePlugin) -> None:
    greeting = {"plugin_id": "example.echo", "plugin_version": "1", "protocol_version": "rterm.plugin.v1"}
    words = json.dumps({"type": "handshake", "manifest": {**greeting, "exposed_tools": ["other"]}})
    check = by_id(make_plugin(handshake=words))["handshake"]
    assert check.status == ERROR
    assert "does not offer echo" in check.detail


def test_each_plugin_of_a_folder_is_checked_under_its_name(make_plugin: MakePlugin, cwd: Path) -> None:
    make_plugin("one")
    write_manifest(cwd / "plugins" / "two", "{")
    found = by_id(Path("plugins"))
    assert list(found) == [
        "manifest:one",
        "command:one",
        "interpreter:one",
        "confinement:one",
        "handshake:one",
        "grants:one",
        "manifest:two",
    ]
    assert found["manifest:two"].status == ERROR
    assert found["manifest:two"].title == "two: Manifest"


def test_an_absent_plugin_and_a_broken_one_end_with_their_manifest(cwd: Path) -> None:
    assert statuses(Path("nowhere")) == {"manifest": ERROR}
    write_manifest(cwd / "broken", '{\n"plugin_id": 3\n}')
    found = by_id(Path("broken"))
    assert list(found) == ["manifest"]
    assert "line 2: plugin_id" in found["manifest"].detail
    assert found["manifest"].fix == "see plugbay inspect broken"


def test_a_manifest_with_warnings_is_a_warning(make_plugin: MakePlugin) -> None:
    assert statuses(make_plugin(colour="red"))["manifest"] == WARNING


def test_a_command_that_is_not_there_ends_the_checks(make_plugin: MakePlugin) -> None:
    found = by_id(make_plugin(process={"command": "./nope"}))
    assert [check.status for check in found.values()] == [OK, ERROR]
    assert "nope does not exist" in found["command"].detail


def test_a_working_directory_that_is_not_there_is_an_error(make_plugin: MakePlugin) -> None:
    found = by_id(make_plugin(process={"command": "./run.sh", "dir": "gone"}))
    assert found["command"].status == ERROR
    assert "gone" in found["command"].detail


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("#!/bin/sh", OK, "/bin/sh"),
        ("#!/usr/bin/env sh", OK, "/sh"),
        ("#!/usr/bin/env -S sh -e", OK, "/sh"),
        ("#!/opt/nowhere/python", ERROR, "/opt/nowhere/python"),
        ("#!/usr/bin/env no-such-interpreter", ERROR, "no-such-interpreter"),
        ("#!", ERROR, "an empty name after #!"),
        ("\x7fELF", OK, "needs none"),
    ],
)
def test_the_interpreter_of_a_script_is_looked_for(tmp_path: Path, line: str, status: str, words: str) -> None:
    script = tmp_path / "run"
    script.write_text(f"{line}\n")
    script.chmod(0o755)
    check = check_interpreter(PluginSpec("x", "1", "rune", tmp_path, ("./run",)))
    assert check.status == status
    assert words in check.detail


def test_the_interpreter_is_looked_for_in_the_plugins_own_path(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("#!/usr/bin/env sh\n")
    (tmp_path / "run").chmod(0o755)
    spec = PluginSpec("x", "1", "rune", tmp_path, ("./run",), env=(("PATH", "/nowhere"),))
    assert check_interpreter(spec).status == ERROR


def test_a_failed_handshake_is_reported_with_reason_and_stderr(make_plugin: MakePlugin, cwd: Path) -> None:
    plugin = make_plugin()
    (cwd / plugin / "run.sh").write_text("#!/bin/sh\necho 'no licence' >&2\nexit 4\n")
    check = by_id(plugin)["handshake"]
    assert check.status == ERROR
    assert check.detail.startswith("crashed: ")
    assert "exit code 4" in check.detail
    assert "no licence" in check.detail
    assert check.fix


def test_the_operators_settings_reach_the_handshake(make_plugin: MakePlugin, cwd: Path) -> None:
    plugin = make_plugin()
    script = cwd / plugin / "run.sh"
    script.write_text(script.read_text().replace("read -r _\n", '[ "$KEY" = yes ] || exit 5\nread -r _\n', 1))
    assert by_id(plugin)["handshake"].status == ERROR
    (cwd / "plugbay.toml").write_text('[plugins."example.echo".env]\nKEY = "yes"\n')
    assert by_id(plugin)["handshake"].status == OK


def test_a_resident_plugin_is_greeted_and_its_tools_compared(cwd: Path) -> None:
    write_nexo_plugin(cwd, tools=["echo"])
    assert by_id(cwd / "p")["handshake"].status == OK
    write_nexo_plugin(cwd, body="TOOLS.clear()\n", tools=["echo"])
    check = by_id(cwd / "p")["handshake"]
    assert check.status == ERROR
    assert "does not offer p_echo" in check.detail


SANDBOX = "[plugin.sandbox]\nenabled = true\n"


def test_a_plugin_is_greeted_as_confined_as_it_would_be(cwd: Path) -> None:
    body = 'open("started", "w").close()\n'
    root = write_nexo_plugin(cwd, body=body, tools=["echo"], more=SANDBOX)
    found = by_id(cwd / "p")
    assert (found["confinement"].status, found["confinement"].detail) == (OK, "confined · network none")
    assert found["handshake"].status == ERROR and "Read-only file system" in found["handshake"].detail
    assert not (root / "started").exists()
    (cwd / "plugbay.toml").write_text('[plugins.p.sandbox]\noff = "it is ours"\n')
    found = by_id(cwd / "p")
    assert (found["confinement"].status, found["confinement"].detail) == (WARNING, "unconfined: it is ours")
    assert found["handshake"].status == OK
    assert (root / "started").exists()


def test_what_cannot_be_shown_to_a_plugin_is_found_before_it_is_started(cwd: Path) -> None:
    write_nexo_plugin(cwd, tools=["echo"], more=SANDBOX)
    (cwd / "plugbay.toml").write_text('[plugins.p.sandbox]\nread = ["/etc"]\n')
    check = by_id(cwd / "p")["confinement"]
    assert check.status == ERROR and "must not be visible to a plugin" in check.detail and check.fix
    (cwd / "plugbay.toml").write_text('[plugins.p.sandbox]\nread = ["/no/such/folder"]\n')
    check = by_id(cwd / "p")["confinement"]
    assert (check.status, "/no/such/folder" in check.detail) == (WARNING, True)


def look(*folders: Path) -> Readiness:
    config = Config()
    return check_readiness(Host(discover([folder.absolute() for folder in folders]), config).plugins(), config)


@pytest.fixture(autouse=True)
def here(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cwd)


def test_plugins_are_counted_by_how_they_are_confined(make_plugin: MakePlugin, cwd: Path) -> None:
    make_plugin("echo")
    write_kaged_plugin(cwd / "plugins", "careful")
    found = look(cwd / "plugins")
    assert found == Readiness(("careful",), ("example.echo",), ())


def test_where_nothing_can_be_confined_a_plugin_that_asks_for_it_is_skipped_and_the_others_are_not(
    make_plugin: MakePlugin, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_plugin("echo")
    write_kaged_plugin(cwd / "plugins", "careful")
    (cwd / "bin").mkdir()
    for name in ("python3", "sh"):
        (cwd / "bin" / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(cwd / "bin"))
    found = look(cwd / "plugins")
    assert (found.confined, found.unconfined) == ((), ("example.echo",))
    [start_problem] = found.start_problems
    assert start_problem.plugin == "careful"
    assert "bwrap is not installed" in start_problem.why and "apt-get install bubblewrap" in start_problem.fix


def test_a_command_and_an_interpreter_that_are_missing_are_named(make_plugin: MakePlugin, cwd: Path) -> None:
    make_plugin("echo")
    make_plugin("lost", process={"command": "no-such-program"})
    script = cwd / make_plugin("scripted") / "run.sh"
    script.write_text("#!/usr/bin/env no-such-language\n")
    found = look(cwd / "plugins")
    assert found.unconfined == ("example.echo",)
    reasons = {start_problem.plugin: start_problem.why for start_problem in found.start_problems}
    assert "there is no program no-such-program" in reasons["example.lost"]
    assert "env finds no no-such-language" in reasons["example.scripted"]
    assert os.access(script, os.X_OK)
    assert [entry["plugin"] for entry in found.to_json()["not_startable"]] == ["example.lost", "example.scripted"]


def checked(folder: Path, *command: str, path: str = "/usr/bin") -> Check:
    return check_command(PluginSpec("p", "0", "mcp", folder, command, env=(("PATH", path),)))


@requirement("host:doctor-executed")
def test_the_program_that_env_runs_is_checked(tmp_path: Path) -> None:
    found = checked(tmp_path, "/usr/bin/env", "A=1", "sh")
    assert (found.status, found.detail) == (OK, "/usr/bin/sh")
    missing = checked(tmp_path, "/usr/bin/env", "no-such-program", "-y")
    assert missing.status == ERROR and "finds no no-such-program" in missing.detail
    assert checked(tmp_path, "/usr/bin/env", "sh", path="/nowhere").status == ERROR


@requirement("host:doctor-executed")
def test_the_program_of_a_package_is_checked_and_a_download_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin = tmp_path / "node_modules" / ".bin"
    bin.mkdir(parents=True)
    for tool in (bin / "tea", tmp_path / "npx"):
        tool.write_text("#!/usr/bin/env no-such-node\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin")
    installed = checked(tmp_path, "npx", "-y", "tea")
    assert (installed.status, installed.detail) == (OK, str(bin / "tea"))
    interpreter = check_interpreter(PluginSpec("p", "0", "mcp", tmp_path, ("npx", "tea")))
    assert interpreter.status == ERROR and "env finds no no-such-node" in interpreter.detail
    download = checked(tmp_path, "npx", "-y", "@acme/server")
    assert (download.status, download.is_finding) == (WARNING, False)
    assert "downloads @acme/server" in download.detail and "a confined plugin has no network" in download.detail
    assert download.fix == "npm install @acme/server, and declare the installed program"
    (bin / "tea").chmod(0o644)
    broken = checked(tmp_path, "npx", "tea")
    assert broken.status == ERROR and f"finds no {bin / 'tea'}" in broken.detail


@requirement("host:doctor-executed")
def test_an_alternative_is_checked_as_the_program_that_it_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "ALTERNATIVES", str(tmp_path / "alternatives"))
    (tmp_path / "alternatives").mkdir()
    real, name = tmp_path / "mawk", tmp_path / "awk"
    real.write_text("\x7fELF")
    real.chmod(0o755)
    (tmp_path / "alternatives" / "awk").symlink_to(real)
    name.symlink_to(tmp_path / "alternatives" / "awk")
    script = tmp_path / "script"
    script.write_text(f"#!{name} -f\n")
    script.chmod(0o755)
    assert checked(tmp_path, str(name)).detail == f"{name}, which is {real}"
    assert check_interpreter(PluginSpec("p", "0", "mcp", tmp_path, (str(script),))).detail == f"{name}, which is {real}"
    real.unlink()
    assert f"{name} is a link to {real}, which does not exist" in checked(tmp_path, str(name)).detail
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"is a link to {real}, which does not exist" in checked(tmp_path, "awk").detail
    assert "which does not exist" in check_interpreter(PluginSpec("p", "0", "mcp", tmp_path, (str(script),))).detail
