"""`Lobby`: where plugins that their authors have started, and hosts that want one, find each other.

Owns a socket in a folder of its own, who may come in (our own user, with the token), and which plugin gets the pipes
of which bridge. Of the conversation itself nothing passes here: the pipes are handed over as they are.
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
"""128 bits: not to be guessed by anybody who gets as far as the socket."""

MAX_PEERS = 64
"""Connections at once: one plugin, and as many bridges as there are calls at the same time."""

_CREDENTIALS = struct.Struct("3i")
"""pid, uid and gid of who is at the other end, as Linux tells."""


class Told(Protocol):
    """Hears, in the loop, who comes and goes."""

    def waiting(self) -> None:
        """The host wants to talk, and no plugin is here."""

    def attached(self, pid: int, returns: bool) -> None: ...

    def detached(self, pid: int) -> None:
        """A plugin has gone, and will not be back for its next conversation."""

    def turned_away(self, why: str) -> None: ...


class _Peer:
    """A connection: a plugin, a bridge, or somebody who has not said yet."""

    def __init__(self, line: socket.socket, pid: int) -> None:
        self.line = line
        self.pid = pid
        self.role = ""
        self.said = b""
        self.pipes: list[int] = []
        self.hello: dict[str, Any] = {}
        self.partner: _Peer | None = None
        self.status: int | None = None

    def say(self, message: dict[str, Any], pipes: Iterable[int] = ()) -> None:
        """A message to somebody who reads; one who has gone will be missed soon."""
        data = json.dumps(message).encode() + b"\n"
        try:
            self.line.setblocking(True)
            sent = socket.send_fds(self.line, [data], list(pipes))
            self.line.sendall(data[sent:])
            self.line.setblocking(False)
        except OSError:
            pass

    def close(self) -> None:
        self.line.close()
        self.close_pipes()

    def close_pipes(self) -> None:
        for pipe in self.pipes:
            os.close(pipe)
        self.pipes.clear()


class Lobby:
    """One socket, for one plugin under development. `open` it in the loop, and `close` it."""

    def __init__(self, plugin_id: str, told: Told) -> None:
        self.plugin_id = plugin_id
        self._told = told
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._folder = Path(tempfile.mkdtemp(prefix="plugbay-dev-"))
        self._path = self._folder / "socket"
        self._peers: set[_Peer] = set()
        self._plugins: deque[_Peer] = deque()
        self._bridges: deque[_Peer] = deque()
        self._listening: socket.socket | None = None

    @property
    def address(self) -> str:
        """What the plugin is told, token included."""
        return f"{SCHEME}{self._path}#{self._token}"

    @property
    def command(self) -> tuple[str, ...]:
        """What the host starts instead of the plugin. Alone: what is around it must not be imported."""
        return (sys.executable, "-I", "-S", str(Path(stand_in.__file__).resolve()), str(self._path))

    def open(self) -> None:
        """Let people in; the folder is closed to others, whatever the mode of the socket."""
        token = self._folder / stand_in.TOKEN
        token.touch(mode=0o600)
        token.write_text(self._token, encoding="ascii")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._path))
        self._listening.listen(MAX_PEERS)
        self._listening.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listening, self._come_in)

    def close(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
        for peer in list(self._peers):
            self._see_off(peer)
        shutil.rmtree(self._folder, ignore_errors=True)

    # Who comes in.

    def _come_in(self) -> None:
        assert self._listening is not None
        try:
            line, _ = self._listening.accept()
        except OSError:
            return
        pid, uid = _credentials(line)
        if uid != os.geteuid() or len(self._peers) >= MAX_PEERS:
            line.close()
            self._told.turned_away("it belongs to another user" if uid != os.geteuid() else "too many are here")
            return
        line.setblocking(False)
        peer = _Peer(line, pid)
        self._peers.add(peer)
        asyncio.get_running_loop().add_reader(line, self._hear, peer)

    def _hear(self, peer: _Peer) -> None:
        try:
            data, pipes, _, _ = socket.recv_fds(peer.line, READ_SIZE, PIPES)
        except BlockingIOError:
            return
        except OSError:
            data, pipes = b"", []
        peer.pipes += pipes
        peer.said += data
        if not data or len(peer.said) > MAX_LINE:
            self._gone(peer)
            return
        *lines, peer.said = peer.said.split(b"\n")
        for line in lines:
            self._heed(peer, line)

    def _heed(self, peer: _Peer, line: bytes) -> None:
        try:
            message = dict(json.loads(line))
        except (ValueError, TypeError):
            message = {}
        if peer.role == "":
            self._greet(peer, message)
        elif peer.role == "attach" and isinstance(message.get("left"), int):
            peer.status = message["left"]

    def _greet(self, peer: _Peer, message: dict[str, Any]) -> None:
        role = next((role for role in ("attach", "bridge") if role in message), "")
        shown = str(message.get(role, "")).encode("utf-8", "backslashreplace")
        if not role or not hmac.compare_digest(shown, self._token.encode()):
            peer.say({"refused": "the token is not that of this plugbay dev; copy the whole line that it printed"})
            self._told.turned_away("it did not show the token")
            self._see_off(peer)
            return
        peer.role, peer.hello = role, message
        if role == "bridge":
            self._bridges.append(peer)
        else:
            peer.say({"welcome": self.plugin_id})
            peer.close_pipes()
            self._plugins.append(peer)
            self._told.attached(peer.pid or int(message.get("pid", 0)), bool(message.get("returns")))
        self._pair()

    def _pair(self) -> None:
        """The first of those that wait get each other."""
        while self._bridges and self._plugins:
            bridge, plugin = self._bridges.popleft(), self._plugins.popleft()
            plugin.say({"go": {"env": bridge.hello.get("env", {}), "cwd": bridge.hello.get("cwd", "")}}, bridge.pipes)
            bridge.close_pipes()
            plugin.partner = bridge
        if self._bridges:
            self._told.waiting()

    # Who goes.

    def _gone(self, peer: _Peer) -> None:
        partner = peer.partner
        self._see_off(peer)
        if partner is not None and partner in self._peers:
            if peer.status is not None:
                partner.say({"left": peer.status})
            self._see_off(partner)
        if peer.role == "attach" and peer.status is None:
            self._told.detached(peer.pid)

    def _see_off(self, peer: _Peer) -> None:
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        for line in (self._plugins, self._bridges):
            if peer in line:
                line.remove(peer)
        asyncio.get_running_loop().remove_reader(peer.line)
        peer.close()


def _credentials(line: socket.socket) -> tuple[int, int]:
    """pid and uid of the other end. Where the system does not tell, the mode of the folder has decided already."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0, os.geteuid()
    pid, uid, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return pid, uid


MAX_SOURCE = 1 << 20
"""Bytes looked at in a file; a plugin's program is shorter, and a binary is none."""

_SCRIPT = re.compile(r"[\w./-]*\w\.py\b")
_SDK = re.compile(r"^\s*(?:from|import) plugbay\.sdk\b", re.MULTILINE)


def invitation(spec: PluginSpec, address: str, here: Path) -> tuple[str, bool]:
    """What to type in a terminal that stands in the folder `here`; whether the plugin can be talked to there, too."""
    script = next((path for path in _scripts(spec) if _SDK.search(_text(path))), None)
    variable = f"{ATTACH}={shlex.quote(address)}"
    if script is not None:
        return f"{variable} {_python()} -m pdb {shlex.quote(_seen_from(script, here))}", True
    return f"{variable} {_plugbay()} attach -- {shlex.join(spec.command)}", False


def _scripts(spec: PluginSpec) -> Iterator[Path]:
    """The files that may be the plugin's Python: those its command names, those its launcher does, the usual one."""
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


def _seen_from(path: Path, here: Path) -> str:
    """The shorter of the two ways to say it."""
    real = path.resolve()
    return min(os.path.relpath(real, here.resolve()), str(real), key=len)


def _python() -> str:
    """The Python that has plugbay, by its name where that is enough."""
    named = shutil.which("python3")
    return "python3" if named and os.path.samefile(named, sys.executable) else shlex.quote(sys.executable)


def _plugbay() -> str:
    return "plugbay" if shutil.which("plugbay") else f"{shlex.quote(sys.executable)} -m plugbay"
