"""One client on two descriptors: end of input, back-pressure, and nothing else on stdout."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay.mcp_server import stdio
from plugbay.mcp_server.stdio import Wire, serve
from tests.mcp_server.running_servers import declare, running_server
from tests.support.loops import Run
from tests.support.patience import PATIENCE
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


def call(id: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


GREETING = {"id": 0, "method": "initialize", "params": HELLO}


REPORT = {"id": 1, "method": "tools/call", "params": {"name": "report", "_meta": {"progressToken": 7}}}


def answers(said: bytes) -> dict[int, Any]:
    return {message["id"]: message.get("result") for message in map(json.loads, said.splitlines())}


@requirement("mcp:serve-end")
def test_what_was_piped_in_is_answered_before_the_end(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server):
            taken, given = os.pipe()
            out, ours = os.pipe()
            os.write(given, lines(GREETING, call(1, "t", a=1), {"id": 2, "method": "ping"}))
            os.close(given)
            await serve(server, Wire(taken, ours))
            said = answers(os.read(out, 65_536))
            os.close(out)
            assert said[1]["structuredContent"] == {"a": 1}
            assert said[2] == {}

    run(main)


def test_files_are_as_good_as_pipes(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")
    (tmp_path / "in").write_bytes(lines(GREETING, call(1, "t", a=1)))

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server):
            wire = Wire(os.open(tmp_path / "in", os.O_RDONLY), os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT))
            await serve(server, wire)
            assert answers((tmp_path / "out").read_bytes())[1]["structuredContent"] == {"a": 1}

    run(main)


@requirement("mcp:serve-limits")
def test_a_client_that_does_not_read_is_not_read_from(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "MAX_UNSENT", 1000)

    async def main() -> None:
        async with running_server(declare(tmp_path / "plugins", all="handshake")) as (_, server):
            taken, given = os.pipe()
            out, ours = os.pipe()
            serving = asyncio.ensure_future(serve(server, Wire(taken, ours)))
            os.write(given, lines(GREETING, *(call(number, "large", size=300_000) for number in (1, 2))))
            loop, said = asyncio.get_running_loop(), b""
            while said.count(b"\n") < 3:
                said += await loop.run_in_executor(None, os.read, out, 65_536)
            os.write(given, lines(call(3, "echo", text="still here")))
            os.close(given)
            while said.count(b"\n") < 4:
                said += await loop.run_in_executor(None, os.read, out, 65_536)
            await serving
            os.close(out)
            assert {id: len(result["content"][0]["text"]) for id, result in answers(said).items() if id in (1, 2)} == {
                1: 300_000,
                2: 300_000,
            }

    run(main)


@requirement("mcp:serve-end")
def test_a_call_that_does_not_end_is_given_up_after_the_end_of_input(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "DRAIN_SECONDS", 0.05)

    async def main() -> None:
        async with running_server(declare(tmp_path / "plugins", all="handshake")) as (_, server):
            taken, given = os.pipe()
            out, ours = os.pipe()
            os.write(given, lines(GREETING, call(1, "wait")))
            os.close(given)
            await serve(server, Wire(taken, ours))
            assert list(answers(os.read(out, 65_536))) == [0]
            assert os.read(out, 1) == b""
            os.close(out)

    run(main)


@requirement("mcp:serve-progress")
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_an_answer_never_overtakes_nor_accompanies_its_progress(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(stdio, "MAX_RETRIES", 1_000_000)

    async def main() -> None:
        async with running_server(declare(tmp_path / "plugins", all="handshake")) as (_, server):
            taken, given = os.pipe()
            out, ours = os.pipe() if kind == "pipe" else [end.detach() for end in socket.socketpair()]
            serving = asyncio.ensure_future(serve(server, Wire(taken, ours)))
            os.write(given, lines(GREETING, REPORT))
            loop, reads = asyncio.get_running_loop(), [b""]
            while b'"id":1' not in reads[-1]:
                reads.append(await loop.run_in_executor(None, os.read, out, 65_536))
            assert b"".join(reads).count(b"notifications/progress") == 2
            assert b"progress" not in reads[-1]
            os.close(given)
            await serving
            os.close(out)

    run(main)


@requirement("mcp:serve-progress")
def test_a_client_that_does_not_read_its_progress_gets_the_answer_all_the_same(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_server(declare(tmp_path / "plugins", all="handshake")) as (_, server):
            taken, given = os.pipe()
            out, ours = os.pipe()
            os.write(given, lines(GREETING, REPORT))
            os.close(given)
            await serve(server, Wire(taken, ours))
            said = [json.loads(line) for line in os.read(out, 65_536).splitlines()]
            assert [message.get("id", "progress") for message in said] == [0, "progress", "progress", 1]
            os.close(out)

    run(main)


NOISY = """
import os, sys
from plugbay.mcp_server.stdio import take_wire
wire = take_wire()
print("noise")
sys.__stdout__.flush()
os.write(1, b"noise")
os.system("echo noise; cat")
os.write(wire.write_fd, b"the wire: " + os.read(wire.read_fd, 100))
assert not os.get_inheritable(wire.read_fd) and not os.get_inheritable(wire.write_fd)
"""


@requirement("mcp:serve-clean-stdout")
@pytest.mark.parametrize("shell", ["exec {python} -c '{program}'", "exec {python} -c '{program}' 2>&-"])
def test_nothing_that_is_printed_reaches_the_wire(shell: str) -> None:
    command = shell.format(python=sys.executable, program=NOISY)
    done = subprocess.run(["sh", "-c", command], input=b"hello", capture_output=True, timeout=PATIENCE, check=False)
    assert done.stdout == b"the wire: hello"


def test_the_same_program_without_the_swap_would_have_spoiled_it() -> None:
    program = NOISY.replace(
        "wire = take_wire()", "from plugbay.mcp_server.stdio import Wire; wire = Wire(os.dup(0), os.dup(1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"hello", capture_output=True, timeout=PATIENCE, check=False
    )
    assert b"noise" in done.stdout
