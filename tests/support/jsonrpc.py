"""The JSON-RPC 2.0 envelope for peers in tests: its keys, how a message is written, and which kind a message is.

Payloads are spliced in as encoded bytes.
"""

from __future__ import annotations

from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    Id = int | str | None
    Kind = Literal["request", "notification", "response", "invalid"]

FIELDS = ("jsonrpc", "id", "method", "error")
RAW_FIELDS = ("params", "result")
"""For `codec.decoder(FIELDS, RAW_FIELDS)`: payloads stay raw, the error object is always looked at."""

_METHODS: dict[str, bytes] = {}
"""Method names that were checked before; contracts have a few dozen."""

MAX_METHODS = 1_000
"""Names remembered; a contract that builds names from plugin ids must not grow this without end."""

_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x20)} | {ord('"'): '\\"', ord("\\"): "\\\\"}


def request(id: Id, method: str, params: bytes) -> bytes:
    """A call that wants an answer. Empty `params` leaves the key out."""
    name = _METHODS.get(method) or _method(method)
    if not params:
        return b'{"jsonrpc":"2.0","id":%b,"method":"%b"}' % (_id(id), name)
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":%b}' % (_id(id), name, params)


def notification(method: str, params: bytes) -> bytes:
    """A call that wants no answer. Empty `params` leaves the key out."""
    name = _METHODS.get(method) or _method(method)
    if not params:
        return b'{"jsonrpc":"2.0","method":"%b"}' % name
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (name, params)


def result(id: Id, result: bytes) -> bytes:
    """The answer to a call that went well."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_id(id), result)


def error(id: Id, code: int, message: str, data: bytes | None, encode: Callable[[Any], bytes]) -> bytes:
    """The answer to a call that failed; `encode` is the codec's. Without `data` there is no such key."""
    tail = b"" if data is None else b',"data":' + data
    text = encode(message)
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b%b}}' % (_id(id), code, text, tail)


def kind(message: Any) -> Kind:
    """What a decoded envelope is, by the presence of keys; an `id` of null is present.

    A response may still have both or neither of `result` and `error`: the caller sees that in the attributes.
    """
    if message.method is ABSENT:
        return "invalid" if message.id is ABSENT else "response"
    if not (isinstance(message.method, str) and message.method):
        return "invalid"
    return "notification" if message.id is ABSENT else "request"


def _id(id: Id) -> bytes:
    """An id as JSON. Ours are integers; a peer's are echoed, so any string it chose must survive."""
    if type(id) is int:
        return b"%d" % id
    if id is None:
        return b"null"
    if isinstance(id, str):
        return b'"%b"' % id.translate(_ESCAPES).encode()
    raise ValueError(f"an id is an integer, a string or null, not {type(id).__name__}")


def _method(name: str) -> bytes:
    """Method names come from contracts, so one that needs escaping is our own bug."""
    if not (name.isascii() and name.isprintable()) or '"' in name or "\\" in name:
        raise ValueError(f"{name!r} cannot be a method name: printable ASCII without quotes and backslashes")
    encoded = name.encode()
    if len(_METHODS) < MAX_METHODS:
        _METHODS[name] = encoded
    return encoded
