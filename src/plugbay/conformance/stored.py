"""A storage as a kaged host keeps it, small and in memory, for one conversation.

Owns the answers to the four requests for storage. Refuses to judge how they were asked: the hosts of a dialect do that.
"""

from __future__ import annotations

from typing import Any

from plugbay.contracts.kaged import storage
from plugbay.model.operations import DeleteStored, GetStored, ListStored, SetStored


class Stored:
    """A generator: `[method, params]` becomes the result of that request."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def __call__(self, asked: list[Any]) -> dict[str, Any]:
        method, params = asked
        op = storage.read_request(method, params)
        match op:
            case GetStored():
                found = {"found": op.key in self._values, "value": self._values.get(op.key)}
                return storage.build_result(GetStored, found)
            case SetStored():
                self._values[op.key] = op.value
            case DeleteStored():
                return storage.build_result(DeleteStored, self._values.pop(op.key, self) is not self)
            case ListStored():
                keys = sorted(key for key in self._values if key.startswith(op.prefix))
                return storage.build_result(ListStored, keys[: op.limit])
        return storage.build_result(SetStored, None)
