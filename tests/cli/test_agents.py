"""`plugbay hook` and `plugbay compact` do what `Host.fire` and `Host.compact` do: here, on a server and over REST."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from tests.cli.conftest import Run
from tests.server.test_server import served
from tests.support.kaged import write_kaged_plugin
from tests.support.nexo import write_nexo_plugin
from tests.support.requirements import requirement

HOOK = 'def hook_on_hook(m):\n    reply(m, {"override": {"order": m["params"]["event"].get("order", "") + ID}})\n'
FAILS = 'def hook_on_hook(m):\n    fail(m, -32000, "not today")\n'

MESSAGES = [{"role": "user", "content": str(number)} for number in range(5)]


def write_agents(cwd: Path) -> None:
    """Three plugins with a hook; the second one fails."""
    for plugin_id, body in (("a", HOOK), ("b", FAILS), ("c", HOOK)):
        write_nexo_plugin(cwd / "plugins", plugin_id, body, extends={"hooks": ["before_message"]})
    (cwd / "plugbay.toml").write_text('[agents.primary]\nplugins = ["c", "b", "a"]\nkeep = 2\n')


def in_python(cwd: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    async def main() -> tuple[dict[str, Any], dict[str, Any]]:
        async with Host.load(cwd / "plugins", config=cwd / "plugbay.toml") as host:
            fired = await host.fire("before_message", {"order": ""})
            return fired.to_json(), (await host.compact(MESSAGES)).to_json()

    return asyncio.run(main())


@requirement("host:hooks-operate", "host:compaction-operate", "host:which-host")
def test_hooks_and_compaction_are_the_same_in_python_by_command_and_over_rest(run: Run, cwd: Path) -> None:
    write_agents(cwd)
    fired, compacted = in_python(cwd)
    assert fired["event"] == {"order": "ca"}, "in the order of the agent, past the plugin that failed"
    assert [(each["plugin"], each["failure"]["message"]) for each in fired["skipped"]] == [("b", "not today")]
    assert compacted["messages"] == MESSAGES[-2:]
    hook = ("hook", "before_message", '{"order": ""}')
    compact = ("compact", str(MESSAGES).replace("'", '"'))
    here = ("--plugins", "plugins", "--json")
    assert run(*hook, *here).json == {"asked": "plugins", **fired}
    assert run(*compact, *here).json == {"asked": "plugins", **compacted}
    with served(cwd, "plugins") as server, server.client() as client:
        url = server.facts["url"]
        there = ("--server", url, "--token-file", server.facts["token_file"])
        assert run(*hook, "--json", *there).json == {"asked": url, **fired}
        assert run(*compact, "--json", *there).json == {"asked": url, **compacted}
        body = {"hook": "before_message", "event": {"order": ""}}
        assert client.post("/api/v1/hooks", json=body).json() == fired
        assert client.post("/api/v1/compactions", json={"messages": MESSAGES}).json() == compacted
        shown = run(*hook, *there)
        assert shown.json == {"order": "ca"}
        words = " ".join(shown.err.split())
        assert f"the server {url}" in words and "b was skipped: not today" in words
        assert client.post("/api/v1/hooks", json={"hook": "", "event": {}}).status_code == 400
        assert client.post("/api/v1/compactions", json={"messages": [1]}).status_code == 400
        assert server.end() == 0


@requirement("host:compaction-operate")
def test_a_compactor_of_an_agent_compacts_and_a_second_one_is_refused(run: Run, cwd: Path) -> None:
    body = 'def hook(name, params, m):\n    reply(m, {"messages": params["messages"][-1:]})\n'
    for name in ("one", "two"):
        write_kaged_plugin(cwd / "plugins", name, body, roles=["compactor"], hooks=["pre_compact"], tools=[])
    (cwd / "plugbay.toml").write_text('[agents.primary]\nplugins = ["one"]\n')
    words = ("compact", str(MESSAGES).replace("'", '"'), "--plugins", "plugins", "--json")
    done = run(*words)
    assert done.code == 0, done.err
    assert (done.json["compacted_by"], done.json["messages"]) == ("one", MESSAGES[-1:])
    refused = run(*words, "--agent", "other")
    assert refused.code == 2 and "more than one compactor" in refused.json["failure"]["message"]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("hook", "x", "[1]"), 2, "must be a JSON object"),
        (("compact", "{}"), 2, "must be a JSON list"),
        (("compact", "[1]"), 2, "must be a JSON list"),
        (("hook", "x"), 4, "--plugins DIR"),
    ],
)
def test_a_mistake_is_explained(run: Run, words: tuple[str, ...], status: int, text: str) -> None:
    done = run(*words)
    assert done.code == status and text in " ".join(done.err.split())
