"""Where the client is stricter than nats-py: with each guard, and what nats-py does without it."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error

from plugbay.brokers.nats_client import NatsClient
from tests.support.loops import Run
from tests.support.nats_server import NatsServer, nats_server
from tests.support.patience import until


class Heard:
    """Messages as they come."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes, bytes, bytes]] = []

    def __call__(self, pattern: str, subject: bytes, headers: bytes, data: bytes) -> None:
        self.messages.append((pattern, subject, headers, data))


async def say(server: NatsServer, subject: bytes, data: bytes) -> None:
    """Publish whatever bytes, as no client library would."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false}\r\nPUB %b %d\r\n%b\r\nPING\r\n' % (subject, len(data), data))
    while (line := await reader.readline()) != b"PONG\r\n":
        assert line == b"PING\r\n"  # of a server that begins to wonder about its client
    writer.close()
    await writer.wait_closed()


def test_messages_come_as_bytes_and_one_that_is_no_text_ends_nothing(run: Run, server: NatsServer) -> None:
    async def main() -> None:
        heard = Heard()
        client = NatsClient(heard, encrypted=False)
        await client.join(server.url, print)
        await client.subscribe("odd.>")
        await client.flush()
        await say(server, b"odd.\xff", b"1")
        await say(server, b"odd.good", b"2")
        await until(lambda: len(heard.messages) == 2)
        assert heard.messages == [("odd.>", b"odd.\xff", b"", b"1"), ("odd.>", b"odd.good", b"", b"2")]
        await client.end()

    run(main)


def test_nats_py_itself_stops_reading_at_a_subject_that_is_no_text(
    run: Run, server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        client = Client()
        await client.connect(server.url)
        await client.subscribe("bare.>")
        await client.flush()
        await say(server, b"bare.\xff", b"1")
        reading = client._reading_task
        await until(lambda: reading is not None and reading.done())
        assert client.is_connected
        await client.close()

    with caplog.at_level(logging.CRITICAL, "nats"):
        run(main)


@pytest.mark.parametrize(("encrypted", "told"), [(True, False), (False, True)])
def test_nothing_is_said_to_a_server_that_should_be_encrypted_and_is_not(run: Run, encrypted: bool, told: bool) -> None:
    """A server in the middle would only have to leave one word out; without the guard it is told everything."""
    said = bytearray()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps({"auth_required": True, "max_payload": 1000}).encode() + b"\r\n")
        while part := await reader.read(1000):
            said.extend(part)
            writer.write(b"-ERR 'No'\r\n")
        writer.close()

    async def main() -> None:
        listening = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        client = NatsClient(Heard(), encrypted=encrypted)
        with pytest.raises(Error, match="no TLS" if encrypted else "No"):
            await client.join(f"nats://127.0.0.1:{port}", print, token="hunter2")
        await client.end()
        listening.close()
        await listening.wait_closed()
        assert (b"hunter2" in said) is told

    run(main)


def test_the_end_of_a_connection_is_told_and_what_was_wrong(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        with nats_server(tmp_path) as own:
            client = NatsClient(Heard(), encrypted=False)
            await client.join(own.url, print)
            assert not client.over.is_set()
            own.kill()
            await client.over.wait()
            assert client.trouble is not None
            await client.end()
            again = NatsClient(Heard(), encrypted=False)
            with pytest.raises(Error):
                await again.join(own.url, print)
            assert isinstance(again.trouble, ConnectionError)
            await again.end()

    run(main)


def unwritten(client: NatsClient) -> int:
    """Bytes that wait: here, or in the connection."""
    connection: Any = client._transport
    waiting: int = client.pending_data_size + connection._io_writer.transport.get_write_buffer_size()
    return waiting


def test_a_connection_with_a_server_that_reads_nothing_is_cut_at_once(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        with nats_server(tmp_path) as own:
            client = NatsClient(Heard(), encrypted=False)
            await client.join(own.url, print)
            own.freeze()
            for _ in range(64):  # more than the network takes
                await client.publish("a", b"x" * 1_000_000)
                await asyncio.sleep(0)
                if unwritten(client) > 1 << 20:
                    break
            assert unwritten(client)
            await client.end()
            assert client.is_closed

    run(main)
