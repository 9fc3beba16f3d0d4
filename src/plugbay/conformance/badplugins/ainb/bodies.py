"""Writes a frame that is no message, as KIND says, before its answer: accepted, and counted as noise."""

from __future__ import annotations

import child
from child import KIND, SERVES, Message, framed, serve, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PUBLISH = b'{"jsonrpc":"2.0","method":"host/snapshot/publish","params":{"topic":"bad.out","payload":"%b"}}'

BODIES: dict[str, bytes] = {
    "empty": b"",
    "half_json": b'{"jsonrpc":"2.0","id":',
    "text": b"hello",
    "array": b'[{"jsonrpc":"2.0","id":99,"result":1}]',
    "number": b"42",
    "null": b"null",
    "empty_object": b"{}",
    "two_objects": b'{"jsonrpc":"2.0"} {}',
    "no_utf8": b'{"jsonrpc":"2.0","method":"\xff"}',
    "no_version": b'{"method":"host/log","params":{"level":"info","message":"x"}}',
    "other_version": b'{"jsonrpc":"1.0","method":"host/log","params":{"level":"info","message":"x"}}',
    "method_number": b'{"jsonrpc":"2.0","method":7}',
    "unknown_notification": b'{"jsonrpc":"2.0","method":"host/no_such","params":{}}',
    "request_as_notification": b'{"jsonrpc":"2.0","method":"host/snapshot/get","params":{"topic":"bad.in"}}',
    "text_id": b'{"jsonrpc":"2.0","id":"a","method":"host/snapshot/get","params":{"topic":"bad.in"}}',
    "negative_id": b'{"jsonrpc":"2.0","id":-1,"method":"host/snapshot/get","params":{"topic":"bad.in"}}',
    "float_id": b'{"jsonrpc":"2.0","id":1.5,"method":"host/snapshot/get","params":{"topic":"bad.in"}}',
    "unknown_answer": b'{"jsonrpc":"2.0","id":4711,"result":{}}',
    "log_without_message": b'{"jsonrpc":"2.0","method":"host/log","params":{"level":"info"}}',
    "log_of_own_level": b'{"jsonrpc":"2.0","method":"host/log","params":{"level":"fatal","message":"x"}}',
    "publish_bad_base64": PUBLISH % b"?",
    "publish_unpadded": PUBLISH % b"aGk",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "nan": b'{"jsonrpc":"2.0","method":"host/log","params":{"level":"info","message":"x","fields":NaN}}',
}


def noisy(params: Message) -> Any:
    write(framed(BODIES[KIND]))
    return child.dispatch(params)


SERVES["plugin/cli_dispatch"] = noisy
serve()
