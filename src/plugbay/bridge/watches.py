"""`Watches`: which clients hear of changes of which resource.

The plugin that keeps a resource is asked to watch it once, however many clients do, and as long as one does. Refuses to
know which plugin that is.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from plugbay.bridge.conversation import Conversation
from plugbay.model.errors import Failure
from plugbay.model.operations import ChangeResource, WatchResource

Ask = Callable[[WatchResource], Coroutine[Any, Any, Failure | None]]
"""Has the plugin watch, or no longer; a `Failure` says why it does not."""


class Watches:
    """By address, whoever watches it."""

    def __init__(self, ask: Ask, later: Callable[[Coroutine[Any, Any, Any]], None]) -> None:
        """`later` does something that nobody waits for."""
        self._ask = ask
        self._later = later
        self._watchers: dict[str, set[Conversation]] = {}

    @property
    def addresses(self) -> list[str]:
        """What somebody watches."""
        return list(self._watchers)

    async def change(self, client: Conversation, op: WatchResource) -> Failure | None:
        """A client wants to hear of changes, or no longer."""
        if not op.wanted:
            self._end(op.uri, client)
            return None
        failure = None if op.uri in self._watchers else await self._ask(op)
        if failure is None and not client.closed:
            self._watchers.setdefault(op.uri, set()).add(client)
        return failure

    def leave(self, client: Conversation) -> None:
        """The client is gone, and watches nothing any more."""
        for uri in [uri for uri, watchers in self._watchers.items() if client in watchers]:
            self._end(uri, client)

    def changed(self, uri: str) -> None:
        """What is kept under an address is not what it was."""
        for client in list(self._watchers.get(uri, ())):
            client.tell(ChangeResource(uri))

    def again(self, uri: str) -> None:
        """A process that has just begun does not know what its predecessor was asked to watch."""
        self._later(self._ask(WatchResource(uri)))

    def _end(self, uri: str, client: Conversation) -> None:
        watchers = self._watchers.get(uri, set())
        watchers.discard(client)
        if not watchers and self._watchers.pop(uri, None) is not None:
            self._later(self._ask(WatchResource(uri, False)))
