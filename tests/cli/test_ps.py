"""`plugbay ps`: states, processes, confinement and grants."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import plugbay as package
from plugbay.cli.ps import show
from plugbay.cli.render import output
from tests.cli.conftest import MakePlugin, Run
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin


def test_every_plugin_has_its_line_and_eager_ones_run(run: Run, cwd: Path, make_plugin: MakePlugin) -> None:
    make_plugin()
    write_kaged_plugin(cwd / "plugins", "notes")
    write_ainb_plugin(cwd / "plugins", "panel")
    done = run("ps", "--plugins", "plugins")
    assert done.code == 0
    head, *rows = [line.split() for line in done.out.splitlines()]
    assert head == ["PLUGIN", "CONTRACT", "STATE", "VERSION", "PID", "SANDBOX", "AND", "GRANTS"]
    by_id = {row[0]: row for row in rows}
    assert by_id["example.echo"][1:5] == ["rune", "idle", "1.0.0", "unconfined:"]
    assert by_id["panel"][1:5] == ["ainb", "idle", "1.0.0", "confined"]
    assert by_id["notes"][1:3] == ["kaged", "running"]
    assert " ".join(by_id["notes"][5:]) == "confined · keeps state · network none · granted nothing"


def test_the_json_has_the_public_shape(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "notes", capabilities=["read:fs:/usr/share", "net:[]"])
    done = run("ps", "--plugins", "notes", "--grant-all", "--json")
    (plugin,) = done.json["plugins"]
    assert isinstance(plugin.pop("pid"), int)
    assert plugin.pop("sandbox")["policy"]["read"] == ["/usr/share"]
    assert plugin.pop("limits") in ("full", "full (v1)", "degraded")
    assert plugin == {
        "id": "notes",
        "name": "notes",
        "version": "1.0.0",
        "contract": "kaged",
        "lifetime": "resident",
        "state": "running",
        "refused": None,
        "generation": 1,
        "busy": 0,
        "ready": 1,
        "requested": ["read:fs:/usr/share", "net:[]"],
        "granted": ["read:fs:/usr/share", "net:[]"],
        "disabled": [],
        "counters": {},
    }


def test_who_runs_unconfined_is_not_to_be_overlooked(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "notes")
    (cwd / "plugbay.toml").write_text('[plugins.notes.sandbox]\noff = "it is ours"\n')
    done = run("ps", "--plugins", "notes")
    assert "unconfined: it is ours" in done.out
    assert "note:  notes: unconfined: it runs unconfined, with all rights of this user: it is ours" in done.err
    for_once = run("ps", "--plugins", "notes", "--no-sandbox", "--json", "--config", "/dev/null")
    assert for_once.json["plugins"][0]["sandbox"]["confined"] == "unconfined: --no-sandbox"
    assert for_once.json["plugins"][0]["counters"] == {"unconfined": 1}


def test_a_plugin_that_nobody_granted_anything_is_there_and_does_not_run(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "notes", capabilities=["net:*"])
    assert "· pending: it requests net:*, and nobody has granted that yet" in run("ps", "--plugins", "notes").out
    (plugin,) = run("ps", "--plugins", "notes", "--json").json["plugins"]
    assert (plugin["state"], plugin["pid"], plugin["granted"], plugin["limits"]) == ("idle", None, [], "")
    assert plugin["sandbox"]["policy"]["network"]["reach"] == "none"


def test_what_is_no_folder_of_plugins_has_nothing_to_show(run: Run) -> None:
    assert run("ps", "--plugins", "nowhere").code == 4
    assert run("ps", "--plugins", "nowhere", "--json").json["failure"]["code"] == "not_found"
    assert run("ps").code == 4


def test_a_narrow_terminal_breaks_the_last_column_only(capsys: pytest.CaptureFixture[str]) -> None:
    sandbox = {"confined": "unconfined: its manifest does not ask for it", "policy": None}
    facts: dict[str, Any] = {
        "contract": "rune",
        "state": "idle",
        "version": "1.0",
        "pid": None,
        "refused": None,
        "granted": [],
        "limits": "",
    }
    page = output.Printer(Console(width=69, force_terminal=True, color_system=None))
    show(page, [{"id": "example.echo", "sandbox": sandbox, **facts}])
    assert capsys.readouterr().out.splitlines() == [
        "PLUGIN        CONTRACT  STATE  VERSION  PID  SANDBOX AND GRANTS",
        "example.echo  rune      idle   1.0           unconfined: its manifest",
        "                                             does not ask for it ·",
        "                                             granted nothing",
    ]


def test_finding_a_server_loads_no_database(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sqlalchemy.py").write_text("raise ModuleNotFoundError(__name__)\n")
    done = run("ps", PYTHONPATH=os.pathsep.join([str(tmp_path), str(Path(package.__file__).parents[1])]))
    assert (done.code, "no plugbay server runs here" in done.err) == (4, True)
