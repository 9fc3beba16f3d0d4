"""`LingeringHost`: the client of the host process that stays between the calls of an adapter that lives for one call.

The first adapter starts the process; later ones find its socket, in a folder of this user alone. A closed connection
cancels its call. Imports nothing heavy: this is loaded for every call, within the 2 s of rune's greeting.
"""

from __future__ import annotations

import os
from _hashlib import openssl_sha256
from _socket import AF_UNIX, SOCK_STREAM, socket
from _stat import S_IMODE, S_ISDIR
from _thread import allocate_lock, start_new_thread
from time import monotonic, sleep

from plugbay.adapters.failures import SourceFailed
from plugbay.adapters.pin import to_text
from plugbay.model.errors import Code, Failure, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.adapters.pin import Pin, PinnedExport

MODULE = "plugbay.adapters.linger"

READY = b"ready\n"
"""Sent by the process when it has accepted a connection; a call that was sent after it may have been made."""

START_SECONDS = 30.0
"""Seconds for the process to listen. Longer than a call: a busy machine must not fail one."""

RESTART_SECONDS = 3.0
RETRY_SECONDS = 0.01
"""Between two starts, and between two looks at the socket."""
READ_SIZE = 1 << 20

CHILD_VARIABLE = "PLUGBAY_CHILD"
"""The mark by which a plugbay host finds what a plugin has started, to end it with the plugin. The process stays for
later calls; by its other mark it ends with that host."""

FOLDERS = ("/run/user/{uid}/plugbay-adapters", "/tmp/plugbay-adapters-{uid}")
"""Where sockets are; short, because an address has at most 107 bytes. The first whose parent exists is used."""


class FolderRefused(OSError):
    """The folder of sockets belongs to another user, or others can write to it."""


def socket_folder(folders: tuple[str, ...] = FOLDERS) -> str:
    """The folder of this user's sockets, made if it is missing; raises `OSError`."""
    uid = os.getuid()
    for each in folders:
        folder = each.format(uid=uid)
        if not os.access(os.path.dirname(folder), os.W_OK | os.X_OK):
            continue
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        status = os.lstat(folder)
        if not S_ISDIR(status.st_mode) or status.st_uid != uid or S_IMODE(status.st_mode) & 0o077:
            raise FolderRefused(f"{folder} must be a folder of this user alone (mode 700)")
        return folder
    raise FolderRefused("there is no folder for a socket of this user")


def address_of(text: str, executable: str, folder: str) -> str:
    """The socket of the process for a pin: one for each pin and each Python."""
    digest = openssl_sha256(f"{executable}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{folder}/{digest[:32]}"


class LingeringHost:
    """Calls the sources of a pin in the process that stays."""

    def __init__(self, pin: Pin, executable: str, folder: str = "") -> None:
        """Begins at once to reach or to start the process: the host's request is still to come."""
        self._text = to_text(pin)
        self._log = f"{pin.settings.logs}/adapter.log" if pin.settings.logs else os.devnull
        self._executable = executable
        self._folder = folder
        self._connection: socket | None = None
        self._refusal = ""
        self._connecting = allocate_lock()
        self._connecting.acquire()
        start_new_thread(self._connect, ())

    def handler(self, export: PinnedExport) -> Callable[..., Any]:
        """The function of a tool."""

        def call(input: Any) -> Any:
            return self.call(export, input)

        return call

    def call(self, export: PinnedExport, given: Any) -> Any:
        """The value of a call; raises `SourceFailed`."""
        import json

        self._connecting.acquire()
        connection = self._connection
        if connection is None:
            raise _failed(Code.UNAVAILABLE, f"the host of the adapter cannot be reached: {self._refusal}")
        request = {"export": export.full_name, "kind": export.kind, "input": given}
        try:
            connection.sendall(json.dumps(request).encode() + b"\n")
            line = _read_line(connection)
        except OSError as error:
            raise _failed(Code.PLUGIN_ERROR, f"the host of the adapter is gone: {error}") from None
        finally:
            connection.close()
        if not line:
            raise _failed(Code.PLUGIN_ERROR, "the host of the adapter has ended during the call")
        answer = json.loads(line)
        if "failure" in answer:
            failure = Failure.from_json(answer["failure"])
            raise SourceFailed(failure)
        return answer["value"]

    # Reaching the process.

    def _connect(self) -> None:
        try:
            folder = self._folder or socket_folder()
            self._connection = self._reach(address_of(self._text, self._executable, folder))
        except OSError as error:
            self._refusal = str(error)
        finally:
            self._connecting.release()

    def _reach(self, address: str) -> socket:
        """A connection that was accepted; starts the process if there is none."""
        until, next_start = monotonic() + START_SECONDS, 0.0
        while True:
            connection = _try_connect(address)
            if connection is not None:
                return connection
            if monotonic() >= next_start:  # again: the last process may have been about to end
                next_start = monotonic() + RESTART_SECONDS
                self._start(address)
            if monotonic() > until:
                raise TimeoutError(f"it does not listen after {START_SECONDS:g} s; {self._log} may have the reason")
            sleep(RETRY_SECONDS)

    def _start(self, address: str) -> None:
        """Start the process in a session of its own. It ends by itself when another one serves the address."""
        words = [self._executable, "-P", "-m", MODULE, address]
        pin = os.memfd_create("pin", 0)
        try:
            os.write(pin, self._text.encode("utf-8", "surrogatepass"))
            os.lseek(pin, 0, os.SEEK_SET)
            log = _open_log(self._log)
            try:
                copies = [(os.POSIX_SPAWN_DUP2, pin, 0), *((os.POSIX_SPAWN_DUP2, log, number) for number in (1, 2))]
                variables = {name: value for name, value in os.environ.items() if name != CHILD_VARIABLE}
                os.posix_spawn(self._executable, words, variables, file_actions=copies, setsid=True)
            finally:
                os.close(log)
        finally:
            os.close(pin)


def _open_log(path: str) -> int:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _try_connect(address: str) -> socket | None:
    """A connection to a process that has accepted it; None when there is none."""
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.connect(address)
        if _read_exactly(connection, len(READY)) == READY:
            return connection
    except (ConnectionError, FileNotFoundError):
        pass
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _read_exactly(connection: socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def _read_line(connection: socket) -> bytes:
    """One line; empty when the other end closed before its end."""
    parts: list[bytes] = []
    while True:
        data = connection.recv(READ_SIZE)
        if not data:
            return b""
        parts.append(data)
        if data.endswith(b"\n"):
            return b"".join(parts)


def _failed(code: str, text: str) -> SourceFailed:
    return SourceFailed(Failure(code, text, origin=Origin.PLUGIN, retryable=code == Code.UNAVAILABLE))
