"""A whole plugin process, as a rune host sees it: bytes, exit status, timing of its leave."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import plugbay
from tests.sdk.processes import Vai
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

SOURCE = Path(plugbay.__file__).parents[1]

PLUGIN = """
import sys; sys.path.insert(0, {source!r})
from plugbay.sdk import Plugin
print("noise at import")
plugin = Plugin("p", "2")

@plugin.tool()
def echo(input):
    print("noise in a handler")
    return input

@plugin.tool()
def huge():
    return "x" * 2_000_000

@plugin.tool()
def misbehave(kind):
    from plugbay.sdk import ToolError
    if kind == "exit":
        sys.exit(3)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "hang":
        print("about to hang")
        import time
        time.sleep(60)
    raise ToolError("\\udcff" if kind == "surrogate" else "x" * 2_000_000)

@plugin.tool()
def modules():
    return sorted(sys.modules)

@plugin.tool()
def run_again():
    plugin.run()

plugin.run()
"""

HANDSHAKE = b'{"type":"handshake","protocol_version":"rterm.plugin.v1"}\n'


@contextmanager
def plugin_process(tmp_path: Path, text: str = PLUGIN, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "plugin.py").write_text(text.format(source=str(SOURCE)))
    process = subprocess.Popen(
        [sys.executable, "-S", "plugin.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
    try:
        with process:
            yield process
            process.kill()
    finally:
        process.kill()


def ask(process: subprocess.Popen[bytes], line: bytes) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def request(tool: str, given: Any) -> bytes:
    body = {"type": "request", "request_id": "r1", "tool_name": tool, "context": {}, "input": given}
    return json.dumps(body).encode() + b"\n"


@requirement("rune:plugin:waits", "rune:plugin:stdout")
def test_a_plugin_answers_in_an_empty_environment_and_leaves_when_its_input_ends(tmp_path: Path) -> None:
    with plugin_process(tmp_path, env={}) as process:
        assert ask(process, HANDSHAKE)["manifest"] == {
            "plugin_id": "p",
            "plugin_version": "2",
            "protocol_version": "rterm.plugin.v1",
            "exposed_tools": ["echo", "huge", "misbehave", "modules", "run_again"],
            "capabilities": [],
        }
        answer = ask(process, request("echo", {"text": "ü€😀"}))
        assert answer == {"type": "response", "request_id": "r1", "status": "ok", "output": {"text": "ü€😀"}}
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        out, err = process.communicate(timeout=PATIENCE)
        assert (out, process.returncode) == (b"", 0)
        assert err == b"noise at import\nnoise in a handler\n"


def test_a_result_over_one_mebibyte_becomes_an_error_instead_of_a_broken_line(tmp_path: Path) -> None:
    with plugin_process(tmp_path) as process:
        ask(process, HANDSHAKE)
        answer = ask(process, request("huge", {}))
        assert answer["status"] == "error"
        assert "2,000,0" in answer["error"]["message"]


@pytest.mark.parametrize("spoken", [b"", HANDSHAKE], ids=["before the handshake", "before a request"])
def test_a_plugin_whose_host_goes_away_leaves_quietly(tmp_path: Path, spoken: bytes) -> None:
    with plugin_process(tmp_path) as process:
        _, err = process.communicate(spoken, timeout=PATIENCE)
        assert process.returncode == 0
        assert err == b"noise at import\n"


@pytest.mark.parametrize("spoken", [b'{"type":"request"}\n', b'\n{"type":"handshake"}\n', HANDSHAKE + b"[1 2]\n"])
def test_a_host_that_breaks_the_contract_is_told_on_stderr_and_the_plugin_fails(tmp_path: Path, spoken: bytes) -> None:
    with plugin_process(tmp_path) as process:
        _, err = process.communicate(spoken, timeout=PATIENCE)
        assert process.returncode == 1
        assert b"p: the host broke the contract" in err


@requirement("rune:plugin:one-request")
def test_a_handshake_and_two_requests_in_one_chunk_get_one_answer(tmp_path: Path) -> None:
    with plugin_process(tmp_path) as process:
        out, err = process.communicate(HANDSHAKE + request("echo", {"input": 1}) * 2, timeout=PATIENCE)
        assert [json.loads(each)["type"] for each in out.splitlines()] == ["handshake", "response"]
        assert process.returncode == 0
        assert b"Traceback" not in err


@pytest.mark.parametrize("spoken", [b"hello?\n", b'{"bad" 1}\n', b"[1 2]\n"])
@requirement("nexo:sdk-noise")
def test_a_first_line_that_is_no_contract_is_skipped_with_a_word_on_stderr(tmp_path: Path, spoken: bytes) -> None:
    with plugin_process(tmp_path) as process:
        out, err = process.communicate(spoken, timeout=PATIENCE)
        assert (out, process.returncode) == (b"", 0)
        assert b"p: malformed" in err


@requirement("nexo:sdk-one-source", "kaged:sdk-one-source", "vai:sdk-one-source")
def test_one_source_serves_whichever_contract_greets_it(tmp_path: Path) -> None:
    with plugin_process(tmp_path) as process:
        assert ask(process, HANDSHAKE)["type"] == "handshake"
        assert ask(process, request("echo", 7))["output"] == 7
    with plugin_process(tmp_path) as process:
        invoke = {"jsonrpc": "2.0", "id": 1, "method": "tool.invoke", "params": {"tool_name": "p_echo", "args": 7}}
        assert ask(process, json.dumps(invoke).encode() + b"\n")["result"] == 7
    with plugin_process(tmp_path) as process:
        echo = {"jsonrpc": "2.0", "id": 1, "method": "p.echo", "params": {"n": 7}}
        assert ask(process, json.dumps(echo).encode() + b"\n")["result"] == {"n": 7}
    with plugin_process(tmp_path) as process:
        plugin = Vai(process)
        plugin.greet()
        assert plugin.ask("tool.invoke", "echo", input={"n": 7})["result"]["structured_output"] == {"n": 7}


def test_a_first_line_in_pieces_is_still_one_line(tmp_path: Path) -> None:
    with plugin_process(tmp_path) as process:
        assert process.stdin is not None
        for byte in HANDSHAKE[:-1]:
            process.stdin.write(bytes([byte]))
            process.stdin.flush()
        assert ask(process, HANDSHAKE[-1:])["type"] == "handshake"


def test_what_rune_does_not_need_is_not_loaded(tmp_path: Path) -> None:
    with plugin_process(tmp_path) as process:
        ask(process, HANDSHAKE)
        loaded = set(ask(process, request("modules", {}))["output"])
        ours = {name.removeprefix("plugbay.sdk.") for name in loaded if name.startswith("plugbay.sdk.")}
        rooms = {"io.detect", "io.stdio", "runtime.single_call", "types.handlers"}
        assert ours == {*rooms, *(name.split(".")[0] for name in rooms), "declarations", "plugin", "serving"}
        assert not loaded & {"threading", "_queue", "asyncio", "json", "re", "typing"}
        contracts = {name.split(".")[2] for name in loaded if name.startswith("plugbay.contracts.")}
        assert contracts == {"base", "rune"}


def test_a_process_serves_once(tmp_path: Path) -> None:
    with plugin_process(tmp_path) as process:
        ask(process, HANDSHAKE)
        answer = ask(process, request("run_again", {}))
        assert "serves a plugin already" in answer["error"]["message"]


def test_a_request_that_ends_with_the_input_instead_of_a_newline_is_still_answered(tmp_path: Path) -> None:
    with plugin_process(tmp_path) as process:
        out, _ = process.communicate(HANDSHAKE + request("echo", 5).strip(), timeout=PATIENCE)
        assert json.loads(out.split(b"\n")[1])["output"] == 5
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("kind", "words"),
    [("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt"), ("surrogate", "\\udcff"), ("huge", "xxx")],
)
def test_every_exception_of_a_handler_reaches_the_host_as_an_error(tmp_path: Path, kind: str, words: str) -> None:
    with plugin_process(tmp_path) as process:
        ask(process, HANDSHAKE)
        answer = ask(process, request("misbehave", {"kind": kind}))
        assert answer["status"] == "error"
        assert words in answer["error"]["message"]


def test_what_a_killed_plugin_printed_is_on_stderr_already(tmp_path: Path) -> None:
    with plugin_process(tmp_path) as process:
        ask(process, HANDSHAKE)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(request("misbehave", {"kind": "hang"}))
        process.stdin.flush()
        assert process.stderr.readline() == b"noise at import\n"
        assert process.stderr.readline() == b"about to hang\n"


def test_a_host_that_does_not_read_the_answer_is_no_reason_for_a_traceback(tmp_path: Path) -> None:
    with plugin_process(tmp_path) as process:
        ask(process, HANDSHAKE)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(request("echo", 1), timeout=PATIENCE)
        assert (process.returncode, b"Traceback" in err) == (0, False)


TYPED = """
import sys; sys.path.insert(0, {source!r})
from plugbay.sdk import Plugin
plugin = Plugin("p", "2")

@plugin.tool()
def modules(items: "list[int]", how: "Literal['all', 'ours'] | None" = "all", **more: "float") -> "set[str]":
    return set(sys.modules)

@plugin.tool()
def other(a: "list[Nowhere]"):
    pass

plugin.run()
"""


def test_types_cost_a_plugin_no_heavy_module_and_nothing_for_tools_that_are_not_called(tmp_path: Path) -> None:
    with plugin_process(tmp_path, TYPED) as process:
        ask(process, HANDSHAKE)
        loaded = set(ask(process, request("modules", {"items": [1, 2.0], "how": "all", "x": 1}))["output"])
    assert {"plugbay.sdk.types.signature", "plugbay.sdk.types.shapes"} <= loaded
    heavy = {"typing", "dataclasses", "inspect", "re", "enum", "json", "asyncio", "threading", "datetime"}
    assert not loaded & (heavy | {"plugbay.sdk.errors"})
