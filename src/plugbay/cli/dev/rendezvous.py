"""`Rendezvous`: connects a plugin that its author started with the host of `plugbay dev --attach`.

The host starts a stand-in process (`stand_in.py`) instead of the plugin. The rendezvous listens on a Unix socket,
accepts peers of the same user that present the token, and passes the stand-in's stdin and stdout as descriptors to the
plugin. No byte of the protocol passes through here. `attach_command` builds the shell command that attaches a plugin.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
import secrets
import shlex
import shutil
import socket
import struct
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from plugbay.cli.dev import stand_in
from plugbay.sdk.attach import MAX_LINE, PIPES, READ_SIZE, SCHEME
from plugbay.sdk.io.stdio import ATTACH

if TYPE_CHECKING:
    from plugbay.model.spec import PluginSpec

TOKEN_BYTES = 16
"""128 bits, so that a process that reaches the socket cannot guess it."""

MAX_PEERS = 64
"""Connections at once: one plugin, and one stand-in for each concurrent call."""

_CREDENTIALS = struct.Struct("3i")
"""pid, uid and gid of the peer: Linux's `struct ucred`."""


class Observer(Protocol):
    """Notified in the event loop when peers come and go."""

    def on_waiting(self) -> None:
        """A stand-in waits, and no plugin is attached."""

    def on_attached(self, pid: int, returns: bool) -> None: ...

    def on_detached(self, pid: int) -> None:
        """A plugin has disconnected without announcing that it returns."""

    def on_rejected(self, why: str) -> None: ...


class _Peer:
    """One connection. `role` is `attach` (a plugin), `stand_in`, or empty before the hello message."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.sock = sock
        self.pid = pid
        self.role = ""
        self.buffer = b""
        self.pipes: list[int] = []
        self.hello: dict[str, Any] = {}
        self.partner: _Peer | None = None
        self.status: int | None = None

    def send(self, message: dict[str, Any], pipes: Iterable[int] = ()) -> None:
        """Send one message. A disconnected peer is detected by the next read of its socket."""
        data = json.dumps(message).encode() + b"\n"
        try:
            self.sock.setblocking(True)
            sent = socket.send_fds(self.sock, [data], list(pipes))
            self.sock.sendall(data[sent:])
            self.sock.setblocking(False)
        except OSError:
            pass

    def close(self) -> None:
        self.sock.close()
        self.close_pipes()

    def close_pipes(self) -> None:
        for pipe in self.pipes:
            os.close(pipe)
        self.pipes.clear()


class Rendezvous:
    """One socket for one plugin under development. `open` and `close` it inside the event loop."""

    def __init__(self, plugin_id: str, observer: Observer) -> None:
        self.plugin_id = plugin_id
        self._observer = observer
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._folder = Path(tempfile.mkdtemp(prefix="plugbay-dev-"))
        self._path = self._folder / "socket"
        self._peers: set[_Peer] = set()
        self._plugins: deque[_Peer] = deque()
        self._stand_ins: deque[_Peer] = deque()
        self._listening: socket.socket | None = None

    @property
    def address(self) -> str:
        """The address for the plugin, token included."""
        return f"{SCHEME}{self._path}#{self._token}"

    @property
    def command(self) -> tuple[str, ...]:
        """The command of the stand-in. Isolated (`-I -S`), so that no module beside it is imported."""
        return (sys.executable, "-I", "-S", str(Path(stand_in.__file__).resolve()), str(self._path))

    def open(self) -> None:
        """Listen. `mkdtemp` made the folder with mode 0700, which protects the socket whatever its own mode."""
        token = self._folder / stand_in.TOKEN
        token.touch(mode=0o600)
        token.write_text(self._token, encoding="ascii")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._path))
        self._listening.listen(MAX_PEERS)
        self._listening.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def close(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
        for peer in list(self._peers):
            self._drop(peer)
        shutil.rmtree(self._folder, ignore_errors=True)

    # Connecting.

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            sock, _ = self._listening.accept()
        except OSError:
            return
        pid, uid = _credentials(sock)
        if uid != os.geteuid() or len(self._peers) >= MAX_PEERS:
            sock.close()
            self._observer.on_rejected(
                "it belongs to another user" if uid != os.geteuid() else "there are too many connections"
            )
            return
        sock.setblocking(False)
        peer = _Peer(sock, pid)
        self._peers.add(peer)
        asyncio.get_running_loop().add_reader(sock, self._receive, peer)

    def _receive(self, peer: _Peer) -> None:
        try:
            data, pipes, _, _ = socket.recv_fds(peer.sock, READ_SIZE, PIPES)
        except BlockingIOError:
            return
        except OSError:
            data, pipes = b"", []
        peer.pipes += pipes
        peer.buffer += data
        if not data or len(peer.buffer) > MAX_LINE:
            self._handle_disconnect(peer)
            return
        *lines, peer.buffer = peer.buffer.split(b"\n")
        for line in lines:
            self._handle_message(peer, line)

    def _handle_message(self, peer: _Peer, line: bytes) -> None:
        try:
            message = dict(json.loads(line))
        except (ValueError, TypeError):
            message = {}
        if peer.role == "":
            self._authenticate(peer, message)
        elif peer.role == "attach" and isinstance(message.get("left"), int):
            peer.status = message["left"]

    def _authenticate(self, peer: _Peer, message: dict[str, Any]) -> None:
        role = next((role for role in ("attach", "stand_in") if role in message), "")
        token = str(message.get(role, "")).encode("utf-8", "backslashreplace")
        if not role or not hmac.compare_digest(token, self._token.encode()):
            peer.send(
                {"refused": "the token does not belong to this plugbay dev; copy the whole command that it printed"}
            )
            self._observer.on_rejected("it did not send the token")
            self._drop(peer)
            return
        peer.role, peer.hello = role, message
        if role == "stand_in":
            self._stand_ins.append(peer)
        else:
            peer.send({"welcome": self.plugin_id})
            peer.close_pipes()
            self._plugins.append(peer)
            self._observer.on_attached(peer.pid or int(message.get("pid", 0)), bool(message.get("returns")))
        self._pair()

    def _pair(self) -> None:
        """Pair waiting stand-ins and plugins in the order of their arrival."""
        while self._stand_ins and self._plugins:
            stand_in, plugin = self._stand_ins.popleft(), self._plugins.popleft()
            plugin.send(
                {"go": {"env": stand_in.hello.get("env", {}), "cwd": stand_in.hello.get("cwd", "")}}, stand_in.pipes
            )
            stand_in.close_pipes()
            plugin.partner = stand_in
        if self._stand_ins:
            self._observer.on_waiting()

    # Disconnecting.

    def _handle_disconnect(self, peer: _Peer) -> None:
        partner = peer.partner
        self._drop(peer)
        if partner is not None and partner in self._peers:
            if peer.status is not None:
                partner.send({"left": peer.status})
            self._drop(partner)
        if peer.role == "attach" and peer.status is None:
            self._observer.on_detached(peer.pid)

    def _drop(self, peer: _Peer) -> None:
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        for queue in (self._plugins, self._stand_ins):
            if peer in queue:
                queue.remove(peer)
        asyncio.get_running_loop().remove_reader(peer.sock)
        peer.close()


def _credentials(sock: socket.socket) -> tuple[int, int]:
    """pid and uid of the peer. Without SO_PEERCRED the mode of the folder is the only check."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0, os.geteuid()
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return pid, uid


# The command that attaches a plugin.

MAX_SOURCE = 1 << 20
"""Bytes read of a file; a plugin's script is shorter."""

_SCRIPT = re.compile(r"[\w./-]*\w\.py\b")
_SDK = re.compile(r"^\s*(?:from|import) plugbay\.sdk\b", re.MULTILINE)


def attach_command(spec: PluginSpec, address: str, here: Path) -> tuple[str, bool]:
    """The shell command to type in the folder `here`, and whether the plugin keeps that terminal as stdin and stdout.

    A plugin with the Python SDK attaches itself, so it can run under a debugger; `plugbay attach` wraps any other.
    Reads the plugin's files and starts nothing.
    """
    script = next((path for path in _scripts(spec) if _SDK.search(_text(path))), None)
    variable = f"{ATTACH}={shlex.quote(address)}"
    if script is not None:
        return f"{variable} {_python()} -m pdb {shlex.quote(_shortest_path(script, here))}", True
    return f"{variable} {_plugbay()} attach -- {shlex.join(spec.command)}", False


def _scripts(spec: PluginSpec) -> Iterator[Path]:
    """Candidates for the plugin's Python script: named by its command, named by its launcher, or `plugin.py`."""
    for word in spec.command:
        path = spec.root / word
        if path.suffix == ".py":
            yield path
        elif "/" in word:
            yield path
            yield from ((path.parent / name.lstrip("/")) for name in _SCRIPT.findall(_text(path)))
    yield spec.root / "plugin.py"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SOURCE).decode("utf-8", "replace")
    except OSError:
        return ""


def _shortest_path(path: Path, here: Path) -> str:
    """The relative or the absolute path, whichever is shorter."""
    real = path.resolve()
    return min(os.path.relpath(real, here.resolve()), str(real), key=len)


def _python() -> str:
    """This Python interpreter: `python3` if that resolves to it, otherwise its full path."""
    named = shutil.which("python3")
    return "python3" if named and os.path.samefile(named, sys.executable) else shlex.quote(sys.executable)


def _plugbay() -> str:
    return "plugbay" if shutil.which("plugbay") else f"{shlex.quote(sys.executable)} -m plugbay"
