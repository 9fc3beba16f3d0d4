"""A plugin's own storage on the wire: four requests to the host, how each is asked, read and answered.

The contract grants storage and names no method for it; these names, parameters and results are our choice, in one
place. Owns which capability each needs.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure
from plugbay.model.operations import DeleteStored, GetStored, ListStored, SetStored
from plugbay.wire.strict_json import Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.wire.strict_json import Codec

    Stored = GetStored | SetStored | DeleteStored | ListStored

MAX_KEY = 512
"""Bytes of a key, or of the beginning of one: a name, not a value."""

MAX_KEYS = 1000
"""Keys of one answer, and what a plugin gets that does not say how many it wants."""

READ, WRITE = "kaged:storage:read", "kaged:storage:write"

NAMES: dict[type, str] = {
    GetStored: "kaged.storage.get",
    SetStored: "kaged.storage.set",
    DeleteStored: "kaged.storage.delete",
    ListStored: "kaged.storage.list",
}
NEEDS: dict[type, str] = {GetStored: READ, ListStored: READ, SetStored: WRITE, DeleteStored: WRITE}
"""The capability without which a host refuses."""


# Requests.


def write_request(op: Any, codec: Codec) -> tuple[str, bytes] | Failure:
    """PLUGIN: the method and the parameters of a request; these are called as the fields of the operation are."""
    try:
        return NAMES[type(op)], codec.encode({field: getattr(op, field) for field in op.__slots__})
    except Unencodable as error:
        return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")


def read_request(name: str, given: Any) -> Stored | str | None:
    """HOST: what is asked, or what is wrong with it; None when `name` is not a request for storage."""
    reader = _READERS.get(name)
    if reader is None:
        return None
    return reader(given) if isinstance(given, dict) else "params must be an object"


def _get(given: dict[str, Any]) -> Stored | str:
    return _key_problem(given) or GetStored(given["key"])


def _set(given: dict[str, Any]) -> Stored | str:
    if "value" not in given:
        return "value is missing"
    return _key_problem(given) or SetStored(given["key"], given["value"])


def _delete(given: dict[str, Any]) -> Stored | str:
    return _key_problem(given) or DeleteStored(given["key"])


def _list(given: dict[str, Any]) -> Stored | str:
    prefix, limit = given.get("prefix", ""), given.get("limit", MAX_KEYS)
    if not (isinstance(prefix, str) and len(prefix.encode()) <= MAX_KEY):
        return f"prefix must be a string of at most {MAX_KEY} bytes"
    if type(limit) is not int or limit < 1:
        return "limit must be a number from 1"
    return ListStored(prefix, min(limit, MAX_KEYS))


def _key_problem(given: dict[str, Any]) -> str:
    key = given.get("key")
    good = isinstance(key, str) and 0 < len(key.encode()) <= MAX_KEY
    return "" if good else f"key must be a string of 1 to {MAX_KEY} bytes"


_READERS: dict[str, Callable[[dict[str, Any]], Stored | str]] = {
    NAMES[GetStored]: _get,
    NAMES[SetStored]: _set,
    NAMES[DeleteStored]: _delete,
    NAMES[ListStored]: _list,
}


# Answers. What the host answered with is what the plugin gets, whatever it looks like in between.


def build_result(op: type, value: Any) -> dict[str, Any]:
    """HOST: `{"found", "value"}` of a get, whether a delete found something, the keys of a list; nothing of a set."""
    if op is GetStored:
        return {"value": value["value"], "found": value["found"]}
    if op is DeleteStored:
        return {"deleted": value}
    return {"keys": value} if op is ListStored else {"ok": True}


def read_result(op: type, given: Any) -> tuple[Any, str]:
    """PLUGIN: the value in an answer, and what is wrong with it."""
    answer = given if isinstance(given, dict) else {}
    if op is GetStored:
        found, value = answer.get("found"), answer.get("value")
        return {"found": found, "value": value}, "" if isinstance(found, bool) else "it must hold found (true or false)"
    if op is DeleteStored:
        deleted = answer.get("deleted")
        return deleted, "" if isinstance(deleted, bool) else "it must hold deleted (true or false)"
    if op is ListStored:
        keys = answer.get("keys")
        texts = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
        return keys, "" if texts else "it must hold keys (an array of strings)"
    return None, ""
