"""One plugin that is served in memory: its conversation with a host, from the greeting to the good-bye.

Owns the thread that would be the plugin's process, and what such a process changes for everybody: the streams that
`print` goes to, and the services outside handlers. For tests alone.
"""

from __future__ import annotations

import sys
from threading import Thread
from time import monotonic

from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.sdk.serving import begin, serve_rune
from plugbay.sdk.testing.line import Conversation
from plugbay.sdk.testing.wire import MemoryWire
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.contracts.base import Machine
    from plugbay.sdk.plugin import Plugin
    from plugbay.sdk.testing.line import Desk

END_SECONDS = 6.0
"""How long a plugin may take to leave: more than any contract gives its handlers."""


class Overheard:
    """A stream that keeps the lines that pass through it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._parts: list[str] = []

    def write(self, text: str) -> int:
        self._parts.append(text)
        return int(self.stream.write(text))

    @property
    def lines(self) -> list[str]:
        return "".join(self._parts).splitlines()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Session:
    """A plugin and the conversation it has."""

    def __init__(self, plugin: Plugin, machine: Machine, desk: Desk, seconds: float) -> None:
        """Greets; raises `CallFailed` when the plugin is not ready within so many seconds, or what it raised."""
        self._plugin = plugin
        self._wire = MemoryWire()
        self._before = plugin.host
        self._streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        self._raised: BaseException | None = None
        self._left = False
        self._overheard = Overheard(sys.stderr)
        sys.stderr = self._overheard
        self.line = Conversation(machine, self._wire, desk)
        self._thread = Thread(target=self._serve, name=f"plugbay-testing-{plugin.id}", daemon=True)
        self._thread.start()
        failure = self.line.open(seconds)
        if failure is not None:
            self.close()
            raise CallFailed(failure)

    @property
    def stderr(self) -> list[str]:
        """What was written on stderr while the plugin was served."""
        return self._overheard.lines

    def settle(self, seconds: float) -> None:
        """Wait until the plugin has done everything that it was told; raises `CallFailed` for what failed of it."""
        until = monotonic() + seconds
        calm = self._wire.settle(seconds) and self._wire.said.wait_until_read(max(until - monotonic(), 0.0))
        missed, self._wire.missed = self._wire.missed, []
        for what, failure in missed[:1]:
            raise CallFailed(failure.with_detail(self._plugin.id, handler=what))
        if not calm:
            raise CallFailed(Failure(Code.TIMEOUT, f"the plugin is still busy after {seconds:g} s"))

    def close(self) -> None:
        """Say good-bye. Raises what the plugin's own code raised outside of handlers."""
        if self._left:
            return
        self._left = True
        try:
            self.line.close(END_SECONDS)
            self.line.end()
            self._thread.join(END_SECONDS)
        finally:
            self._put_back()
        if self._raised is not None:
            raise self._raised
        if self._wire.status is None:
            raise CallFailed(Failure(Code.TIMEOUT, f"the plugin did not leave within {END_SECONDS:g} s"))
        if self._wire.status:
            text = f"the plugin left with status {self._wire.status}"
            raise CallFailed(Failure(Code.CRASHED, text, origin=Origin.PLUGIN, detail={"stderr_tail": self.stderr}))

    def _put_back(self) -> None:
        """As before, unless somebody else has put something in its place meanwhile."""
        self._plugin.connect(self._before)
        for name, stream in self._streams.items():
            if _inside(getattr(sys, name)) is stream:
                setattr(sys, name, stream)

    def _serve(self) -> None:
        codec: Any = stdlib_codec()
        wire: Any = self._wire
        try:
            first = begin(self._plugin, wire, codec)
            wire.leave(serve_rune(self._plugin, wire, codec, first))
        except SystemExit:
            pass  # it has left
        except BaseException as error:
            self._raised = error
            wire.said.close()
            wire.heard.close()


def _inside(stream: Any) -> Any:
    """The stream that a plugin has put something around."""
    from plugbay.sdk.screens.command_lines import Routed

    while isinstance(stream, Routed | Overheard):
        stream = object.__getattribute__(stream, "_stream" if isinstance(stream, Routed) else "stream")
    return stream
