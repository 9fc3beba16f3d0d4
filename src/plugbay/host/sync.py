"""`SyncHost`: the same host for code that has no event loop. A script, a notebook cell, a thread of a web server.

Owns one background thread with one loop; everything else is `Host`'s.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from plugbay.host.host import CallResult, Host, PluginStatus
from plugbay.model.spec import Export

T = TypeVar("T")


class SyncHost:
    """A `Host` whose methods block; safe to use from several threads."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="plugbay-host", daemon=True)

    @classmethod
    def load(cls, *paths: str | Path, config: str | Path | None = None, **options: Any) -> Self:
        """As `Host.load`."""
        return cls(Host.load(*paths, config=config, **options))

    def start(self) -> None:
        self._thread.start()
        self._run(self.host.start())

    def stop(self) -> None:
        if not self._thread.is_alive():
            return
        self._run(self.host.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

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
    ) -> CallResult:
        """As `Host.attempt`."""
        return self._run(self.host.attempt(name, input, timeout=timeout, context=context))

    def reload(self, plugin_id: str) -> None:
        """As `Host.reload`."""
        self._run(self.host.reload(plugin_id))

    def exports(self) -> dict[str, Export]:
        return self.host.exports()

    def plugins(self) -> list[PluginStatus]:
        return self.host.plugins()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
