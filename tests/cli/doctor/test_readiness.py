"""The report at the start of a server: confined, unconfined and not startable plugins."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from plugbay.cli.doctor.readiness import Readiness, check_readiness
from plugbay.host.config.config import Config
from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from tests.cli.conftest import MakePlugin
from tests.support.kaged import write_kaged_plugin


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
