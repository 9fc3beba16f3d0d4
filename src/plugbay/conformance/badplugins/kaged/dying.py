"""Ends as KIND says: crashed in a call, accepted when it had answered, quarantined if it goes on like that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from child import KIND, Message, answer, greet, serve, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _exit_0(request: Message) -> None:
    answer(request)
    sys.exit(0)


def _half_line(request: Message) -> None:
    write(b'{"jsonrpc":"2.0","id":')
    sys.exit(0)


def _close(request: Message) -> None:
    os.close(1)
    time.sleep(60)


def _leave_processes(request: Message) -> None:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    answer(request)


def _endless(data: bytes) -> Callable[[Message], None]:
    def flood(request: Message) -> None:
        while True:
            write(data)

    return flood


WAYS: dict[str, Callable[[Message], Any]] = {
    "in_call": lambda request: sys.exit("out of memory"),
    "killed": lambda request: os.kill(os.getpid(), signal.SIGKILL),
    "exit_0": _exit_0,
    "half_line": _half_line,
    "closes_stdout": _close,
    "leaves_processes": _leave_processes,
    "endless_line": _endless(b"x" * 65_536),
    "endless_flood": _endless(b"progress\n" * 4096),
    "stderr_flood": lambda request: (sys.stderr.write("x" * 5_000_000), answer(request)),
}

if KIND == "at_start":
    sys.exit("cannot go on")
greet()
serve(WAYS[KIND])
