"""`plugbay memory`, with a real server, with a plugin that recalls, and without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.server.test_server import served
from tests.support.nexo import write_nexo_plugin
from tests.support.requirements import requirement

RECALLS = """
asked = {}

def tool_invoke(m):
    asked["m"] = m
    request(77, "memory.recall", agent_id="demo", query=m["params"]["args"]["query"], limit=10)

def answered(m):
    if m.get("id") == 77:
        reply(asked["m"], {"found": [entry["content"] for entry in m["result"]["entries"]]})
"""
"""A plugin whose tool recalls, through the wire."""


@requirement("host:memory-default", "host:memory-operate", "host:which-host")
def test_a_plugin_of_a_server_without_settings_recalls_an_entry_of_the_command(run: Run, cwd: Path) -> None:
    write_nexo_plugin(cwd / "plugins", "p", RECALLS, tools=["ask"])
    with served(cwd, "plugins", "--grant", "memory.recall") as server:
        url = server.facts["url"]
        there = ("--server", url, "--token-file", server.facts["token_file"])
        added = run("memory", "add", "demo", "Ada drinks tea.", "--tag", "people", "--json", *there)
        assert added.code == 0, added.err
        assert added.json["asked"] == url and added.json["entry"]["tags"] == ["people"]
        called = run("call", "p", "p_ask", '{"query": "tea"}', "--json", *there)
        assert called.json["output"] == {"found": ["Ada drinks tea."]}
        found = run("memory", "search", "demo", "tea", *there)
        assert "Ada drinks tea." in found.out and f"the server {url}" in " ".join(found.err.split())
        assert run("memory", "forget", "demo", "6a1e2f0c", *there).code == 4
        cleared = run("memory", "clear", "demo", "--json", *there)
        assert cleared.json == {"asked": url, "removed": 1}
        assert run("memory", "search", "demo", "--json", *there).json["entries"] == []
        assert server.end() == 0


@requirement("host:memory-default", "host:memory-operate", "host:which-host")
def test_without_a_server_the_memory_is_that_of_the_hosts_of_commands(run: Run, cwd: Path) -> None:
    write_nexo_plugin(cwd / "plugins", "p", RECALLS, tools=["ask"])
    state = str(cwd / "state")
    place = str(cwd / "state" / "plugbay" / "memory.db")
    added = run("memory", "add", "demo", "Ada drinks tea.", "--json", XDG_STATE_HOME=state)
    assert (added.code, added.json["asked"]) == (0, place), added.err
    assert "the local memory" in run("memory", "search", "demo", XDG_STATE_HOME=state).err
    words = ("call", "plugins/p", "p_ask", '{"query": "tea"}', "--grant", "memory.recall", "--json")
    assert run(*words, XDG_STATE_HOME=state).json["output"] == {"found": ["Ada drinks tea."]}
    found = run("memory", "search", "demo", "--local", "--json", XDG_STATE_HOME=state).json
    assert found["asked"] == place and len(found["entries"]) == 1
    (cwd / "plugbay.toml").write_text('[memory]\npath = "other.db"\n')
    other = run("memory", "search", "demo", "--json", XDG_STATE_HOME=state).json
    assert (other["asked"], other["entries"]) == (str(cwd / "other.db"), [])
    (cwd / "plugbay.toml").unlink()
    assert (
        run("memory", "forget", "demo", found["entries"][0]["id"], "--json", XDG_STATE_HOME=state).json["removed"] == 1
    )
    gone = run("memory", "forget", "demo", found["entries"][0]["id"], XDG_STATE_HOME=state)
    assert gone.code == 4 and "plugbay memory search demo" in " ".join(gone.err.split())


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("clear", "a", "--local", "--server", "http://127.0.0.1:1"), 2, "give one of them"),
        (("add", "a", "x" * 65_537, "--local"), 2, "at most 65536"),
    ],
)
def test_a_mistake_is_explained(run: Run, words: tuple[str, ...], status: int, text: str) -> None:
    done = run("memory", *words)
    assert done.code == status and text in " ".join(done.err.split())
