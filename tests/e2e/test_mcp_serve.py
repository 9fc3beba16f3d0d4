"""`plugbay mcp serve` with real plugins of every contract that has tools: one server, a clean wire, a clean end."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import command, environment, is_alive, wait_until
from tests.mcp_server.raw import Client
from tests.sdk.everywhere import REACHES, loaded
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, first_alone, later

SOURCE = """
from __future__ import annotations

import os
from plugbay.sdk import Plugin

plugin = Plugin("bench-NAME", version="1.0.0")
print("noise at import")


@plugin.tool(effect="read_only")
def shout(text: str) -> dict:
    "Say it louder."
    print("noise")
    os.write(1, b"noise\\n")
    os.system("echo noise")
    return {"shouted": text.upper()}


@plugin.tool()
def fail(text: str) -> None:
    "Fail, saying why."
    raise RuntimeError(text)


@plugin.tool(timeout=60)
def wait(path: str, ctx) -> None:
    "Write a process id, and stay."
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    ctx.sleep(60)


if __name__ == "__main__":
    plugin.run()
"""

WITH_TOOLS = ("rune", "nexo", "kaged", "vai")
"""The contracts of ours that have tools; MCP itself has a test of its own."""


def write(folder: Path, *contracts: str) -> Path:
    """One source for each contract, with the manifest of that contract only."""
    for contract in contracts:
        home = folder / contract
        home.mkdir(parents=True)
        (home / "plugin.py").write_text(SOURCE.replace("NAME", contract))
        for path, text in REACHES[contract].files(loaded(home)).items():
            (home / path).parent.mkdir(exist_ok=True)
            (home / path).write_text(text)
            (home / path).chmod(0o755)
    return folder


def serve(folder: Path, *options: str) -> list[str]:
    return command("mcp", "serve", folder, "--grant-all", "--no-sandbox", *options)


def tool(tools: list[dict[str, Any]], contract: str, name: str) -> str:
    return str(next(each["name"] for each in tools if contract in each["name"] and each["name"].endswith(name)))


@requirement("mcp:serve-every-contract", "mcp:serve-clean-stdout", "mcp:serve-stdio")
@pytest.mark.parametrize("era", first_alone(["handshake", "modern"]))
def test_tools_of_every_contract_are_one_server(tmp_path: Path, era: str) -> None:
    folder = write(tmp_path / "plugins", *WITH_TOOLS)
    with Client(serve(folder), era, env=environment(tmp_path), cwd=tmp_path) as client:
        client.open()
        tools = client.everything("tools/list", "tools")
        assert len(tools) == 3 * len(WITH_TOOLS)
        for contract in WITH_TOOLS:
            name = tool(tools, contract, "shout")
            described = next(each for each in tools if each["name"] == name)
            assert described["description"] == "Say it louder."
            assert described["inputSchema"]["properties"]["text"]["type"] == "string"
            assert client.call(name, {"text": "tea"})["structuredContent"] == {"shouted": "TEA"}, contract
            failed = client.call(tool(tools, contract, "fail"), {"text": "no milk"})
            assert failed["isError"] and "no milk" in failed["content"][0]["text"], contract
        assert client.junk == []
        assert client.leave() == 0


@requirement("mcp:serve-end")
@pytest.mark.parametrize(("end", "status"), [("input", 0), later(signal.SIGTERM, 143), later(signal.SIGINT, 130)])
def test_whatever_ends_it_no_plugin_is_left(tmp_path: Path, end: Any, status: int) -> None:
    folder = write(tmp_path / "plugins", "nexo")
    client = Client(serve(folder), "handshake", env=environment(tmp_path), cwd=tmp_path)
    client.open()
    tools = client.everything("tools/list", "tools")
    note = tmp_path / "pid"
    client.begin("tools/call", {"name": tool(tools, "nexo", "wait"), "arguments": {"path": str(note)}})
    wait_until(lambda: note.exists() and note.read_text(), "the call to be under way")
    pid = int(note.read_text())
    assert is_alive(pid)
    if end != "input":
        client.process.send_signal(end)
        assert client.process.wait(PATIENCE) == status
    assert client.leave() == status
    assert not is_alive(pid)


@exhaustive
@requirement("mcp:http-guard", "mcp:serve-end")
def test_over_http_the_token_is_said_once_and_a_signal_ends_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "plugins", "rune")
    words = serve(folder, "--http", "127.0.0.1:0")
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        text=True,
    )
    assert process.stderr and process.stdout
    said: list[str] = []
    while not said or not said[-1].startswith("token"):
        said.append(process.stderr.readline())
    url = next(line.split()[-1] for line in said if line.startswith("listening at "))
    token = said[-1].split()[-1]
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": "bench-rune__shout", "arguments": {"text": "tea"}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "bench-rune__shout",
    }
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        assert json.load(response)["result"]["structuredContent"] == {"shouted": "TEA"}
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, process.returncode) == ("", 143)
    assert token not in err
