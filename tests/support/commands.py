"""`plugbay` for tests that run it hundreds of times: real processes, forked from one that has it loaded already.

Owns the server of this test process and what a test sees of a command. That the command starts at all, and what it
loads for that, cannot be seen this way: tests of those start it anew, with `command` or `started`.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from plugbay.cli.gateway.resources import RESOURCES
from tests.support import forkserver
from tests.support.forkserver import NUMBER
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]

OPERATING = {
    "serve",
    "dashboard",
    "ps",
    "logs",
    "start",
    "stop",
    "restart",
    "reload",
    "grant",
    "revoke",
    "publish",
    "events",
    "memory",
    "hook",
    "compact",
    *RESOURCES,
}
"""Commands that are a control plane or ask one. They have a server of their own, which has loaded more: with all of
that, every other command would take longer to fork."""


class Command:
    """One `plugbay` with these arguments, on these streams; otherwise as `Popen`, where the names are the same."""

    def __init__(
        self, arguments: Sequence[str], streams: Sequence[int], cwd: Path | None, env: Mapping[str, str]
    ) -> None:
        task = {"arguments": list(arguments), "cwd": str((cwd or Path()).absolute()), "env": dict(env)}
        self._own, theirs = socket.socketpair()
        with theirs:
            server = _server("plugbay.server.api") if OPERATING.intersection(arguments[:1]) else _server()
            socket.send_fds(server, [b"+"], [*streams, theirs.fileno()])
        self._own.sendall(json.dumps(task).encode())
        self._own.shutdown(socket.SHUT_WR)
        self.pid = self._number()
        self.returncode: int | None = None

    def wait(self, seconds: float) -> int:
        """The status, as `subprocess` gives it; a command that takes longer is killed."""
        if self.returncode is None:
            self._own.settimeout(seconds)
            try:
                self.returncode = os.waitstatus_to_exitcode(self._number())
            except TimeoutError:
                os.kill(self.pid, signal.SIGKILL)
                raise
            finally:
                self._own.close()
        return self.returncode

    def poll(self) -> int | None:
        has_ended = self.returncode is None and select.select([self._own], [], [], 0)[0]
        return self.wait(PATIENCE) if has_ended else self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        return int(NUMBER.unpack(self._own.recv(NUMBER.size))[0])


def plugbay(
    *arguments: str | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, on pipes, as `started` does."""
    words = [str(word) for word in arguments]
    (given, give), (out, say), (err, complain) = os.pipe(), os.pipe(), os.pipe()
    process = Command(words, (given, say, complain), cwd, os.environ if env is None else env)
    for stream in (given, say, complain):
        os.close(stream)
    with ThreadPoolExecutor(3) as pool:
        said = [pool.submit(_drain, out), pool.submit(_drain, err)]
        pool.submit(_fill, give, stdin)
        status = process.wait(timeout)
        return subprocess.CompletedProcess(words, status, *(each.result(timeout) for each in said))


def _fill(stream: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(stream, "wb") as file:  # the command need not read it
        file.write(data)


def _drain(stream: int) -> bytes:
    with open(stream, "rb") as file:
        return file.read()


def command(*arguments: str | Path) -> list[str]:
    """What starts `plugbay` anew, interpreter and all."""
    return [sys.executable, "-m", "plugbay", *map(str, arguments)]


def started(
    *arguments: str | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command that is started anew to its end."""
    words = command(*arguments)
    return subprocess.run(words, input=stdin, capture_output=True, cwd=cwd, env=env, timeout=timeout, check=False)


@functools.cache
def _server(*packages: str) -> socket.socket:
    """The one of this process that has these packages loaded, too; started when it is first needed."""
    ours, theirs = socket.socketpair()
    source = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    env = {**os.environ, "LC_ALL": "C.UTF-8", "PYTHONPATH": source}
    server = subprocess.Popen([sys.executable, "-m", forkserver.__name__, *packages], stdin=theirs.fileno(), env=env)
    theirs.close()

    def stop() -> None:
        ours.close()
        server.wait()

    atexit.register(stop)
    return ours
