"""What stands in for the command of a plugin that its author has started: it hands over its pipes, and waits.

A program of its own that needs nothing but Python. The host starts it as it would start the plugin; it gives its stdin,
its stdout and its environment to the lobby of `plugbay dev`, which passes them on to the plugin in the terminal. From
then on host and plugin talk directly, and this process is only there to leave when the plugin does. Not one byte of the
conversation passes here.
"""

from __future__ import annotations

import json
import os
import socket
import sys

TOKEN = "token"
"""The file beside the socket that only our own user can read; a token on a command line would be for everybody."""

GONE = 1
"""The status when the plugin has left without a word about how."""

READ_SIZE = 4096


def main(path: str) -> int:
    """The status that the plugin left with."""
    with open(os.path.join(os.path.dirname(path), TOKEN), encoding="ascii") as file:
        token = file.read()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PLUGBAY_")}
    hello = json.dumps({"bridge": token, "env": env, "cwd": os.getcwd()}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        sent = socket.send_fds(line, [hello], [0, 1])
        if sent < len(hello):  # or the conversation may be over already, and the line closed at the other end
            line.sendall(hello[sent:])
        _let_go()
        said = _all_of(line)
    return int(json.loads(said)["left"]) if said else GONE


def _let_go() -> None:
    """The pipes are the plugin's alone, or nobody would notice its end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)


def _all_of(line: socket.socket) -> bytes:
    said = b""
    while data := line.recv(READ_SIZE):
        said += data
    return said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
