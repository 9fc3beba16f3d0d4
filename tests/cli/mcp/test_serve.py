"""`plugbay mcp serve`: stdout has only the protocol, stderr says what is served, errors have their status."""

from __future__ import annotations

import json
import os
import pty
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import plugbay
from tests.cli.conftest import MakePlugin, Run, environment
from tests.support.commands import Piped
from tests.support.patience import PATIENCE
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
def test_tools_are_listed_and_called_and_messages_go_to_stderr(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
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
        (["plugins", "--names", "pretty"], 2, "'pretty' is not full or short"),
        (["plugins", "--http", "8765"], 2, "is not a HOST:PORT"),
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


OTHERS = """\
{
  // mine
  "mcpServers": {
    "other": {"command": "x"}
  }
}
"""


@pytest.fixture
def plugins(cwd: Path) -> Path:
    folder = cwd / "plugins"
    folder.mkdir()
    return folder


def served(entry: dict[str, Any]) -> list[str]:
    """What the entry runs, after the program itself."""
    words = [entry["command"], *entry["args"]]
    assert Path(words[0]).is_absolute()
    assert Path(words[0]).parent == Path(sys.executable).parent
    return words[words.index("mcp") :]


@requirement("mcp:install-entry")
def test_the_entry_is_written_once_and_leads_back_to_the_same_plugins(run: Run, plugins: Path, tmp_path: Path) -> None:
    done = run("mcp", "install", "cursor", "plugins", "--grant", "network", "--only", "weather", "--yes", "--json")
    file = tmp_path / ".cursor" / "mcp.json"
    entry = json.loads(file.read_text())["mcpServers"]["plugbay"]
    words = ["mcp", "serve", str(plugins), "--grant", "network", "--only", "weather"]
    assert served(entry) == words
    assert done.code == 0
    assert done.json == {
        "client": "Cursor",
        "file": str(file),
        "name": "plugbay",
        "entry": entry,
        "changed": True,
        "backup": None,
    }
    assert file.stat().st_mode & 0o777 == 0o600
    assert str(file) in done.err and '"plugbay"' in done.err
    before = file.read_bytes()
    again = run("mcp", "install", "cursor", "plugins", "--grant", "network", "--only", "weather", "--yes", "--json")
    assert again.json["changed"] is False
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["mcp.json"]


@requirement("mcp:install-keeps-the-rest")
def test_everything_else_stays_and_the_old_file_is_kept(run: Run, plugins: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text(OTHERS)
    real.chmod(0o640)
    file = tmp_path / ".claude.json"
    file.symlink_to(real)
    done = run("mcp", "install", "claude-code", "plugins", "--name", "mine", "--yes")
    assert done.code == 0
    after = real.read_text()
    assert after.startswith('{\n  // mine\n  "mcpServers": {\n    "other": {"command": "x"},\n    "mine": {\n')
    assert file.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    backup = tmp_path / "dotfiles.json.bak"
    assert backup.read_text() == OTHERS
    assert str(backup) in done.err
    run("mcp", "install", "claude-code", "plugins", "--name", "mine", "--grant-all", "--yes")
    assert (tmp_path / "dotfiles.json.bak2").read_text() == after
    assert backup.read_text() == OTHERS


@requirement("mcp:install-asks")
def test_nothing_is_written_without_consent(run: Run, plugins: Path, tmp_path: Path) -> None:
    done = run("mcp", "install", "cursor", "plugins", stdin="y\n")
    assert (done.code, done.out) == (5, "")
    assert "--yes" in done.err
    printed = run("mcp", "install", "cursor", "plugins", "--print")
    assert served(json.loads(printed.out)["mcpServers"]["plugbay"])[:2] == ["mcp", "serve"]
    assert "mcp.json" in printed.err
    as_json = run("mcp", "install", "cursor", "plugins", "--print", "--json").json
    assert as_json["changed"] is False
    assert not (tmp_path / ".cursor").exists()


@requirement("mcp:install-asks")
@pytest.mark.parametrize(("typed", "written"), [(b"y\n", True), (b"n\n", False), (b"\x04", False)])
def test_at_a_terminal_the_person_is_asked(
    plugins: Path, cwd: Path, tmp_path: Path, typed: bytes, written: bool
) -> None:
    ours, theirs = pty.openpty()
    words = ("mcp", "install", "cursor", "plugins")
    process = Piped(*words, stdin=theirs, stderr=theirs, cwd=cwd, env=environment(tmp_path, TERM="dumb"))
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 65536)
    assert b"mcpServers" in shown
    os.write(ours, typed)
    output, _ = process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert (output, process.returncode) == (b"", 0 if written else 5)
    assert (tmp_path / ".cursor" / "mcp.json").exists() is written


@requirement("mcp:install-entry")
def test_scopes_and_toml(run: Run, plugins: Path, cwd: Path) -> None:
    assert run("mcp", "install", "codex", "plugins", "--scope", "project", "--yes").code == 0
    entry = tomllib.loads((cwd / ".codex" / "config.toml").read_text())["mcp_servers"]["plugbay"]
    assert served(entry) == ["mcp", "serve", str(plugins)]
    (cwd / "plugbay.toml").write_text("")
    assert run("mcp", "install", "vscode", "plugins", "--scope", "project", "--yes").code == 0
    entry = json.loads((cwd / ".vscode" / "mcp.json").read_text())["servers"]["plugbay"]
    assert served(entry)[-2:] == ["--config", str(cwd / "plugbay.toml")]


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["nobody", "plugins"], 2, "there is no client 'nobody'; there are claude-code, claude-desktop"),
        (["windsurf", "plugins", "--scope", "project"], 2, "Windsurf has no scope 'project'; it has user"),
        (["cursor", "elsewhere"], 4, "does not exist"),
    ],
)
def test_mistakes_are_named(run: Run, plugins: Path, arguments: list[str], code: int, why: str) -> None:
    done = run("mcp", "install", *arguments)
    assert (done.code, done.out) == (code, "")
    assert why in done.err


@requirement("mcp:install-keeps-the-rest")
@pytest.mark.parametrize("text", [b'{"mcpServers": ', b"[]", b'{"mcpServers": 3}', b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_left_as_it_is(run: Run, plugins: Path, tmp_path: Path, text: bytes) -> None:
    file = tmp_path / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_bytes(text)
    done = run("mcp", "install", "gemini", "plugins", "--yes")
    assert (done.code, done.out) == (3, "")
    assert "cannot be changed" in done.err and "--print" in done.err
    assert file.read_bytes() == text
    assert len(list(file.parent.iterdir())) == 1
