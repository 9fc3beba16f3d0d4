"""A plugin in its author's terminal: real processes, and a socket where otherwise `plugbay dev` would wait."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plugbay
from plugbay.sdk.attach import NotAttached, follow_threads, parse_address
from plugbay.sdk.io.stdio import ATTACH

SOURCE = """
import os
from plugbay.sdk import Plugin
plugin = Plugin("p", version="1.0.0")

@plugin.tool()
def whoami() -> dict:
    print("printed to the terminal")
    return {"pid": os.getpid(), "colour": os.environ.get("COLOUR"), "typed": input()}

plugin.run()
"""
HANDSHAKE = {"type": "handshake", "protocol_version": "rterm.plugin.v1"}
SECONDS = 20


class Host:
    """The other end: a socket with a token, and pipes that it hands over."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "socket"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.settimeout(SECONDS)
        self._listening.bind(str(self.path))
        self._listening.listen()

    @property
    def address(self) -> str:
        return f"unix:{self.path}#t0ken"

    def accept(self) -> socket.socket:
        line, _ = self._listening.accept()
        line.settimeout(SECONDS)
        return line

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    opened = Host(tmp_path)
    yield opened
    opened.close()


def start(folder: Path, address: str) -> subprocess.Popen[str]:
    (folder / "plugin.py").write_text(SOURCE)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(plugbay.__file__).parents[1]), ATTACH: address}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "plugin.py"], cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def greet(line: socket.socket) -> dict[str, Any]:
    hello: dict[str, Any] = json.loads(line.recv(4096))
    line.sendall(b'{"welcome": "p"}\n')
    return hello


def call(line: socket.socket, **env: str) -> dict[str, Any]:
    """One conversation of rune over pipes that are handed over; the answer of `whoami`."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    go = json.dumps({"go": {"env": env, "cwd": "/"}}).encode() + b"\n"
    socket.send_fds(line, [go], [theirs_in, theirs_out])
    os.close(theirs_in)
    os.close(theirs_out)
    with os.fdopen(ours_out, "w") as speak, os.fdopen(ours_in) as listen:
        speak.write(json.dumps(HANDSHAKE) + "\n")
        speak.flush()
        assert json.loads(listen.readline())["type"] == "handshake"
        request = {"type": "request", "request_id": "r1", "tool_name": "whoami", "context": {}, "input": {}}
        speak.write(json.dumps(request) + "\n")
        speak.flush()
        answer: dict[str, Any] = json.loads(listen.readline())
    return answer


@pytest.mark.parametrize("text", ["unix:/run/x/socket#abc", "/run/x/socket#abc"])
def test_an_address_has_a_path_and_a_token(text: str) -> None:
    assert parse_address(text) == ("/run/x/socket", "abc")


@pytest.mark.parametrize("text", ["", "unix:", "unix:/run/x", "unix:/run/x#", "socket#abc", "#abc"])
def test_what_is_no_address_is_refused_with_its_shape(text: str) -> None:
    with pytest.raises(NotAttached, match=r"must look like unix:/path/to/socket#token"):
        parse_address(text)


def test_one_process_serves_call_after_call_and_keeps_its_terminal(tmp_path: Path, host: Host) -> None:
    process = start(tmp_path, host.address)
    assert process.stdin and process.stdout and process.stderr
    for typed in ("one", "two"):
        line = host.accept()
        assert greet(line) == {"attach": "t0ken", "pid": process.pid, "returns": False}
        process.stdin.write(f"{typed}\n")
        process.stdin.flush()
        answer = call(line, COLOUR="blue")
        assert answer["output"] == {"pid": process.pid, "colour": "blue", "typed": typed}
        assert json.loads(line.recv(4096)) == {"left": 0}
        line.close()
    host.accept().close()
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert out.count("printed to the terminal") == 2
    assert "p: attached to plugbay dev" in err and "p: plugbay dev has ended" in err


def test_an_address_without_a_listener_is_a_failure(tmp_path: Path, host: Host) -> None:
    host.close()
    process = start(tmp_path, host.address)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "no plugbay dev waits at" in err


def test_a_refusal_is_passed_on_in_its_own_words(tmp_path: Path, host: Host) -> None:
    process = start(tmp_path, host.address)
    line = host.accept()
    line.recv(4096)
    line.sendall(b'{"refused": "the token is wrong"}\n')
    line.close()
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "p: the token is wrong" in err


FOLLOWED = """
import sys, _thread, _queue
from plugbay.sdk.attach import follow_threads
seen = []
def trace(frame, event, argument):
    if frame.f_code.co_name == "handler": seen.append(frame.f_code.co_name)
if "watched" in sys.argv: sys.settrace(trace)
follow_threads()
done = _queue.SimpleQueue()
def handler(word): done.put(word)
_thread.start_new_thread(handler, ("x",))
assert done.get() == "x"
print(len(seen))
"""


@pytest.mark.parametrize(("argument", "times"), [("watched", "1"), ("alone", "0")])
def test_a_debugger_that_watches_us_watches_the_threads_of_handlers(argument: str, times: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(plugbay.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", FOLLOWED, argument], env=env, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stdout.strip() == times


def test_without_a_debugger_threads_are_left_alone() -> None:
    import _thread

    before = _thread.start_new_thread
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        follow_threads()
    finally:
        sys.settrace(trace)
    assert _thread.start_new_thread is before
