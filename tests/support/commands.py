"""`plugbay`, and code that uses it, for tests that run it hundreds of times: real processes, forked from one that has
it loaded already.

Owns the servers, which all test processes share, and what a test sees of a command. That the command starts at all, and
what it loads for that, cannot be seen this way: tests of those start it anew, with `command` or `started`.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import IO

from plugbay.cli.gateway.resources import RESOURCES
from tests.support import forkserver
from tests.support.forkserver import NUMBER
from tests.support.patience import PATIENCE
from tests.support.shared import SESSION, shared

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
    "search",
    *RESOURCES,
}
"""Commands that are a control plane or ask one. They have a server of their own, which has loaded more: with all of
that, every other command would take longer to fork."""

SERVER = ("plugbay.server", "alembic.command", "asyncpg", "jinja2", "keyring", "secretstorage")
"""What a control plane loads besides."""


class Command:
    """One `plugbay` with these arguments, on these streams; otherwise as `Popen`, where the names are the same."""

    def __init__(
        self,
        arguments: Sequence[str],
        streams: Sequence[int],
        cwd: Path | None,
        env: Mapping[str, str],
        *,
        controlled: bool = False,
        code: str = "",
        libraries: Sequence[str] = (),
    ) -> None:
        """`controlled`: stdin is a terminal and becomes the controlling one, so that Ctrl-C is for this command.
        `code`: run as `python -c` does, in the place of `plugbay`, where these `libraries` are loaded too.
        """
        task = {
            "arguments": list(arguments),
            "cwd": str((cwd or Path()).absolute()),
            "env": dict(env),
            "controlled": controlled,
            "code": code,
        }
        self._own = _connection(libraries or _packages_of(arguments))
        socket.send_fds(self._own, [b"+"], streams)
        self._own.sendall(json.dumps(task).encode())
        self._own.shutdown(socket.SHUT_WR)
        self.pid = self._number()
        self.returncode: int | None = None

    def wait(self, seconds: float) -> int:
        """The status, as `subprocess` gives it; a command that takes longer is killed."""
        if self.returncode is None:
            self._own.settimeout(seconds)
            try:
                self.returncode = self._status()
            except TimeoutError:
                os.kill(self.pid, signal.SIGKILL)
                self._own.settimeout(PATIENCE)
                self.returncode = self._status()
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

    def _status(self) -> int:
        return os.waitstatus_to_exitcode(self._number())

    def _number(self) -> int:
        return int(NUMBER.unpack(self._own.recv(NUMBER.size))[0])


class Piped(Command):
    """A command with pipes in place of the streams that are not given."""

    def __init__(
        self,
        *arguments: str | Path | bytes,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        code: str = "",
        libraries: Sequence[str] = (),
    ) -> None:
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        words = [os.fsdecode(word) for word in arguments]
        with ExitStack() as theirs:

            def pipe(writes: bool) -> tuple[int, IO[bytes]]:
                reader, writer = os.pipe()
                theirs.callback(os.close, writer if writes else reader)
                return (writer, open(reader, "rb")) if writes else (reader, open(writer, "wb"))

            if stdin is None:
                stdin, self.stdin = pipe(writes=False)
            if stdout is None:
                stdout, self.stdout = pipe(writes=True)
            if stderr is None:
                stderr, self.stderr = pipe(writes=True)
            env = os.environ if env is None else env
            super().__init__(words, (stdin, stdout, stderr), cwd, env, code=code, libraries=libraries)

    def communicate(self, stdin: bytes = b"", timeout: float = PATIENCE) -> tuple[bytes, bytes]:
        """All that it has written, at its end."""
        with ThreadPoolExecutor(3) as pool:
            said = [pool.submit(_drain, stream) for stream in (self.stdout, self.stderr)]
            pool.submit(_fill, self.stdin, stdin)
            self.wait(timeout)
            out, err = (each.result(timeout) for each in said)
            return out, err


def plugbay(
    *arguments: str | Path | bytes,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, on pipes, as `started` does."""
    process = Piped(*arguments, cwd=cwd, env=env)
    out, err = process.communicate(stdin, timeout)
    return subprocess.CompletedProcess(list(arguments), process.wait(timeout), out, err)


def python(
    code: str,
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run code to its end as `python -c` does, where `plugbay` is loaded already."""
    process = Piped(*arguments, cwd=cwd, env=env, code=code)
    out, err = process.communicate()
    return subprocess.CompletedProcess(list(arguments), process.wait(PATIENCE), out, err)


def _fill(stream: IO[bytes] | None, data: bytes) -> None:
    with suppress(BrokenPipeError), stream or nullcontext() as file:  # the command need not read it
        if file is not None:
            file.write(data)


def _drain(stream: IO[bytes] | None) -> bytes:
    with stream or nullcontext() as file:
        return b"" if file is None else file.read()


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


def _packages_of(arguments: Sequence[str]) -> Sequence[str]:
    command = arguments[0] if arguments else ""
    return SERVER if command in OPERATING else ["plugbay.tui"] if command == "tui" else []


def _connection(loaded: Sequence[str]) -> socket.socket:
    """To the server that has loaded these packages or libraries; started when it is first needed."""
    name = f"commands-{hashlib.sha256(' '.join(loaded).encode()).hexdigest()[:8]}"  # the path of a socket is short
    path = shared(name, lambda path: _start(path, loaded))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    return connection


def _start(path: Path, loaded: Sequence[str]) -> None:
    source = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    env = {**os.environ, "LC_ALL": "C.UTF-8", "PYTHONPATH": source}
    words = [sys.executable, "-m", forkserver.__name__, str(SESSION), *loaded]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        server = subprocess.Popen(words, stdin=listener.fileno(), env=env)
    server.returncode = 0  # it outlives this process, so nobody here waits for it
