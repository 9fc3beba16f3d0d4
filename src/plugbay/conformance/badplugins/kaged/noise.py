"""Writes something that is no message, as KIND says, before its answer: accepted and counted as noise."""

from __future__ import annotations

from child import KIND, Message, answer, greet, serve, write

NOISE: dict[str, bytes] = {
    "text": b"Listening on port 8080\n",
    "blank": b"\n  \n\r\n",
    "half_json": b'{"jsonrpc":"2.0","id":\n',
    "two_objects": b'{"jsonrpc":"2.0"} {}\n',
    "array": b'[{"jsonrpc":"2.0","id":2,"result":1}]\n',
    "not_object": b'42\n"x"\nnull\n',
    "empty_object": b"{}\n",
    "method_number": b'{"jsonrpc":"2.0","method":7}\n',
    "null_id_error": b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}\n',
    "zero_id_error": b'{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"no"}}\n',
    "nan": b'{"jsonrpc":"2.0","method":"changed","params":{"n":NaN}}\n',
    "bytes": b"\xff\xfe\x00\x80\n",
    "deep": b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "deep_in_params": b'{"jsonrpc":"2.0","method":"changed","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n",
    "of_5_mb": b'{"jsonrpc":"2.0","method":"changed","params":"' + b"x" * 5_000_000 + b'"}\n',
    "flood": b"progress\n" * 20_000,
    "request_id_list": b'{"jsonrpc":"2.0","id":[1],"method":"kaged.storage.get","params":{"key":"k"}}\n',
}


def noisy(request: Message) -> None:
    write(NOISE[KIND])
    answer(request)


greet()
serve(noisy)
