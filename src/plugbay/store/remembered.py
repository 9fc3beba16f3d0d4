"""`Remembered`: what was read of settled tables, for as long as nothing in them has changed.

    known = Remembered[str, Card](database, 1_000)
    card = await known.get("c1", read)       reads it, unless that was done since the last change

What hardly ever changes is needed for every request: keys, bindings, packages, policies of orgs. Owns that nobody is
given what was so before a change of which somebody was told that it is done: while settled tables are being changed
nothing is remembered and nothing is taken from memory, and afterwards all is forgotten (`Database.edition`). A server
has its database to itself (`ownership`), so nobody else changes them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from plugbay.store.database import Database

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """What was found under some keys, as much as there is room for. What was not found, None, is looked for again."""

    def __init__(self, database: Database, room: int, size: Callable[[V], int] = lambda _: 1) -> None:
        """`size` is how much of the room something takes."""
        self._database = database
        self._room = self._left = room
        self._size = size
        self._edition: int | None = None
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    async def get(self, key: K, read: Callable[[], Awaitable[V | None]]) -> V | None:
        """What is found under a key."""
        edition = self._database.edition
        if edition is None:
            return await read()
        if edition != self._edition:
            self._edition, self._left = edition, self._room
            self._values.clear()
        known = self._values.get(key)
        if known is not None:
            self._values.move_to_end(key)
            return known[0]
        found = await read()
        if found is not None and key not in self._values and edition == self._database.edition == self._edition:
            self._keep(key, found)
        return found

    def _keep(self, key: K, value: V) -> None:
        """What was used longest ago goes first; what is larger than all the room is not kept at all."""
        size = self._size(value)
        self._values[key] = value, size
        self._left -= size
        while self._left < 0:
            _, (_, freed) = self._values.popitem(last=False)
            self._left += freed
