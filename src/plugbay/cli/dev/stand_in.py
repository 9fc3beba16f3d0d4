"""The process that `plugbay dev --attach` starts in place of the plugin.

A standalone program: it may import only the standard library. It passes its stdin, stdout and environment to the
rendezvous of `plugbay dev`, which passes them to the plugin in the author's terminal. Host and plugin then communicate
directly; this process only waits, and exits with the plugin's status.
"""

from __future__ import annotations

import json
import os
import socket
import sys

TOKEN = "token"
"""Name of the token file beside the socket, mode 0600. A token in the arguments would be visible to every user."""

GONE = 1
"""Exit status when the plugin disconnected without reporting its own."""

READ_SIZE = 4096


def main(path: str) -> int:
    """Hand over the pipes and wait; return the plugin's exit status."""
    with open(os.path.join(os.path.dirname(path), TOKEN), encoding="ascii") as file:
        token = file.read()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PLUGBAY_")}
    hello = json.dumps({"stand_in": token, "env": env, "cwd": os.getcwd()}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        sent = socket.send_fds(line, [hello], [0, 1])
        if sent < len(hello):  # an empty sendall could fail: the peer may have closed the socket already
            line.sendall(hello[sent:])
        _release_pipes()
        received = _read_all(line)
    return int(json.loads(received)["left"]) if received else GONE


def _release_pipes() -> None:
    """Close our copies of the pipes; while one is open, the host sees no end of file when the plugin exits."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)


def _read_all(line: socket.socket) -> bytes:
    received = b""
    while data := line.recv(READ_SIZE):
        received += data
    return received


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
