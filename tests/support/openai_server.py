"""A small server that speaks OpenAI's format over real HTTP and answers by a script, well or badly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass
class Reply:
    """What the server answers to one request. `pieces` are sent one by one, each as its own HTTP chunk."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    ending: str = "whole"
    """`whole`; `held`: say no more, and wait until the client leaves; `silent`: the same from the very start;
    `dripping`: send comments as long as the client stays; `cut`: close in the middle.
    """


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: Any


def completion(content: str | None = "hello", finish: str = "stop", **message: Any) -> Reply:
    """An ordinary answer."""
    return as_json(
        {
            "choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 4},
        }
    )


def as_json(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply([json.dumps(value).encode()], status, headers={k.replace("_", "-"): v for k, v in headers.items()})


def events(*values: Any) -> bytes:
    """A stream of events with these values, closed by the mark of the end."""
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values) + b"data: [DONE]\n\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One event of a stream."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def streamed(pieces: Iterable[bytes], ending: str = "whole") -> Reply:
    return Reply(list(pieces), content_type=EVENTS, ending=ending)


class OpenAiServer:
    """Answers the first request with the first reply, and so on; the last one serves for all that follow."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.seen: list[Seen] = []
        self.connections = 0
        self.left = 0
        """Clients that went away before a reply was over."""
        self._served: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._served.values():
            writer.close()
        await asyncio.gather(*self._served)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._served[task] = writer
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):  # also in the middle of its request
            self.left += 1
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").split("\r\n")
        except asyncio.IncompleteReadError:
            return False
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.seen.append(Seen(head[0].split()[1], headers, json.loads(body)))
        reply = self.replies[min(len(self.seen), len(self.replies)) - 1]
        if reply.ending != "silent":
            await self._answer(reply, writer)
        if reply.ending in ("held", "silent"):
            await reader.read()
            self.left += 1
        return reply.ending == "whole"

    async def _answer(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        headers = {"Content-Type": reply.content_type, "Transfer-Encoding": "chunked", **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii"))
        for piece in reply.pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        while reply.ending == "dripping" and not writer.is_closing():
            writer.write(b"3\r\n:\n\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.001)
        if reply.ending == "whole":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
