"""Which host a command asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli import target
from plugbay.cli.exit_codes import Refusal
from tests.cli.conftest import Run
from tests.server.test_server import served
from tests.support.mcp_servers import write_server
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement


@requirement("host:which-host")
def test_a_server_and_a_folder_are_two_hosts(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="two different hosts"):
        target.choose(tmp_path, "http://127.0.0.1:1", None, quiet=True)


@requirement("host:which-host")
def test_options_of_a_local_host_need_a_folder() -> None:
    with pytest.raises(Refusal, match="--plugins DIR"):
        target.choose(None, None, None, quiet=True, grants=["network"])


@requirement("host:which-host")
def test_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_plugin(tmp_path / "plugins", "p")
    chosen = target.choose(Path("plugins"), None, None, quiet=False)
    assert (chosen.client, chosen.asked, chosen.name) == (None, "plugins", "a host of this command for plugins")
    assert capsys.readouterr().err == "using a host of this command for plugins\n"
    target.choose(Path("plugins"), None, None, quiet=True)
    assert capsys.readouterr().err == ""


ASKING = (
    ("ps",),
    ("logs", "p"),
    ("call", "p", "t", "{}"),
    ("reload", "p"),
    ("stop", "p"),
    ("start", "p"),
    ("restart", "p"),
    ("prune", "--dry-run"),
    ("dashboard",),
    ("publish", "a.b", "{}"),
    ("memory", "search", "demo"),
    ("hook", "before_message", "{}"),
    ("compact", "[]"),
    ("org", "list"),
    ("search", "x"),
)
"""Commands that ask the running server if no option names another host."""

READING = (("inspect", "p"), ("config", "show", "p"))
"""Commands that read the folder of a plugin, which the running server names."""


@requirement("host:which-host")
def test_a_command_says_which_server_it_uses_unless_it_prints_json(run: Run, cwd: Path) -> None:
    folder = write_plugin(cwd / "plugins", "p")
    with served(cwd, "plugins") as server:
        state = {"XDG_STATE_HOME": str(cwd / "state")}
        server_words, url = f"the server {server.facts['url']}\n", server.facts["url"]
        for words in ASKING:
            done = run(*words, **state)
            assert f"server {url}\n" in done.err and done.err.startswith("using the "), words
            assert "using" not in done.out, words
            assert "using" not in run(*words, "--json", **state).err, words
        for words in READING:
            done = run(*words, **state)
            assert done.err == f"using the folder {folder} of {server_words}" and "using" not in done.out, words
            assert run(*words, "--json", **state).err == "", words
        there = ("--server", url, "--token-file", server.facts["token_file"])
        assert "using" not in run("ps", *there).err, "the option says it"
        assert run("ps", PLUGBAY_SERVER=url, **state).err == f"using the server {url}, named by PLUGBAY_SERVER\n"
        assert server.end() == 0


@requirement("host:which-host")
def test_a_command_says_which_folder_it_uses_for_an_id(run: Run, cwd: Path, tmp_path: Path) -> None:
    installed = tmp_path / "data" / "plugbay" / "plugins"
    write_plugin(installed, "p")
    data = {"XDG_DATA_HOME": str(tmp_path / "data")}
    said = f"using a host of this command for {installed}\n"
    for words in (("call", "p", "t", "{}"), ("tap", "p", "--call", "t", "{}")):
        assert run(*words, **data).err.startswith(said), words
        assert "using" not in run(*words, "--json", **data).err, words
        assert "using" not in run(*words, "--plugins", installed).err, "the option says it"
    for read in READING:
        assert run(*read, **data).err == f"using the folder {installed / 'p'}\n", read
        assert run(*read, "--json", **data).err == "", read


@requirement("host:which-host")
def test_a_command_says_that_it_uses_the_servers_of_plugbay_toml(run: Run, cwd: Path) -> None:
    write_server(cwd)
    (cwd / "plugbay.toml").write_text('[mcp.far]\ncommand = ["python3", "server.py"]\n')
    assert "using a host of this command for plugbay.toml\n" in run("ps").err
    assert "using" not in run("ps", "--json").err
    assert "using a host of this command for far of plugbay.toml\n" in run("call", "far", "x").err
