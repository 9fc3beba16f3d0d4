"""A bare conversation with a child, without any host: spawn, write a line, read a line, close, wait.

This is the reference of `rune` and `startup`: a program would do this by hand.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.harness import PAYLOAD, BenchFailed

HANDSHAKE = b'{"type":"handshake","protocol_version":"rterm.plugin.v1"}\n'
REQUEST = (
    b'{"type":"request","request_id":"plugin_req_0000000000000001","tool_name":"echo","context":{},'
    b'"input":{"text":"%b"}}\n' % PAYLOAD.encode()
)

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"clientInfo":{"name":"bench","version":"1"}}}\n'
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
TOOLS_CALL = (
    b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%b"}}}\n'
    % PAYLOAD.encode()
)


class Times(msgspec.Struct):
    """Milliseconds from the start of a child to its first tool result, and to its end."""

    first_result_ms: float
    whole_ms: float


def rune(argv: Sequence[str], cwd: Path, env: dict[str, str]) -> Times:
    """One rune call, and the child's orderly end."""
    return _converse(argv, cwd, env, [HANDSHAKE, REQUEST])


def mcp(argv: Sequence[str], cwd: Path, env: dict[str, str]) -> Times:
    """One MCP tool call, and the server's end."""
    return _converse(argv, cwd, env, [INITIALIZE, INITIALIZED + TOOLS_CALL])


def nothing(argv: Sequence[str], cwd: Path, env: dict[str, str]) -> Times:
    """A process that comes and goes."""
    began = time.perf_counter()
    code = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).wait()
    whole = (time.perf_counter() - began) * 1e3
    if code != 0:
        raise BenchFailed(f"{argv[0]} left with status {code}")
    return Times(whole, whole)


def _converse(argv: Sequence[str], cwd: Path, env: dict[str, str], says: Sequence[bytes]) -> Times:
    """Say each line and read one line in answer; the last answer must hold the payload."""
    pipe = subprocess.PIPE
    began = time.perf_counter()
    with subprocess.Popen(argv, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        answer = b""
        for line in says:
            child.stdin.write(line)
            child.stdin.flush()
            answer = child.stdout.readline()
        first = time.perf_counter()
        child.stdin.close()
        code = child.wait()
        ended = time.perf_counter()
        if PAYLOAD.encode() not in answer or code != 0:
            raise BenchFailed(f"{argv[-1]}: status {code}, {answer!r}, {child.stderr.read()[-500:]!r}")
    return Times((first - began) * 1e3, (ended - began) * 1e3)
