"""A real NATS server on a free port of this machine: Debian's `nats-server`.

Owns its life: it is gone after the test, and with the process that runs the tests, even when that is killed. It can be
killed, stopped in its tracks and started again on the same port.
"""

from __future__ import annotations

import ctypes
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE

PR_SET_PDEATHSIG = 1


class NatsServer:
    """One server; `settings` are those of its configuration file."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._config = folder / "nats.conf"
        self._log = folder / "nats.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = -1  # the server's word for any that is free
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on the port it had before."""
        self._config.write_text(json.dumps({"host": "127.0.0.1", "port": self.port, **self._settings}))
        with open(self._log, "wb") as file:
            self._process = subprocess.Popen(
                ["nats-server", "-c", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=_die_with_parent,
            )
        self.port = int(self._said(r"Listening for client connections on 127\.0\.0\.1:([0-9]+)"))
        self._said(r"(Server is ready)")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def freeze(self) -> None:
        """It keeps its connections and says nothing, until it is killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def _said(self, pattern: str) -> str:
        """What it wrote into its log."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = re.search(pattern, self._log.read_text("utf-8", "replace"))
            if found:
                return found[1]
            assert self._process.poll() is None, self._log.read_text("utf-8", "replace")
            time.sleep(0.01)
        raise TimeoutError(self._log.read_text("utf-8", "replace"))


@contextmanager
def nats_server(folder: Path, **settings: Any) -> Iterator[NatsServer]:
    """A server that is killed in the end."""
    server = NatsServer(folder, **settings)
    try:
        yield server
    finally:
        server.kill()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
