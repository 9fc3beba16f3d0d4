"""A program that has `plugbay` loaded and forks a process for each command: that takes 0.1 s of CPU instead of 1.

Owns how a fork becomes what `python -m plugbay` or `python -c` would be: a process with its own standard streams,
folder, environment and arguments, that leaves as the interpreter does. Knows nothing of tests, and imports none of what
they use. `commands.py` is its only customer.

Stdin is a listening socket, and each connection is one command. It brings one byte with three descriptors, the streams,
and then arguments, folder and environment, which the command itself reads; the server sends first the pid and then the
status, as `waitpid` gives it. The server ends with the process whose pid is its first argument.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import socket
import struct
import sys
import termios
import threading
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from pydantic import BaseModel

NUMBER = struct.Struct("!q")

PACKAGES = ("plugbay.cli", "plugbay.conformance", "plugbay.contracts", "plugbay.host", "plugbay.packages")
"""Whose modules are loaded before the first command, besides packages and libraries that are named as arguments; what
they import comes with them."""
LIBRARIES = (
    "anyio._backends._asyncio",
    "cryptography.hazmat.primitives.serialization",
    "difflib",
    "encodings.idna",
    "keyring",
    "logging",
    "platformdirs.unix",
    "rich.console",
    "rich.highlighter",
    "rich.progress",
    "rich.text",
    "tomlkit",
    "typer._adapters",
    "typer._click.decorators",
    "uvloop",
)
"""What commands load only when they run."""
PROGRAMS = ("plugbay.conformance.bad_plugins.programs",)
"""Not for loading."""


class Fork(NamedTuple):
    """A command that was started, as the server sees it."""

    pid: int
    own: socket.socket


def load(more: Sequence[str]) -> None:
    """Load what commands load, then keep the collector off it, so that forks go on sharing its memory."""
    for name in (*PACKAGES, *LIBRARIES, *more):
        loaded = importlib.import_module(name)
        for module in pkgutil.walk_packages(loaded.__path__, f"{name}.") if name.startswith("plugbay.") else ():
            if not module.name.startswith(PROGRAMS):
                importlib.import_module(module.name)
    _complete(BaseModel)
    gc.collect()
    gc.freeze()


def _complete(model: type[BaseModel]) -> None:
    """Build the validators of all models that derive from this one, instead of when they are first used."""
    for derived in model.__subclasses__():
        derived.model_rebuild()
        _complete(derived)


def serve(control: socket.socket, session: int) -> tuple[socket.socket, list[int]]:
    """Fork for each command. Returns in the forks alone, each with its socket and streams; the server just leaves."""
    try:
        over = os.pidfd_open(session)
    except ProcessLookupError:
        sys.exit()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(over, select.POLLIN)
    forks: dict[int, Fork] = {}
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        for ended in ready & forks.keys():
            poll.unregister(ended)
            os.close(ended)
            _tell_the_end(forks.pop(ended))
        if over in ready:
            sys.exit()
        if control.fileno() not in ready:
            continue
        own, _ = control.accept()
        _, streams, _, _ = socket.recv_fds(own, 1, 3)
        if not streams:  # the test process was killed
            own.close()
            continue
        pid = os.fork()
        if pid == 0:
            for other in (control, *(fork.own for fork in forks.values())):
                other.close()
            return own, streams
        for stream in streams:
            os.close(stream)
        own.sendall(NUMBER.pack(pid))
        ends = os.pidfd_open(pid)
        forks[ends] = Fork(pid, own)
        poll.register(ends, select.POLLIN)


def _tell_the_end(fork: Fork) -> None:
    _, status = os.waitpid(fork.pid, 0)
    with fork.own, contextlib.suppress(OSError):  # as when nobody waits for it any more
        fork.own.sendall(NUMBER.pack(status))


def become(own: socket.socket, streams: list[int]) -> str:
    """Take on what the command was given, and let go of all else. Returns its code, if it is code."""
    with own, own.makefile("rb") as words:
        task = json.loads(words.read())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    if task["controlled"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    _open_streams()
    os.chdir(task["cwd"])
    os.environ.clear()
    os.environ.update(task["env"])
    sys.path[0] = task["cwd"]
    sys.argv[1:] = task["arguments"]
    importlib.invalidate_caches()
    code: str = task["code"]
    return code


def _open_streams() -> None:
    """As the interpreter does: those of the server remember what they were connected to."""
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    sys.stdin = open(0, encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115


def leave(done: SystemExit) -> NoReturn:
    """As the interpreter does, except that it would also clear all that was loaded before, which takes 40 ms."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        raise done from None  # the interpreter has words and a status for this
    if not isinstance(done.code, int):
        raise done
    os._exit(done.code)


def main() -> None:
    session, *more = sys.argv[1:]
    load(more)
    code = become(*serve(socket.socket(fileno=os.dup(0)), int(session)))
    from plugbay.cli.main import main as plugbay

    try:
        if code:
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
            sys.exit(0)
        plugbay()
    except SystemExit as done:
        leave(done)


if __name__ == "__main__":
    main()
