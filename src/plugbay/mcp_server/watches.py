"""`Watches`: which clients hear of changes of which resource.

The plugin that keeps a resource is asked to watch it once, however many clients do, and as long as one does. Refuses to
know which plugin that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakValueDictionary

from plugbay.mcp_server.conversation import Conversation
from plugbay.model.errors import Failure
from plugbay.model.operations import ChangeResource, WatchResource

Ask = Callable[[WatchResource], Coroutine[Any, Any, Failure | None]]
"""Has the plugin watch, or no longer; a `Failure` says why it does not."""


class Watches:
    """By address, whoever watches it."""

    def __init__(self, ask: Ask, later: Callable[[Coroutine[Any, Any, Any]], object]) -> None:
        """`later` does something that nobody waits for."""
        self._ask = ask
        self._later = later
        self._watchers: dict[str, set[Conversation]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By address, as long as somebody needs it: the plugin hears of one change after the other."""

    @property
    def addresses(self) -> list[str]:
        """What somebody watches."""
        return list(self._watchers)

    async def change(self, client: Conversation, op: WatchResource) -> Failure | None:
        """A client wants to hear of changes, or no longer."""
        if op.wanted:
            return await self._begin(op.uri, client)
        self._later(self._end(op.uri, client))
        return None

    def leave(self, client: Conversation) -> None:
        """The client is gone, and watches nothing any more."""
        for uri in [uri for uri, watchers in self._watchers.items() if client in watchers]:
            self._later(self._end(uri, client))

    def changed(self, uri: str) -> None:
        """What is kept under an address is not what it was."""
        for client in list(self._watchers.get(uri, ())):
            client.tell(ChangeResource(uri))

    def again(self, uri: str) -> None:
        """A process that has just begun does not know what its predecessor was asked to watch."""
        self._later(self._ask(WatchResource(uri)))

    def _turn(self, uri: str) -> asyncio.Lock:
        return self._turns.setdefault(uri, asyncio.Lock())

    async def _begin(self, uri: str, client: Conversation) -> Failure | None:
        async with self._turn(uri):
            failure = None if uri in self._watchers else await self._ask(WatchResource(uri))
            if failure is None:
                self._watchers.setdefault(uri, set()).add(client)
        if client.closed:
            await self._end(uri, client)
        return failure

    async def _end(self, uri: str, client: Conversation) -> None:
        async with self._turn(uri):
            watchers = self._watchers.get(uri, set())
            watchers.discard(client)
            if not watchers and self._watchers.pop(uri, None) is not None:
                await self._ask(WatchResource(uri, False))
