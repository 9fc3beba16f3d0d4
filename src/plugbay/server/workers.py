"""`plugbay serve --gateways N`: several gateway processes behind one port of this machine.

    with reserved_port("127.0.0.1", 8787) as port:
        run_workers(command, 4, port, ready)

This process holds the port and the lock of the data folder, starts the gateways as copies of its own command, starts a
gateway again that ends, and passes signals on. Each gateway listens on the same port (SO_REUSEPORT); the kernel spreads
connections. The gateways know nothing of each other but what is in the database.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from plugbay.model.errors import PlugbayError
from plugbay.server.server import bind_socket
from plugbay.server.service_manager import READY, STOPPING, notify

LOG = logging.getLogger("plugbay.server")

VARIABLE = "PLUGBAY_GATEWAY_WORKER"
"""Tells a process that it is one of several gateways; its value is the port."""

MAX_GATEWAYS = 64

START_SECONDS = 120.0
"""For all gateways to accept requests."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a gateway that ended is started again: doubled each time, reset after `CALM_SECONDS`."""

CALM_SECONDS = 60.0


@contextlib.contextmanager
def reserved_port(host: str, port: int) -> Iterator[int]:
    """Hold a port for gateways of this user, without listening there; 0 takes a free one."""
    # First alone: gateways of another command would share the port with ours, and their requests.
    bind_socket(host, port).close()
    with contextlib.closing(bind_socket(host, port, shared=True)) as reserved:
        yield reserved.getsockname()[1]


class _Worker:
    """One gateway process."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.began = 0.0
        self.pause = FIRST_PAUSE
        self.again_at = 0.0
        self.facts: dict[str, Any] | None = None

    def start(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        # A gateway stops when its stdin ends: so none is left if this process is killed.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
        self.began, self.facts = time.monotonic(), None
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def read(self) -> None:
        """Read the line that the gateway prints when it accepts requests."""
        assert self.process is not None and self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.facts = self.facts or json.loads(line)

    def ended(self) -> int | None:
        """The exit status of a process that has just ended; it is started again after a pause."""
        status = None if self.process is None else self.process.poll()
        if self.process is None or status is None:
            return None
        assert self.process.stdout is not None and self.process.stdin is not None
        self.process.stdout.close()
        self.process.stdin.close()
        self.process = None
        calm = time.monotonic() - self.began >= CALM_SECONDS
        self.pause = FIRST_PAUSE if calm else min(self.pause * 2, LONGEST_PAUSE)
        self.again_at = time.monotonic() + self.pause
        return status


class Workers:
    """All gateway processes of one command."""

    def __init__(self, command: Sequence[str], number: int, port: int, environ: Mapping[str, str]) -> None:
        self._command = command
        self._environ = {**environ, VARIABLE: str(port)}
        self._workers = [_Worker() for _ in range(number)]
        self._signal = 0
        self._wakes, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def run(self, ready: Callable[[list[dict[str, Any]]], object]) -> int:
        """Run until a signal arrives; returns its number. Calls `ready` once, when all gateways accept requests."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        deadline = time.monotonic() + START_SECONDS
        told = False
        try:
            while not self._signal:
                self._step(told)
                if not told and all(worker.facts for worker in self._workers):
                    told = True
                    ready([worker.facts or {} for worker in self._workers])
                    notify(READY)
                if not told and time.monotonic() > deadline:
                    raise PlugbayError(f"the gateways did not start within {START_SECONDS:g} s")
            return self._signal
        finally:
            self._stop()

    def _step(self, told: bool) -> None:
        for worker in self._workers:
            status = worker.ended()
            if status is not None and not told:
                raise PlugbayError("a gateway could not be started; its message is above")
            if status is not None:
                LOG.warning("a gateway has ended; it is started again", extra={"status": status})
            if worker.process is None and time.monotonic() >= worker.again_at:
                worker.start(self._command, self._environ)
        self._wait()

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakes, selectors.EVENT_READ)
            for worker in self._workers:
                if worker.process is not None and worker.facts is None and worker.process.stdout is not None:
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            for key, _ in selector.select(0.5):
                if key.data is None:
                    self._wakes.recv(64)
                else:
                    key.data.read()

    def _on_signal(self, number: int, frame: object) -> None:
        if number == signal.SIGHUP:
            self._send(number)
        elif number != signal.SIGCHLD:
            if self._signal:  # the second one ends all gateways at once
                self._send(signal.SIGTERM)
            self._signal = number

    def _send(self, number: int) -> None:
        for worker in self._workers:
            if worker.process is not None and worker.process.poll() is None:
                worker.process.send_signal(number)

    def _stop(self) -> None:
        notify(STOPPING)
        self._send(signal.SIGTERM)
        for worker in self._workers:
            if worker.process is not None:
                worker.process.wait()
        signal.set_wakeup_fd(-1)
        self._wakes.close()
        self._wake.close()
