"""Bodies are bounded before they are read, and JSON is strict."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from starlette.datastructures import Headers
from starlette.types import Message, Receive

from plugbay.server.api.bodies import received
from plugbay.server.domain.errors import GatewayError
from plugbay.server.settings import EdgeSettings
from tests.support.loops import Run

SETTINGS = EdgeSettings(max_json=100, max_upload=1000)
JSON = {"content-type": "application/json; charset=utf-8"}


def sending(pieces: Iterable[bytes]) -> tuple[Receive, list[bytes]]:
    """A sender of these pieces, and those that were taken."""
    left, taken = list(pieces), []

    async def receive() -> Message:
        if not left:
            return {"type": "http.disconnect"}
        taken.append(left.pop(0))
        return {"type": "http.request", "body": taken[-1], "more_body": bool(left)}

    return receive, taken


async def whole(headers: dict[str, str], *pieces: bytes) -> bytes:
    read = await received(Headers(headers), sending(pieces)[0], SETTINGS)
    body, more = b"", True
    while more:
        message = await read()
        body += message["body"]
        more = message["more_body"]
    return body


def test_a_body_that_is_small_enough_arrives_as_it_was_sent(run: Run) -> None:
    async def main() -> None:
        assert await whole(JSON, b'{"a"', b": 1}") == b'{"a": 1}'
        assert await whole(JSON, b"") == b""
        assert await whole({"content-type": "application/gzip"}, b"x" * 600, b"y" * 400) == b"x" * 600 + b"y" * 400

    run(main)


@pytest.mark.parametrize("headers", [JSON, {}, {"content-type": "application/gzip"}])
def test_a_body_that_is_too_large_is_refused_before_all_of_it_was_taken(headers: dict[str, str], run: Run) -> None:
    async def main() -> None:
        receive, taken = sending([b" " * 99] * 50)
        with pytest.raises(GatewayError) as raised:
            read = await received(Headers(headers), receive, SETTINGS)
            for _ in range(50):
                await read()
        assert raised.value.status == 413 and len(taken) < 12
        announced, taken = sending([b""])
        with pytest.raises(GatewayError):
            await received(Headers({**headers, "content-length": "1001"}), announced, SETTINGS)
        assert taken == []

    run(main)


@pytest.mark.parametrize(
    "body", [b"{", b"NaN", b'"\\ud800"', b'{"a": "x\\u0000"}', b'["\\u0000"]', b'{"\\u0000": 1}', b"\xff", b"1e999"]
)
def test_what_is_not_the_json_we_accept_is_refused(body: bytes, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(GatewayError) as raised:
            await whole(JSON, body)
        assert (raised.value.status, raised.value.code) == (400, "request.invalid_json")

    run(main)


def test_an_escaped_backslash_is_no_nul(run: Run) -> None:
    async def main() -> None:
        assert await whole(JSON, rb'"\\u0000"') == rb'"\\u0000"'

    run(main)
