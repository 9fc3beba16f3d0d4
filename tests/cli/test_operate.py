"""What an operator has a running server do, from a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.control.test_server import served
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


def test_without_a_server_it_is_said_how_to_have_one(run: Run) -> None:
    for command in (("ps",), ("logs", "p"), ("start", "p"), ("grant", "p", "x")):
        done = run(*command)
        assert done.code == 4 and "plugbay serve" in done.err
