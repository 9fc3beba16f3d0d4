"""Other people's MCP clients against `plugbay mcp serve`, and other people's servers under plugbay's host.

The clients are the official ones of both generations, in Python and TypeScript; each does the same round through one
plugin and says what it saw. The servers are the official reference servers. `make setup` installs all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters, types
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from plugbay import Host
from tests.support.loops import Run
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, first_alone, these

REPOSITORY = Path(__file__).parents[2]
PEERS = REPOSITORY / ".peers"
SCRIPTS = REPOSITORY / "tests" / "peers"
SERVERS = PEERS / "node_modules" / "@modelcontextprotocol"

CLIENTS: dict[str, list[str]] = {
    "python 1": [str(PEERS / "mcp1" / "bin" / "python"), str(SCRIPTS / "client1.py"), "handshake"],
    "python 2": [sys.executable, str(SCRIPTS / "client2.py"), "handshake"],
    "python 2, modern": [sys.executable, str(SCRIPTS / "client2.py"), "modern"],
    "typescript 1": ["node", str(SCRIPTS / "client.mjs"), str(PEERS), "1", "handshake"],
    "typescript 2": ["node", str(SCRIPTS / "client.mjs"), str(PEERS), "2", "handshake"],
    "typescript 2, modern": ["node", str(SCRIPTS / "client.mjs"), str(PEERS), "2", "modern"],
}

STDIO_SAMPLE = {"typescript 1"}
"""The clients of `make test`."""

SERVE = [sys.executable, "-m", "plugbay", "mcp", "serve"]


@pytest.fixture
def workbench(tmp_path: Path) -> Path:
    """A folder with one MCP server, made with plugbay's own SDK."""
    program = SCRIPTS / "workbench" / "plugin.py"
    entry = {"command": sys.executable, "args": [str(program)]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"workbench": entry}}))
    return tmp_path


@requirement("mcp:serve-official-clients")
@pytest.mark.parametrize("client", these(CLIENTS, STDIO_SAMPLE.__contains__))
def test_an_official_client_finds_everything_over_stdio(client: str, workbench: Path) -> None:
    judge(looked([*CLIENTS[client], *SERVE, str(workbench), "--grant-all"]), client)


@requirement("mcp:serve-official-clients-http")
@exhaustive
@pytest.mark.parametrize("client", CLIENTS)
def test_an_official_client_finds_everything_over_http(client: str, workbench: Path) -> None:
    with serving(workbench) as (url, token):
        judge(looked([*CLIENTS[client], url, token]), client)


@requirement("mcp:serve-sampling", "mcp:serve-roots", "mcp:serve-roots-changed")
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("mode", first_alone(["legacy", "2026-07-28"]))
@pytest.mark.parametrize("era", first_alone(["handshake", "modern"]))
def test_an_official_client_samples_and_lists_roots_for_a_hosted_server(tmp_path: Path, mode: str, era: str) -> None:
    entry = {"command": sys.executable, "args": [str(REPOSITORY / "tests" / "mcp_server" / "asking.py"), era]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"srv": entry}}))
    folders = ["file:///client/one"]

    async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        (message,) = params.messages
        return types.CreateMessageResult(role="assistant", content=message.content, model=f"m{params.max_tokens}")

    async def list_roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in folders])

    async def main() -> None:
        words = [*SERVE[1:], str(tmp_path), "--grant-all", "--no-sandbox"]
        program = StdioServerParameters(command=SERVE[0], args=words, env=dict(os.environ))
        transport = stdio_client(program, errlog=log)
        async with Client(transport, mode=mode, sampling_callback=sample, list_roots_callback=list_roots) as client:

            async def call(tool: str, **arguments: Any) -> Any:
                result = await client.call_tool(f"srv__{tool}", arguments)
                return json.loads(result.content[0].text)

            said = {"messages": [{"role": "user", "content": {"type": "text", "text": "tea"}}], "maxTokens": 9}
            answer = await call("ask", method="sampling/createMessage", params=said)
            assert (answer["content"]["text"], answer["model"]) == ("tea", "m9")
            assert await call("ask", method="roots/list") == {"roots": [{"uri": "file:///client/one"}]}
            if era == "handshake" and mode == "legacy":
                folders.append("file:///client/two")
                await client.send_roots_list_changed()
                while not any(len(each.get("roots", ())) == 2 for each in await call("roots")):
                    pass

    with (tmp_path / "log").open("w") as log:
        anyio.run(main)


def looked(command: list[str]) -> dict[str, Any]:
    """What a client saw."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str]]:
    """Serve a folder over HTTP; where, and the token that opens it."""
    token = "a-token-for-this-test"
    token_file = folder / "token"
    token_file.write_text(token)
    token_file.chmod(0o600)
    command = [*SERVE, str(folder), "--grant-all", "--http", "127.0.0.1:0", "--token-file", str(token_file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield _address(server), token
        finally:
            server.terminate()
            server.communicate(timeout=PATIENCE)


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    for line in server.stderr:
        for word in line.split():
            if word.startswith("http://"):
                return word.rstrip(".,")
    raise AssertionError("the server never said where it is")


def judge(seen: dict[str, Any], client: str) -> None:
    names = {tool["name"].rpartition("_")[2] for tool in seen["tools"]}
    assert {"shout", "fail", "count", "wait", "waited", "large"} <= names
    if "modern" in client:
        assert seen.get("protocol", "2026-07-28") == "2026-07-28"
    shout = next(tool for tool in seen["tools"] if tool["name"].endswith("shout"))
    assert shout["annotations"]["readOnlyHint"] is True
    assert seen["call"]["structuredContent"] == {"shouted": "TEA"}
    assert not seen["call"].get("isError")
    assert seen["error"]["isError"] is True
    assert "no milk" in seen["error"]["content"][0]["text"]
    assert seen["unknown"] == {"thrown": -32602}
    assert seen["refused"].get("isError") or seen["refused"]["thrown"] == -32602
    assert seen["progress"] == ["number 1", "number 2", "number 3"]
    assert seen["counted"]["structuredContent"] == {"result": 3}
    assert (seen["cancelled"], seen["waited"]) == ("cancelled", "1")
    assert seen["large"] == 3_000_000


# Servers.


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """A folder with the official reference servers."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "tea.txt").write_text("Assam\n")
    arguments: dict[str, list[str]] = {
        "everything": [],
        "filesystem": [str(tmp_path / "files")],
        "memory": [],
        "sequential-thinking": [],
    }
    servers = {
        name: {"command": "node", "args": [str(SERVERS / f"server-{name}" / "dist" / "index.js"), *more]}
        for name, more in arguments.items()
    }
    servers["memory"]["env"] = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}  # type: ignore[assignment]
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return tmp_path


@requirement("mcp:host-reference-servers")
def test_the_reference_servers_are_hosted_and_called(reference: Path, run: Run) -> None:
    async def main() -> None:
        async with Host.load(reference, grant_all=True, state_dir=reference / "state") as host:
            echoed = await host.call("everything/echo", {"message": "tea"})
            assert echoed["content"] == [{"type": "text", "text": "Echo: tea"}]

            listed = await host.call("filesystem/list_directory", {"path": str(reference / "files")})
            assert "[FILE] tea.txt" in listed["content"][0]["text"]
            read = await host.call("filesystem/read_text_file", {"path": str(reference / "files" / "tea.txt")})
            assert read["structuredContent"] == {"content": "Assam\n"}
            outside = await host.attempt("filesystem/read_text_file", {"path": os.devnull})
            assert outside.failure is not None
            assert outside.failure.code == "plugin_error"

            entity = {"name": "Assam", "entityType": "tea", "observations": ["strong"]}
            await host.call("memory/create_entities", {"entities": [entity]})
            graph = await host.call("memory/read_graph")
            assert graph["structuredContent"]["entities"] == [entity]

            thought = {"thought": "Boil", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
            thinking = await host.call("sequential-thinking/sequentialthinking", thought)
            assert thinking["structuredContent"]["thoughtHistoryLength"] == 1

    run(main)


@requirement("mcp:host-reference-servers")
def test_what_the_everything_server_has_beside_tools_is_there(reference: Path, run: Run) -> None:
    async def main() -> None:
        path = reference / ".mcp.json"
        async with Host.load(path, grant_all=True, state_dir=reference / "state") as host:
            said: list[Any] = []
            steps = {"duration": 0.3, "steps": 3}
            await host.attempt("everything/trigger-long-running-operation", steps, on_progress=said.append)
            assert [item["progress"] for item in said] == [1, 2, 3]

            kinds = {name: export.kind for name, export in host.exports().items() if name.startswith("everything/")}
            prompts = [name for name, kind in kinds.items() if kind == "prompt"]
            assert "everything/simple-prompt" in prompts
            filled = await host.call("everything/simple-prompt")
            assert filled["messages"][0]["role"] == "user"

            resources = [name for name, kind in kinds.items() if kind == "resource"]
            contents = await host.call(resources[0])
            assert contents["contents"][0]["uri"]

    run(main)
