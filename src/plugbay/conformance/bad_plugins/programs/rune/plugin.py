"""The bad plugins of rune that shell cannot write (those of `plugin.sh` are the rest): the first argument names a case.

A case does one thing wrong and everything else right. `catalog.json` says what each case does and what a host must do.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
MAX_LINE = 1_048_576
HANDSHAKE = {
    "type": "handshake",
    "manifest": {
        "plugin_id": "bad.plugin",
        "plugin_version": "1.0.0",
        "protocol_version": "rterm.plugin.v1",
        "exposed_tools": ["bad.tool"],
    },
}


def _greet() -> str:
    """The id of the request that follows a right handshake."""
    sys.stdin.readline()
    print(json.dumps(HANDSHAKE), flush=True)
    return str(json.loads(sys.stdin.readline())["request_id"])


def _response(request_id: str, **more: Any) -> str:
    return json.dumps({"type": "response", "request_id": request_id, "status": "ok", **more})


# Lines before the handshake, or in place of it.


def _write_a_gibibyte() -> None:
    chunk = b"a" * (1 << 20)
    for _ in range(1024):
        os.write(1, chunk)


def _write_without_end() -> None:
    while True:
        os.write(1, b"a" * 65536)


def _write_half_a_mebibyte() -> None:
    sys.stdout.write("a" * 500_000)
    sys.stdout.flush()
    os.read(0, 1)


def _write_bad_bytes() -> None:
    sys.stdin.readline()
    sys.stdout.buffer.write(b'{"type":"handshake","manifest":{"plugin_id":"\xff\xfe\xc0\x80"}}\n')
    sys.stdout.flush()


def _write_junk() -> None:
    sys.stdout.buffer.write(bytes(range(128, 256)) + b"\n\0\0\0\n")
    sys.stdin.readline()
    print(json.dumps(HANDSHAKE), flush=True)


def _flood_stderr() -> None:
    for number in range(10_000):
        print(f"line {number} of a long story" + "." * 80, file=sys.stderr)
    print(_response(_greet(), output=1), flush=True)


# Responses.


def _respond_with_output(output: str) -> None:
    print(_response(_greet())[:-1] + f', "output": {output}}}', flush=True)


def _respond_with_size(size: int, before: str = "", after: str = "") -> None:
    head, tail = _response(_greet())[:-1] + ', "output": "', '"}'
    print(before + head + "a" * (size - len(head) - len(tail)) + tail + after, flush=True)


def _write_byte_by_byte() -> None:
    def drip(line: str) -> None:
        for byte in line.encode() + b"\n":
            os.write(1, bytes([byte]))

    sys.stdin.readline()
    drip(json.dumps(HANDSHAKE))
    request = json.loads(sys.stdin.readline())
    drip(_response(request["request_id"], output={"said": "hello"}))


def _write_after_response() -> None:
    print(_response(_greet()), flush=True)
    print("a" * 300_000, flush=True)


def _leave_a_daemon() -> None:
    request_id = _greet()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in range(3):
                os.close(descriptor)
            time.sleep(600)
        os._exit(0)
    os.wait()
    print(_response(request_id, output=1), flush=True)


CASES: dict[str, Callable[[], Any]] = {
    "bad_bytes": _write_bad_bytes,
    "deep_json": lambda: _respond_with_output("[" * 100_000 + "]" * 100_000),
    "deep_unclosed_json": lambda: _respond_with_output("[" * 500_000),
    "double_forks": _leave_a_daemon,
    "endless_gibibyte": _write_a_gibibyte,
    "endless_line_above_limit": _write_without_end,
    "endless_line_below_limit": _write_half_a_mebibyte,
    "junk_first": _write_junk,
    "large_output_after_ok": _write_after_response,
    "line_of_1_mib": lambda: _respond_with_size(MAX_LINE),
    "line_of_1_mib_and_blanks": lambda: _respond_with_size(MAX_LINE, "  ", " \r"),
    "line_over_1_mib": lambda: _respond_with_size(MAX_LINE + 1),
    "one_byte_at_a_time": _write_byte_by_byte,
    "stderr_flood": _flood_stderr,
    "wide_json": lambda: _respond_with_output("[" + "[]," * 300_000 + "[]]"),
}

if __name__ == "__main__":
    if KIND not in CASES:
        sys.exit(f"there is no case {KIND!r}")
    CASES[KIND]()
    if KIND != "endless_gibibyte":
        sys.stdin.read()
