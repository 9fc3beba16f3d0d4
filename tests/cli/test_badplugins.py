"""`plugbay badplugins` lists, runs and writes plugins that misbehave, for any host."""

from __future__ import annotations

import json
from pathlib import Path

from plugbay.conformance.bad_plugins.descriptions import CONTRACTS, load_bad_plugins
from plugbay.host.discovery.folders import discover
from tests.cli.conftest import Run

GREETING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"nexo_version": "1.10.0"}}) + "\n"


def test_the_list_counts_the_plugins_of_each_contract(run: Run) -> None:
    done = run("badplugins", "list")
    assert done.code == 0
    for contract in CONTRACTS:
        assert f"{contract:<10}{len(load_bad_plugins(contract)):3} plugins" in done.out


def test_the_list_of_a_contract_describes_each_plugin(run: Run) -> None:
    done = run("badplugins", "list", "nexo")
    assert done.code == 0
    assert any(
        line.split() == ["nexo/initialize_never", "never", "answers", "initialize"] for line in done.out.splitlines()
    )
    rows = run("badplugins", "list", "nexo", "--json").json
    assert {row["name"] for row in rows} == {each.name for each in load_bad_plugins("nexo")}
    assert set(rows[0]) == {"name", "contract", "about", "does"}


def test_a_bad_plugin_is_shown_with_the_duties_of_a_host(run: Run) -> None:
    done = run("badplugins", "show", "nexo/initialize_never")
    assert done.code == 0
    assert done.out.splitlines() == [
        "nexo/initialize_never  4.1",
        "  does      never answers initialize",
        "  ask       register it as bad, version 1.0.0",
        "            call bad_tool with no input",
        "            timeouts handshake 0.3 s",
        "  must      the call fails as timeout: the expected message did not arrive in time",
        "            no process of the plugin is left running",
        "  run       plugbay badplugins run nexo/initialize_never",
        "            plugbay badplugins write nexo/initialize_never DIR, for a host that loads folders with a manifest",
    ]
    told = run("badplugins", "show", "nexo/initialize_never", "--json").json
    assert (told["plugin_id"], told["expect"]) == ("bad", {"code": "timeout"})


def test_one_is_run_as_the_plugin_it_is(run: Run) -> None:
    good = run("badplugins", "run", "nexo/good", stdin=GREETING)
    assert (good.code, json.loads(good.out)["id"]) == (0, 1)
    bad = run("badplugins", "run", "nexo/initialize_wrong_id", stdin=GREETING)
    assert json.loads(bad.out)["id"] == 2
    assert run("badplugins", "run", "nexo/initialize_exit_3", stdin=GREETING).code == 1


def test_one_whose_manifest_is_wrong_cannot_be_run(run: Run) -> None:
    done = run("badplugins", "run", "rune/command_missing")
    assert done.code == 4
    assert "plugbay badplugins write rune/command_missing DIR" in done.err


def test_folders_are_written_for_hosts_that_load_those(run: Run, cwd: Path) -> None:
    assert run("badplugins", "write", "kaged/good", "plugins").code == 0
    (found,) = discover([cwd / "plugins" / "good"])
    assert found.spec is not None and found.spec.id == "good"
    again = run("badplugins", "write", "kaged/good", "plugins")
    assert again.code == 1
    assert "exists already" in again.err
    all_of_them = run("badplugins", "write", "vai", "every", "--json").json
    assert len(all_of_them) == len(load_bad_plugins("vai"))
    assert all(Path(cwd / folder / "vai-plugin.toml").is_file() for folder in all_of_them.values())


def test_a_name_that_is_not_there_is_answered_with_those_that_are_near(run: Run) -> None:
    done = run("badplugins", "show", "nexo/initialise_never")
    assert done.code == 4
    assert "did you mean nexo/initialize_never" in done.err
    assert "badplugins list CONTRACT" in run("badplugins", "show", "tea/cup").err
    assert run("badplugins", "list", "tea").code == 2
    assert run("badplugins", "write", "tea", "x").code == 2
