"""An MCP server behind `plugbay mcp serve` is the server itself, as far as a client can tell: nothing is lost.

The same requests go to a server directly and through plugbay, and the answers are compared. Four times: the client
speaks one era or the other, and so does the server behind us.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import command, environment
from tests.mcp_server import everything
from tests.mcp_server.raw import Client
from tests.support.requirements import requirement
from tests.support.tiers import first_alone

SERVER = [sys.executable, str(Path(everything.__file__))]
ERAS = ("handshake", "modern")


def person(method: str, params: dict[str, Any]) -> dict[str, Any]:
    assert (method, params["message"]) == ("elicitation/create", "Who are you?")
    assert params["requestedSchema"]["required"] == ["name"]
    return {"action": "accept", "content": {"name": "Ada"}}


def declare(folder: Path, **eras: str) -> Path:
    """A folder with an `.mcp.json` that names servers, each of one era."""
    folder.mkdir()
    servers = {name: {"command": SERVER[0], "args": [*SERVER[1:], era]} for name, era in eras.items()}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return folder


@pytest.fixture(
    params=first_alone(itertools.product(ERAS, ERAS)), ids=lambda pair: f"{pair[0]}-client-{pair[1]}-server"
)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    """The server itself, and the server behind plugbay."""
    era, inner = request.param
    folder = declare(tmp_path / "plugins", all=inner)
    serve = command("mcp", "serve", folder, "--grant-all", "--names", "short")
    with (
        Client([*SERVER, "both"], era, ask=person) as direct,
        Client(serve, era, ask=person, env=environment(tmp_path), cwd=tmp_path) as served,
    ):
        direct.open()
        served.open()
        yield direct, served


LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}

QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "echo", "arguments": {"text": "tea ☕"}}),
    ("tools/call", {"name": "add", "arguments": {"numbers": [1, 2.5]}}),
    ("tools/call", {"name": "picture"}),
    ("tools/call", {"name": "fail", "arguments": {"x": 1}}),
    ("tools/call", {"name": "refuse"}),
    ("tools/call", {"name": "meta", "_meta": {"example.org/trace": "abc"}}),
    ("tools/call", {"name": "ask"}),
    ("tools/call", {"name": "large", "arguments": {"size": 3_000_000}}),
    ("resources/read", {"uri": "memo://one"}),
    ("resources/read", {"uri": "memo://picture"}),
    ("resources/read", {"uri": "memo://by-name/ada"}),
    ("resources/read", {"uri": "memo://unlisted"}),
    ("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}}),
    ("prompts/get", {"name": "greet"}),
    ("prompts/get", {"name": "echo", "arguments": {"a": "b"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "who", "value": "A"},
            "context": {"arguments": {"how": "well"}},
        },
    ),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "echo"}, "argument": {"name": "a", "value": ""}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "memo://by-name/{name}"}, "argument": {"name": "name", "value": "a"}},
    ),
]


@requirement(
    "mcp:serve-unchanged",
    "mcp:serve-progress",
    "mcp:serve-cancel",
    "mcp:serve-elicitation",
    "mcp:serve-list-changed",
    "mcp:serve-resource-updates",
)
def test_nothing_is_lost_on_the_way_through(pair: tuple[Client, Client]) -> None:
    """In one test, because starting both takes longer than everything that is asked of them."""
    same_answers(*pair)
    for client in pair:
        same_happenings(client)
        same_changes(client)


def same_answers(direct: Client, served: Client) -> None:
    for method, key in LISTS.items():
        assert served.everything(method, key) == direct.everything(method, key), method
    for method, params in QUESTIONS:
        meta = params.get("_meta", {})
        asked = {name: value for name, value in params.items() if name != "_meta"}
        assert served.ask(method, asked, **meta) == direct.ask(method, asked, **meta), (method, params)
    assert served.junk == []


def same_happenings(client: Client) -> None:
    missing = client.ask("resources/read", {"uri": "memo://nothing"})["error"]
    assert missing["message"] == "Resource not found"
    assert missing["data"]["uri"] == "memo://nothing"
    client.call("report", progressToken="mine")
    steps = [client.heard("notifications/progress", progressToken="mine")["params"] for _ in range(2)]
    assert [(step["progress"], step["total"], step["message"]) for step in steps] == [
        (0.5, 1, "step 1"),
        (1.0, 1, "step 2"),
    ]
    number = client.begin("tools/call", {"name": "wait", "arguments": {}}, progressToken="waiting")
    client.heard("notifications/progress", progressToken="waiting")
    client.write({"method": "notifications/cancelled", "params": {"requestId": number, "reason": "enough"}})
    while client.call("cancellations")["content"][0]["text"] == "0":
        pass
    assert not client.is_answered(number)


def same_changes(client: Client) -> None:
    watched = ["memo://one"]
    about: dict[str, Any] = {}
    if client.era == "modern":
        wanted = {"toolsListChanged": True, "resourceSubscriptions": watched}
        number = client.begin("subscriptions/listen", {"notifications": wanted})
        assert client.heard("notifications/subscriptions/acknowledged")["params"]["notifications"] == wanted
        about = {"_meta": {"io.modelcontextprotocol/subscriptionId": number}}
    else:
        assert client.ask("resources/subscribe", {"uri": watched[0]}) == {}
        client.ask("logging/setLevel", {"level": "warning"})
        client.call("say")
        assert "the kettle is hot" in client.heard("notifications/message", level="warning")["params"]["data"]
    while not _touched(client, watched[0], about):
        pass
    client.call("grow")
    assert client.heard("notifications/tools/list_changed").get("params", {}) == about
    assert client.everything("tools/list", "tools")[-1]["title"] == "Grown"
    assert client.call("grown", {"a": 1}) == {"content": [{"type": "text", "text": '{"a": 1}'}]}


def _touched(client: Client, uri: str, about: dict[str, Any]) -> bool:
    """A subscription of the modern era is not waited for: touch until it is heard."""
    client.call("touch", {"uri": uri})
    return any(note.get("params") == {"uri": uri, **about} for note in client.notifications)


@requirement("mcp:serve-names")
def test_two_servers_have_their_names_in_front_and_nothing_else_changes(tmp_path: Path) -> None:
    folder = declare(tmp_path / "plugins", one="handshake", two="modern")
    serve = command("mcp", "serve", folder, "--grant-all", "--only", "one", "--only", "two/echo")
    with (
        Client([*SERVER, "both"], "handshake") as direct,
        Client(serve, "handshake", env=environment(tmp_path), cwd=tmp_path) as served,
    ):
        direct.open()
        served.open()
        own = {tool["name"]: tool for tool in direct.everything("tools/list", "tools")}
        tools = {tool["name"]: tool for tool in served.everything("tools/list", "tools")}
        assert [name for name in tools if name.startswith("two__")] == ["two__echo"]
        assert len(tools) == len(own) + 1
        assert tools["one__add"] == {**own["add"], "name": "one__add"}
        assert list(tools["one__echo"]) == list(own["echo"])
        answer = served.call("two__echo", {"text": "x"})
        assert answer == direct.call("echo", {"text": "x"})


@requirement("mcp:serve-names-collide")
def test_servers_whose_names_collide_are_not_served(tmp_path: Path) -> None:
    folder = declare(tmp_path / "plugins", one="handshake", two="handshake")
    serve = command("mcp", "serve", folder, "--grant-all", "--names", "short")
    client = Client(serve, "handshake", env=environment(tmp_path), cwd=tmp_path)
    assert client.leave() == 1
    said = "".join(client.stderr)
    assert "one/echo and two/echo would both be served as 'echo'" in said
    assert client.junk == []


@requirement("mcp:serve-elicitation")
@pytest.mark.parametrize("era", first_alone(ERAS))
def test_a_client_that_cannot_ask_its_person_has_declined(tmp_path: Path, era: str) -> None:
    folder = declare(tmp_path / "plugins", all="handshake")
    serve = command("mcp", "serve", folder, "--grant-all", "--names", "short")
    with Client(serve, era, env=environment(tmp_path), cwd=tmp_path) as client:
        client.open()
        assert client.call("ask")["content"][0]["text"] == '{"action": "decline"}'
