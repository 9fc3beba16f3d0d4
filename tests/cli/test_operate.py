"""What an operator has a running server do, from a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.packages.builders import key, pack, sign, trust
from tests.server.test_server import served
from tests.support.plugins import write_plugin


def test_a_plugin_is_granted_called_stopped_started_and_its_lines_are_shown(
    run: Run, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(cwd / "plugins", "p", capabilities=["tool.execute"])
    with served(cwd, "plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        assert run("ps", *there).out.splitlines()[1].split()[:3] == ["p", "rune", "idle"]
        assert run("call", "p", "t", "{}", *there).code == 5
        done = run("grant", "p", "tool.execute", *there)
        assert done.code == 0 and "granted tool.execute" in done.err
        called = run("call", "p", "t", '{"a": 1}', "--json", *there)
        assert called.code == 0 and called.json["output"] == {"a": 1}
        assert run("call", "p", "t", '{"a": 1}', "--stream", *there).json == {"a": 1}
        assert run("stop", "p", "--json", *there).json["state"] == "stopped"
        assert run("call", "p", "t", *there).code == 1
        for command in ("start", "restart", "reload"):
            assert run(command, "p", *there).code == 0
        assert run("revoke", "p", "tool.execute", *there).code == 0
        assert run("revoke", "p", "tool.execute", *there).code == 2
        assert run("stop", "nobody", *there).code == 4
        assert run("logs", "p", "--json", *there).code == 0
        assert run("logs", "nobody", *there).code == 4
        assert run("call", "p", "t", "--grant-all", *there).code == 2
        assert server.end() == 0


def test_a_word_that_is_neither_a_folder_nor_a_plugin_is_not_found_and_the_server_that_was_asked_is_named(
    run: Run, cwd: Path
) -> None:
    write_plugin(cwd / "plugins", "p")
    with served(cwd, "plugins") as server:
        url, state = server.facts["url"], str(cwd / "state")
        done = run("call", "nowhere", "x", XDG_STATE_HOME=state)
        assert done.code == 4 and done.out == ""
        words = " ".join(done.err.split())
        assert f"there is no folder nowhere, and the server {url} has no plugin of that id" in words
        assert run("call", "nowhere", "x", "--json", XDG_STATE_HOME=state).json["failure"]["code"] == "not_found"
        for path in ("./nowhere", "plugins/nowhere/"):
            done = run("call", path, "x", XDG_STATE_HOME=state)
            assert done.code == 4 and url not in done.err, "no server is asked for a path"
            assert f"there is no folder {path}, and no plugin has such an id" in " ".join(done.err.split())
        unknown = run("call", "p", "nothing", XDG_STATE_HOME=state)
        assert unknown.code == 4 and "no folder" not in unknown.err, "the plugin is there, its export is not"
        assert run("call", "p", "t", "{}", "--json", XDG_STATE_HOME=state).json["output"] == {}
        for command in (("logs", "nowhere"), ("stop", "nowhere"), ("grant", "nowhere", "x")):
            done = run(*command, XDG_STATE_HOME=state)
            assert done.code == 4 and f"the server {url} refused" in " ".join(done.err.split())
        assert server.end() == 0


def test_without_a_server_it_is_said_how_to_have_one(run: Run) -> None:
    for command in (("ps",), ("logs", "p"), ("start", "p"), ("grant", "p", "x")):
        done = run(*command)
        assert done.code == 4 and "plugbay serve" in done.err


def test_after_an_upgrade_a_reload_runs_the_new_release_which_has_to_be_granted_more(
    run: Run, cwd: Path, tmp_path: Path
) -> None:
    acme = key()
    trust(tmp_path / ".config" / "plugbay" / "trust.json", (acme, "acme"))
    wants = {"1.0.0": ["files"], "2.0.0": ["files", "mail"]}
    first, second = (str(sign(pack(cwd, version, capabilities=wants[version]), acme)) for version in wants)
    assert run("install", first, "--store", "store").code == 0
    with served(cwd, "store/plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        assert run("grant", "acme.notes", "files", *there).code == 0
        assert run("call", "acme.notes", "t", "{}", "--json", *there).json["output"] == {"version": "1.0.0"}
        assert run("upgrade", second, "--store", "store", "--yes").code == 0
        assert run("reload", "acme.notes", *there).code == 0
        assert run("ps", *there).out.splitlines()[1].split()[:4] == ["acme.notes", "rune", "idle", "2.0.0"]
        denied = run("call", "acme.notes", "t", "{}", *there)
        assert denied.code == 5 and "mail" in denied.err
        assert run("grant", "acme.notes", "mail", *there).code == 0
        assert run("call", "acme.notes", "t", "{}", "--json", *there).json["output"] == {"version": "2.0.0"}
        assert run("rollback", "acme.notes", "--store", "store").code == 0
        assert run("restart", "acme.notes", *there).code == 0
        assert run("call", "acme.notes", "t", "{}", "--json", *there).json["output"] == {"version": "1.0.0"}
        assert server.end() == 0
