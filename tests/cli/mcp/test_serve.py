"""`plugbay mcp serve`: stdout has only the protocol, stderr says what is served, errors have their status."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import plugbay
from tests.cli.conftest import MakePlugin, Run
from tests.support.requirements import requirement


def lines(*messages: dict[str, Any]) -> str:
    return "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)


HELLO = {
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
LIST = {"id": 1, "method": "tools/list"}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@requirement("mcp:serve-stdio", "mcp:serve-pending")
def test_tools_are_listed_and_called_and_people_are_told_on_stderr(
    run: Run, make_plugin: MakePlugin, cwd: Path
) -> None:
    make_plugin("echo")
    make_plugin("wants", capabilities=["network"])
    (cwd / "plugins" / "broken").mkdir()
    (cwd / "plugins" / "broken" / "rterm-plugin.json").write_text("{")
    done = run("mcp", "serve", "plugins", stdin=lines(HELLO, LIST, call("example_echo__echo", text="tea")))
    said = {message["id"]: message["result"] for message in map(json.loads, done.out.splitlines())}
    assert said[0]["protocolVersion"] == "2025-06-18"
    assert [tool["name"] for tool in said[1]["tools"]] == ["example_echo__echo"]
    assert said[2]["structuredContent"] == {"text": "tea"}
    assert done.code == 0
    assert "serving 1 tool" in done.err
    assert "is left out: pending" in done.err
    assert "broken" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["nowhere"], 4, "nowhere"),
        (["plugins", "nowhere"], 4, "there is no folder nowhere"),
        (["plugins", "--names", "pretty"], 2, "for --names: it is full or short"),
        (["plugins", "--http", "8765"], 2, "is no HOST:PORT"),
        (["plugins", "--http", "0.0.0.0:8765"], 2, "--allow-host"),
        (["plugins", "--http", "127.0.0.1:0", "--token-file", "empty"], 2, "empty is empty"),
        (["plugins", "--config", "wrong.toml"], 3, "wrong.toml"),
    ],
)
def test_mistakes_have_their_status_and_say_nothing_on_stdout(
    run: Run, make_plugin: MakePlugin, cwd: Path, arguments: list[str], code: int, why: str
) -> None:
    make_plugin("echo")
    (cwd / "empty").write_text("\n")
    (cwd / "wrong.toml").write_text("[plugins\n")
    done = run("mcp", "serve", *arguments)
    assert (done.code, done.out) == (code, "")
    assert why in done.err


def test_serving_over_http_names_the_extra_it_needs(
    run: Run, make_plugin: MakePlugin, cwd: Path, tmp_path: Path
) -> None:
    make_plugin("echo")
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "uvicorn.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')\n")
    path = os.pathsep.join([str(fake), str(Path(plugbay.__file__).parents[1])])
    done = run("mcp", "serve", "plugins", "--http", "127.0.0.1:0", PYTHONPATH=path)
    assert done.code == 1
    assert "pip install 'plugbay[serve]'" in done.err


def test_help_shows_how(run: Run) -> None:
    done = run("mcp", "serve", "--help")
    assert done.code == 0
    assert "--http HOST:PORT" in done.out and "Examples" in done.out
