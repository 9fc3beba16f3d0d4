"""A plugin that its author starts in a terminal, attached to `plugbay dev --attach`.

Connects to a local socket, shows the token, and receives the two pipes of the host; from there on it is served like any
other plugin. stdin, stdout and stderr stay with the terminal, so `print`, `breakpoint()` and debuggers work. `plugbay
attach` uses the same protocol for programs without this SDK. Only attached plugins load this module.
"""

from __future__ import annotations

import os
import sys

from plugbay.sdk.io.stdio import Wire, drop_in_forks, leave, note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from plugbay.sdk.serving import Plugin

SCHEME = "unix:"

READ_SIZE = 65_536

MAX_LINE = 1 << 20
"""Bytes of one message of `plugbay dev`; the longest carries the environment of a plugin."""

OVER = "plugbay dev has ended"

PIPES = 2
"""File descriptors that are received: output of the host, and input of the host."""


class NotAttached(Exception):
    """No host accepts this plugin, and why. `over`: the waiting host has left."""

    def __init__(self, text: str, *, over: bool = False) -> None:
        super().__init__(text)
        self.over = over


def parse_address(text: str) -> tuple[str, str]:
    """The path of the socket and the token of `unix:PATH#TOKEN`; raises `NotAttached`."""
    path, mark, token = text.removeprefix(SCHEME).rpartition("#")
    if not (mark and path.startswith("/") and token):
        shape = f"{SCHEME}/path/to/socket#token"
        raise NotAttached(f"the address must look like {shape}; plugbay dev --attach prints the line to run")
    return path, token


class Assignment:
    """One session: the pipes of the host, and the environment that its plugin would have."""

    __slots__ = ("cwd", "env", "listen", "speak")

    def __init__(self, listen: int, speak: int, said: dict[str, Any]) -> None:
        self.listen = listen
        self.speak = speak
        self.env: dict[str, str] = said.get("env", {})
        self.cwd: str = said.get("cwd", "")


class Place:
    """One connection to `plugbay dev`, for one conversation."""

    def __init__(self, address: str, *, returns: bool = False) -> None:
        """`returns`: this process starts the plugin anew for each conversation. Raises `NotAttached`."""
        import json
        import socket

        path, token = parse_address(address)
        self._json = json
        self._line = socket.socket(socket.AF_UNIX)
        self._said = b""
        self._pipes: list[int] = []
        try:
            self._line.connect(path)
            self._say({"attach": token, "pid": os.getpid(), "returns": returns})
        except OSError as error:
            self.close()
            text = f"no plugbay dev waits at {path} ({error.strerror}); plugbay dev --attach prints a new line to run"
            raise NotAttached(text, over=True) from None
        self._hear("welcome")

    def wait(self) -> Assignment:
        """Until the host wants to talk; raises `NotAttached` when it never will."""
        said = self._hear("go")
        listen, speak = self._pipes
        return Assignment(listen, speak, said)

    def leave(self, status: int) -> None:
        """The conversation is over, and this is how the plugin left."""
        try:
            self._say({"left": status})
        except OSError:
            pass  # the host has left
        self.close()

    def close(self) -> None:
        """Go without a message."""
        self._line.close()

    def _say(self, message: dict[str, Any]) -> None:
        self._line.sendall(self._json.dumps(message).encode() + b"\n")

    def _hear(self, key: str) -> Any:
        """The value of this key in the next message; exits on any other message."""
        try:
            return self._heard(key)
        except NotAttached:
            self.close()
            raise

    def _heard(self, key: str) -> Any:
        import socket

        while b"\n" not in self._said:
            try:
                data, pipes, _, _ = socket.recv_fds(self._line, READ_SIZE, PIPES)
            except OSError:
                data, pipes = b"", []
            self._pipes += pipes
            if not data or len(self._said) > MAX_LINE:
                raise NotAttached(OVER, over=True)
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        message = self._json.loads(line)
        if key not in message:
            raise NotAttached(str(message.get("refused", f"the message of plugbay dev has no {key!r}")))
        return message[key]


def serve_attached(plugin: Plugin, address: str) -> NoReturn:
    """Take a place and talk; where a process would serve one call only, take the next one. Then leave."""
    follow_threads()
    held: list[Wire] = []

    def forked() -> None:
        for wire in held:
            wire.drop()

    drop_in_forks(forked)
    told = False
    while True:
        try:
            place = Place(address)
            if not told:
                note(f"{plugin.id}: attached to plugbay dev; make the calls there")
            told = True
            given = place.wait()
        except NotAttached as error:
            over = told and error.over
            note(f"{plugin.id}: {OVER if over else error}")
            leave(0 if over else 2)
        os.environ.update(given.env)
        wire = Wire(given.listen, given.speak)
        held[:] = [wire]
        status = _converse(plugin, wire)
        held.clear()
        wire.drop()
        place.leave(status)


def _converse(plugin: Plugin, wire: Wire) -> int:
    """The status after one conversation; one that a resident plugin has lasts as long as the process."""
    from plugbay.sdk.serving import begin, serve_rune
    from plugbay.wire.strict_json import stdlib_codec

    codec = stdlib_codec()
    return serve_rune(plugin, wire, codec, begin(plugin, wire, codec))


def follow_threads() -> None:
    """Have a debugger that watches this thread watch the threads of handlers too.

    `threading` would tell them, but handlers run on threads that are older than that, so to speak. Debuggers that see
    to it themselves, or watch all threads anyway, are left alone.
    """
    import _thread

    if sys.gettrace() is None or "pydevd" in sys.modules:
        return
    start = _thread.start_new_thread

    def start_followed(function: Callable[..., object], arguments: tuple[Any, ...], *more: Any) -> int:
        trace = sys.gettrace()

        def followed(*arguments: Any, **keywords: Any) -> object:
            sys.settrace(trace)
            return function(*arguments, **keywords)

        return start(followed, arguments, *more)

    _thread.start_new_thread = start_followed
