"""`SyncHost`: a host for code without an event loop: a script, a notebook cell, a thread of a web server.

Owns one background thread with one loop; everything else is `Host`'s.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from plugbay.host.calls.streaming import CallStream
from plugbay.host.discovery.folders import Found
from plugbay.host.events.bus import BusEvent, Stream
from plugbay.host.host import Host
from plugbay.host.request import CallResult
from plugbay.host.screens.screens import CliOutput, Frame, Screen
from plugbay.host.services.compaction import CompactionOutcome
from plugbay.host.services.hooks import HookOutcome
from plugbay.host.status import PluginStatus
from plugbay.model.errors import CallFailed, Code, Failure, PlugbayError
from plugbay.model.spec import Export

T = TypeVar("T")

_END = object()


class SyncHost:
    """A `Host` whose methods block; safe to use from several threads."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[concurrent.futures.Future[Any]] = set()
        self._streams: set[SyncStream] = set()

    @classmethod
    def load(cls, *paths: str | Path, config: str | Path | None = None, **options: Any) -> Self:
        """As `Host.load`."""
        return cls(Host.load(*paths, config=config, **options))

    def start(self) -> None:
        with self._lock:
            if self._loop is not None:
                raise PlugbayError("this host was already started")
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="plugbay-host", daemon=True)
            self._thread.start()
        try:
            self._run(self.host.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the host, which ends calls of other threads as `Host.stop` does, and then its loop."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._end_streams(), loop).result()
            asyncio.run_coroutine_threadsafe(self.host.stop(), loop).result()
            concurrent.futures.wait(self._running)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    async def _end_streams(self) -> None:
        for stream in list(self._streams):
            await stream.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def call(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Any:
        """As `Host.call`."""
        return self._run(self.host.call(name, input, timeout=timeout, context=context))

    def attempt(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
        kind: str = "",
    ) -> CallResult:
        """As `Host.attempt`."""
        return self._run(self.host.attempt(name, input, timeout=timeout, context=context, kind=kind))

    def stream(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Generator[Any, None, Any]:
        """As `Host.stream`, as a plain generator; its return value is the call's result."""

        async def begin() -> CallStream:
            return self.host.stream(name, input, timeout=timeout, context=context)

        async def piece() -> Any:
            return await anext(stream, _END)

        async def answer() -> Any:
            return stream.result

        stream = self._run(begin())
        try:
            while (item := self._run(piece())) is not _END:
                yield item
            return self._run(answer())
        finally:
            if self._loop is not None:  # a stopped host has ended the call already
                self._run(stream.aclose())

    def invoke(self, name: str, input: Any = None, *, timeout: float | None = None, **fields: Any) -> CallResult:
        """As `Host.invoke`."""
        return self._run(self.host.invoke(name, input, timeout=timeout, **fields))

    def fire(self, hook: str, event: Mapping[str, Any], **options: Any) -> HookOutcome:
        """As `Host.fire`."""
        return self._run(self.host.fire(hook, event, **options))

    def compact(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> CompactionOutcome:
        """As `Host.compact`."""
        return self._run(self.host.compact(messages, **options))

    def run_cli(self, namespace: str, argv: Sequence[str], *, timeout: float | None = None) -> CliOutput:
        """As `Host.run_cli`."""
        return self._run(self.host.run_cli(namespace, argv, timeout=timeout))

    @property
    def screens(self) -> SyncScreens:
        """As `Host.screens`."""
        return SyncScreens(self)

    def publish(self, topic: str, payload: Any, *, source: str = "host", session_id: str | None = None) -> BusEvent:
        """As `Host.publish`, from any thread."""
        return self._on_loop(lambda: self.host.publish(topic, payload, source=source, session_id=session_id))

    def subscribe(self, *patterns: str, depth: int = 64) -> SyncStream:
        """As `Host.subscribe`, for a plain `for`, from now on."""

        def open_stream() -> SyncStream:
            stream = SyncStream(self, self.host.subscribe(*patterns, depth=depth))
            self._streams.add(stream)
            return stream

        return self._on_loop(open_stream)

    def settled(self, timeout: float | None = None) -> bool:
        """As `Host.settled`."""
        return self._run(self.host.settled(timeout))

    def meet(self, *plugins: str, timeout: float | None = None) -> dict[str, Failure]:
        """As `Host.meet`."""
        return self._run(self.host.meet(*plugins, timeout=timeout))

    def reload(self, plugin_id: str) -> None:
        """As `Host.reload`."""
        self._run(self.host.reload(plugin_id))

    def exports(self) -> dict[str, Export]:
        return self.host.exports()

    def plugins(self) -> list[PluginStatus]:
        return self.host.plugins()

    @property
    def problems(self) -> list[Found]:
        return self.host.problems

    def _on_loop(self, work: Callable[[], T]) -> T:
        """Run a function that does not wait, on the host's own loop."""

        async def run() -> T:
            return work()

        return self._run(run())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None:
                work.close()
                raise CallFailed(Failure(Code.UNAVAILABLE, "the host is not running; start it, or use `with`"))
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._running.add(future)
        future.add_done_callback(self._running.discard)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


class SyncStream:
    """Events in order of arrival, for a plain `for`; safe to use from several threads. Ends with its host."""

    def __init__(self, host: SyncHost, stream: Stream) -> None:
        self._host = host
        self._stream = stream
        self._left: deque[BusEvent] = deque()
        """Events that were waiting at the end."""

    @property
    def dropped(self) -> int:
        """How many events were dropped because too many were waiting."""
        return self._stream.dropped

    def wait(self, timeout: float | None = None) -> BusEvent | None:
        """The next event; None after `timeout` seconds without one, or when the stream has ended."""

        async def next_event() -> BusEvent | None:
            try:
                return await asyncio.wait_for(anext(self._stream, None), timeout)
            except TimeoutError:
                return None

        try:
            event = None if self._has_ended else self._host._run(next_event())
        except CallFailed:  # the host is stopping and ends this stream
            event = None
        return event or (self._left.popleft() if self._left else None)

    def close(self) -> None:
        """Get no further events; waiting ones can still be read."""
        if not self._has_ended:
            self._host._run(self.end())

    async def end(self) -> None:
        """The same, on the host's own loop."""
        self._host._streams.discard(self)
        self._stream.close()
        self._left.extend([event async for event in self._stream])

    @property
    def _has_ended(self) -> bool:
        return self not in self._host._streams

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BusEvent:
        event = self.wait()
        if event is None:
            raise StopIteration
        return event


class SyncScreens:
    """`Screens` whose methods block; safe to use from several threads."""

    def __init__(self, host: SyncHost) -> None:
        self._host = host
        self._screens = host.host.screens

    def all(self) -> list[Screen]:
        """As `Screens.all`."""
        return self._screens.all()

    def render(self, name: str, width: int, height: int, *, timeout: float | None = None) -> Frame:
        """As `Screens.render`."""
        return self._host._run(self._screens.render(name, width, height, timeout=timeout))

    def press(self, name: str, key: Mapping[str, Any]) -> bool:
        """As `Screens.press`."""
        return self._host._on_loop(lambda: self._screens.press(name, key))

    def mouse(self, name: str, mouse: Mapping[str, Any]) -> bool:
        """As `Screens.mouse`."""
        return self._host._on_loop(lambda: self._screens.mouse(name, mouse))

    def act(self, plugin_id: str, action: str, payload: Any = None) -> bool:
        """As `Screens.act`."""
        return self._host._on_loop(lambda: self._screens.act(plugin_id, action, payload))

    def wedged(self, plugin_id: str) -> bool:
        """As `Screens.wedged`."""
        return self._host._on_loop(lambda: self._screens.wedged(plugin_id))

    def dirty(self, name: str) -> bool:
        """As `Screens.dirty`."""
        return self._host._on_loop(lambda: self._screens.dirty(name))
