"""Credentials, our overrides of nats-py, and hosts joined through a real NATS server."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import random
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import BadSubjectError, ConnectionClosedError, Error, FlushTimeoutError, MaxPayloadError

from plugbay.brokers import nats as module
from plugbay.brokers.nats import MAX_FILE, NatsClient, NatsTransport, login_options
from plugbay.host.config.config import Config
from plugbay.host.config.sections import BrokerConfig
from plugbay.host.events.bus import BusEvent, Stream
from plugbay.host.host import Host
from plugbay.model.errors import ConfigInvalid
from tests.support.loops import Run, run_on
from tests.support.nats_server import (
    USER,
    Identity,
    NatsServer,
    decentralised,
    nats_server,
    write_certificate,
    write_credentials,
)
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement

URL = "nats://127.0.0.1:4222"
SEED = Identity(USER).seed
"""A user that no server knows."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that a busy machine stops for ten seconds keeps its connection: events meanwhile would be lost to it."""
    monkeypatch.setattr(module, "HEARTBEAT", PATIENCE / 4)


def test_without_credentials_there_are_no_options() -> None:
    assert login_options(BrokerConfig(url=URL), {}) == {}


def test_tokens_and_passwords_come_from_the_environment() -> None:
    token = BrokerConfig(url=URL, token_env="T")
    assert login_options(token, {"T": " hunter2\n"}) == {"token": "hunter2"}
    user = BrokerConfig(url=URL, user="me", password_env="P")
    assert login_options(user, {"P": "hunter2"}) == {"user": "me", "password": "hunter2"}


def test_a_secret_comes_from_the_file_that_a_variable_names(tmp_path: Path) -> None:
    settings = BrokerConfig(url=URL, user="me", password_env="P")
    mounted = tmp_path / "password"
    with pytest.raises(ConfigInvalid, match="which P_FILE names, cannot be read"):
        login_options(settings, {"P_FILE": str(mounted)})
    mounted.write_text("hunter2\n")
    assert login_options(settings, {"P_FILE": str(mounted)}) == {"user": "me", "password": "hunter2"}
    assert login_options(settings, {"P_FILE": str(mounted), "P": "other"})["password"] == "other"
    mounted.write_text("\n")
    with pytest.raises(ConfigInvalid, match="not set, or empty"):
        login_options(settings, {"P_FILE": str(mounted)})


@pytest.mark.parametrize(
    ("environ", "words"), [({}, "not set, or empty"), ({"T": "hunter2\x07x"}, "cannot be printed")]
)
def test_a_variable_that_holds_no_secret_is_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=rf"broker\.token_env: the environment variable T .*{words}") as caught:
        login_options(BrokerConfig(url=URL, token_env="T"), environ)
    assert "hunter2" not in str(caught.value)


def test_a_file_of_credentials_gives_the_jwt_and_proves_it(tmp_path: Path) -> None:
    path = tmp_path / "my.creds"
    write_credentials(path, "a.b.c", SEED)
    options = login_options(BrokerConfig(url=URL, credentials=str(path)), {})
    assert options["user_jwt_cb"]() == b"a.b.c"
    assert len(base64.b64decode(options["signature_cb"]("nonce"))) == 64


def _damaged(path: Path) -> None:
    write_credentials(path, "a.b.c", SEED[:20] + ("A" if SEED[20] != "A" else "B") + SEED[21:])


def _open_to_others(path: Path) -> None:
    write_credentials(path, "a.b.c", SEED)
    path.chmod(0o640)


def _endless(path: Path) -> None:
    write_credentials(path, "a.b." + "c" * MAX_FILE, SEED)


def _without_jwt(path: Path) -> None:
    path.write_text(SEED)
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (_damaged, "the seed in .* is damaged"),
        (_open_to_others, "chmod 600"),
        (_endless, "no NATS credentials"),
        (_without_jwt, "no NATS credentials"),
    ],
)
def test_unusable_credentials_are_refused_before_connecting(tmp_path: Path, prepare: object, words: str) -> None:
    path = tmp_path / "my.creds"
    assert callable(prepare)
    prepare(path)
    with pytest.raises(ConfigInvalid, match=words) as caught:
        login_options(BrokerConfig(url=URL, credentials=str(path)), {})
    assert SEED[3:] not in str(caught.value)


def test_an_encrypted_server_must_prove_its_identity(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    url = "tls://127.0.0.1"
    context = login_options(BrokerConfig(url=url, ca_file=str(certificate)), {})["tls"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert login_options(BrokerConfig(url=url), {})["tls"].verify_mode == ssl.CERT_REQUIRED
    for wrong in (key, tmp_path / "nowhere"):
        with pytest.raises(ConfigInvalid, match=r"broker\.ca_file: .*no usable certificates"):
            login_options(BrokerConfig(url=url, ca_file=str(wrong)), {})


class Heard:
    """Collects messages."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes, bytes, bytes]] = []

    def __call__(self, pattern: str, subject: bytes, headers: bytes, data: bytes) -> None:
        self.messages.append((pattern, subject, headers, data))


async def say(server: NatsServer, subject: bytes, data: bytes) -> None:
    """Publish raw bytes, which no client library would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false}\r\nPUB %b %d\r\n%b\r\nPING\r\n' % (subject, len(data), data))
    while (line := await reader.readline()) != b"PONG\r\n":
        assert line == b"PING\r\n"  # the server checks whether its client is alive
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
        with suppress(TimeoutError):  # once it reads nothing, it may wait for the end of its connection for ever
            async with asyncio.timeout(10):
                await client.close()

    with caplog.at_level(logging.CRITICAL, "nats"):
        run(main)


@pytest.mark.parametrize(("encrypted", "told"), [(True, False), (False, True)])
def test_nothing_is_sent_to_a_server_without_the_required_tls(run: Run, encrypted: bool, told: bool) -> None:
    """A man in the middle only has to omit one field; without the check the client would send its credentials."""
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


def test_the_end_of_a_connection_is_reported_with_its_error(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        with nats_server(tmp_path) as own:
            client = NatsClient(Heard(), encrypted=False)
            await client.join(own.url, print)
            assert not client.over.is_set()
            own.kill()
            await client.over.wait()
            assert client.connection_error is not None
            await client.end()
            again = NatsClient(Heard(), encrypted=False)
            with pytest.raises(Error):
                await again.join(own.url, print)
            assert isinstance(again.connection_error, ConnectionError)
            await again.end()

    run(main)


def test_events_that_wait_when_the_connection_ends_cause_no_error_of_a_task(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with nats_server(tmp_path) as own:
            client = NatsClient(Heard(), encrypted=False)
            await client.join(own.url, print)
            own.kill()
            for _ in range(8):
                await client.publish("a", b"x" * 100_000)
            await client.over.wait()
            await asyncio.sleep(0.1)
            await client.end()
        del client
        gc.collect()

    run(main)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_what_is_left_of_a_closed_connection_is_dropped(tmp_path: Path) -> None:
    """nats-py writes it while it closes its side, and would end in the middle of that: uvloop refuses to."""

    async def story() -> None:
        with nats_server(tmp_path) as own:
            client = NatsClient(Heard(), encrypted=False)
            await client.join(own.url, print)
            connection: Any = client._transport
            own.kill()
            await until(lambda: "closed=True" in repr(connection._io_writer.transport))
            with pytest.raises(RuntimeError, match="closed"):
                connection._io_writer.writelines([b"PING\r\n"])
            connection.writelines([b"PING\r\n"])
            await client.end()

    run_on("uvloop")(story)


def unwritten(client: NatsClient) -> int:
    """Bytes that wait in the queue or in the connection."""
    connection: Any = client._transport
    waiting: int = client.pending_data_size + connection._io_writer.transport.get_write_buffer_size()
    return waiting


def test_a_connection_with_a_server_that_reads_nothing_is_cut_at_once(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        with nats_server(tmp_path) as own:
            client = NatsClient(Heard(), encrypted=False)
            await client.join(own.url, print)
            own.freeze()
            for _ in range(64):  # more than the network buffers
                await client.publish("a", b"x" * 1_000_000)
                await asyncio.sleep(0)
                if unwritten(client) > 1 << 20:
                    break
            assert unwritten(client)
            await client.end()
            assert client.is_closed

    run(main)


def test_the_answer_to_a_ping_that_was_given_up_ends_nothing(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        with nats_server(tmp_path) as own:
            heard = Heard()
            client = NatsClient(heard, encrypted=False)
            await client.join(own.url, print)
            own.freeze()
            with pytest.raises(FlushTimeoutError):
                await client.round_trip(0.01)
            own.thaw()
            await client.round_trip(PATIENCE)
            await client.subscribe("later")
            await client.round_trip(PATIENCE)
            await say(own, b"later", b"1")
            await until(lambda: len(heard.messages) == 1)
            await client.end()

    run(main)


def test_posts_of_one_turn_leave_in_one_write_and_before_a_round_trip(
    run: Run, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        heard = Heard()
        listening, posting = NatsClient(heard, encrypted=False), NatsClient(Heard(), encrypted=False)
        for client in (listening, posting):
            await client.join(server.url, print)
        await listening.subscribe("posts.*")
        await listening.round_trip(PATIENCE)
        writes: list[bytes] = []
        write = posting._connection.write

        def note(data: bytes) -> None:
            writes.append(data)
            write(data)

        monkeypatch.setattr(posting._connection, "write", note)
        for number in range(module.TURN + 5):
            posting.post(f"posts.{number}", b"%d" % number)
        assert posting.unsent > 0 and not writes
        await posting.round_trip(PATIENCE)
        assert [data.count(b"PUB") for data in writes if b"PUB" in data] == [module.TURN + 5]
        await listening.round_trip(PATIENCE)
        assert [data for _, _, _, data in heard.messages] == [b"%d" % each for each in range(module.TURN + 5)]
        for client in (listening, posting):
            await client.end()

    run(main)


def test_many_posted_bytes_are_written_before_the_turn_ends(
    run: Run, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        client = NatsClient(Heard(), encrypted=False)
        await client.join(server.url, print)
        sent: list[bytes] = []
        monkeypatch.setattr(client._connection, "write", sent.append)
        client.post("posts.a", b"x" * module.WRITE_BYTES)
        client.post("posts.b", b"y")
        assert len(sent) == 1 and client.unsent == 1
        await client.wait_sent()
        assert len(sent) == 2 and client.unsent == 0
        await client.end()

    run(main)


@pytest.mark.parametrize("subject", ["", "two words", "a.b\r\nPUB c 0", "a\n"])
def test_what_is_no_subject_is_not_posted(run: Run, server: NatsServer, subject: str) -> None:
    async def main() -> None:
        client = NatsClient(Heard(), encrypted=False)
        await client.join(server.url, print)
        with pytest.raises(BadSubjectError):
            client.post(subject, b"")
        if subject:
            with pytest.raises(BadSubjectError):
                client.post("a.b", b"", subject)
        with pytest.raises(MaxPayloadError):
            client.post("a.b", bytes(client.max_payload + 1))
        assert client.unsent == 0
        await client.end()
        with pytest.raises(ConnectionClosedError):
            client.post("a.b", b"")

    run(main)


def test_a_flood_of_messages_lets_other_tasks_run(run: Run, server: NatsServer) -> None:
    async def main() -> None:
        turns, at = [0], list[int]()
        client = NatsClient(lambda *_: at.append(turns[0]), encrypted=False)
        await client.join(server.url, print)

        async def count_turns() -> None:
            while len(at) < 4 * module.TURN:
                turns[0] += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        await asyncio.sleep(0)
        await client.subscribe("flood")
        sid = next(iter(client._subs))
        await client._ps.parse(b"MSG flood %d 1\r\nx\r\n" % sid * 4 * module.TURN)
        await counting
        assert len(set(at)) >= 4 and max(at.count(turn) for turn in at) <= module.TURN
        await client.end()

    run(main)


ID = "11111111-2222-4333-8444-555555555555"
LAST = "shared.last"
"""Topic of the last event of a test; a server keeps the order."""


def joining(server: NatsServer, *topics: str, **more: Any) -> Config:
    return Config(broker=BrokerConfig(**{"url": server.url, "topics": list(topics), **more}))


async def joined(*hosts: Host) -> None:
    await until(lambda: all(host.broker is not None and host.broker.joined for host in hosts))


async def everything(stream: Stream) -> list[BusEvent]:
    """All events until the last."""
    heard = []
    async for event in stream:
        if event.topic == LAST:
            break
        heard.append(event)
    return heard


def counts(host: Host) -> tuple[int, int, int, int]:
    status = host.broker
    assert status is not None
    return status.sent, status.received, status.dropped, status.refused


NEWS = '[plugin.capabilities.broker]\nsubscribe = ["plugin.p.>"]\npublish = ["plugin.p.>"]\n'


def test_a_host_has_joined_when_the_server_has_its_subscriptions(
    run: Run, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = bytearray()

    class Recorded(NatsTransport):
        def write(self, payload: bytes) -> None:
            sent.extend(payload)
            super().write(payload)

        def writelines(self, payload: list[bytes]) -> None:
            sent.extend(b"".join(payload))
            super().writelines(payload)

    monkeypatch.setattr(module, "NatsTransport", Recorded)

    async def main() -> None:
        async with Host([], joining(server, "a.>", "b.>", "c.>")) as host:
            await joined(host)
            assert sent.count(b"SUB ") == 3
            assert sent.rindex(b"PING") > sent.rindex(b"SUB "), "the ping whose answer it waited for overtook none"

    run(main)


def test_a_plugin_gets_events_of_a_plugin_on_another_host(run: Run, server: NatsServer, tmp_path: Path) -> None:
    body = """
        def tool_invoke(m):
            publish(m["params"]["args"]["topic"], text="hi")
            reply(m, "said")

        def broker_event(m):
            publish("plugin.inbound.k", heard=m["params"]["event"])
    """
    for name in ("one", "two"):
        write_nexo_plugin(tmp_path / name, "p", body, tools=["say"], channels=["k"], more=NEWS)
    config = joining(server, "plugin.p.>", "plugin.outbound.>", "shared.>")

    async def main() -> None:
        async with Host.load(tmp_path / "one") as alone:
            assert alone.broker is None
        one, two = (Host.load(tmp_path / name) for name in ("one", "two"))
        one, two = Host(one.found, config), Host(two.found, config)
        async with one, two, one.subscribe("plugin.p.>") as here, two.subscribe("plugin.inbound.k") as there:
            await joined(one, two)
            await one.settled()
            await two.settled()
            one.publish("plugin.outbound.other", {"not": "for p"})
            assert await one.call("p_say", {"topic": "plugin.p.news"}) == "said"
            said, heard = await anext(here), (await anext(there)).payload["heard"]
            assert heard == said.to_json()
            assert (heard["source"], heard["topic"], heard["payload"]) == ("p", "plugin.p.news", {"text": "hi"})
            # Events that a plugin may not publish are not shared either.
            await one.call("p_say", {"topic": "plugin.outbound.k"})
            assert one.plugins()[0].counters["publish_refused"] == 1
            assert counts(one) == (2, 0, 0, 0) and counts(two) == (0, 2, 0, 0)

    run(main)


def test_every_host_receives_each_event_once_in_order_and_no_echo(run: Run, server: NatsServer) -> None:
    async def main() -> None:
        # Each event arrives three times. Last events of hosts of the test before must not count.
        config = joining(server, "shared.>", "shared.*", ">", prefix="plugbay.once.")
        one, two, three = (Host([], config) for _ in range(3))
        async with one, two, three:
            await joined(one, two, three)
            streams = [host.subscribe("shared.>") for host in (one, two, three)]
            for number in range(20):
                one.publish("shared.n", number)
                await until(lambda: (counts(two)[1], counts(three)[1]) == (number + 1, 2 * number + 1))  # noqa: B023
                two.publish("shared.reply", number)
                await until(lambda: (counts(one)[1], counts(three)[1]) == (number + 1, 2 * number + 2))  # noqa: B023
            one.publish(LAST, None)
            heard = [await everything(stream) for stream in streams]
            assert heard[0] == heard[1] == heard[2]
            assert [event.payload for event in heard[0]] == [number // 2 for number in range(40)]
            assert [counts(host)[3] for host in (one, two, three)] == [0, 0, 0]

    run(main)


def test_nothing_leaves_that_is_not_named(run: Run, server: NatsServer) -> None:
    async def main() -> None:
        client = await nats.connect(server.url)
        messages = await client.subscribe("quiet.>")
        await client.flush()
        silent = Host([], joining(server, prefix="quiet."))
        async with silent, Host([], joining(server, "shared.>", prefix="quiet.")) as some:
            await joined(some)
            for host in (silent, some):
                host.publish("private.x", {"secret": "hunter2"})
                host.publish("shared.x", {"from": "silent" if host is silent else "some"})
            message = await messages.next_msg(timeout=PATIENCE)
            assert (message.subject, json.loads(message.data)["payload"]) == ("quiet.shared.x", {"from": "some"})
            assert silent.broker is not None and "is empty" in (silent.broker.problem or "")
        await client.flush()
        assert messages.pending_msgs == 0
        await client.close()

    run(main)


def test_hosts_with_another_prefix_do_not_hear_each_other(run: Run, server: NatsServer) -> None:
    async def main() -> None:
        here, there = (joining(server, "shared.>", prefix=prefix) for prefix in ("here.", "there."))
        async with Host([], here) as one, Host([], here) as two, Host([], there) as other:
            await joined(one, two, other)
            async with two.subscribe(">") as heard:
                other.publish("shared.theirs", 1)
                await until(lambda: counts(other)[0] == 1)
                one.publish(LAST, 1)
                assert await everything(heard) == []

    run(main)


def test_without_its_server_a_host_goes_on_alone_and_is_joined_again(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "plugbay.broker")

    async def main() -> None:
        with nats_server(tmp_path) as own:
            config = joining(own, "shared.>")
            one, two = Host([], config), Host([], config)
            async with one, two, one.subscribe("shared.>") as here, two.subscribe("shared.>") as there:
                await joined(one, two)
                own.kill()
                await until(lambda: one.broker is not None and not one.broker.joined)
                one.publish("shared.meanwhile", 1)
                assert (await anext(here)).payload == 1
                own.start()
                await joined(one, two)
                one.publish("shared.again", 2)
                # Events published meanwhile arrive too, if host two was back before they were sent.
                await anext(event async for event in there if event.payload == 2)
                assert counts(one)[:3] == (2, 0, 0)

    run(main)
    said = [record.getMessage() for record in caplog.records]
    assert sum("works alone until the server is back" in line for line in said) == 2
    assert sum("joined with other hosts" in line for line in said) == 4


@requirement("host:broker-rejoin")
def test_after_each_lost_connection_the_first_attempt_comes_at_once_and_events_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def record(low: float, high: float) -> float:
        pauses.append(high)
        return 0.01

    monkeypatch.setattr(random, "uniform", record)

    async def main() -> None:
        with nats_server(tmp_path) as own:
            own.kill()
            config = joining(own, "shared.>")
            async with Host([], config) as one:
                await until(lambda: module.MAX_BACKOFF in pauses)  # failed attempts wait longer and longer
                own.start()
                await joined(one)
                for number in range(3):
                    pauses.clear()
                    own.kill()
                    await until(lambda: one.broker is not None and not one.broker.joined)
                    one.publish("shared.meanwhile", number)
                    own.start()
                    await joined(one)
                    assert pauses[0] == module.MIN_BACKOFF
                    await until(lambda: counts(one)[0] == number + 1)  # noqa: B023
                    await say(own, b"plugbay.events.shared.back", b'{"source":"other"}')
                    await until(lambda: counts(one)[1] == number + 1)  # noqa: B023

    run(main)


def test_a_host_that_starts_before_its_server_is_joined_when_that_comes(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        with nats_server(tmp_path) as own:
            own.kill()
            async with Host([], joining(own, "shared.>")) as host:
                await until(lambda: "refused" in str(host.broker and host.broker.problem))
                host.publish("shared.x", 1)
                own.start()
                await joined(host)
                await until(lambda: counts(host)[0] == 1)

    run(main)


def test_a_stopped_server_does_not_delay_the_host(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT", 0.2)

    async def main() -> None:
        with nats_server(tmp_path) as own:
            async with Host([], joining(own, "shared.>")) as host, host.subscribe("shared.>", depth=100) as here:
                await joined(host)
                own.freeze()
                for number in range(100):
                    host.publish("shared.x", "x" * 1_000_000)
                    assert here.dropped == 0, number
                await until(lambda: host.broker is not None and not host.broker.joined)
                assert counts(host)[2] > 0
                assert "broker_event_dropped" in host.journal.counts("host")

    run(main)


@pytest.mark.parametrize("when", ["joined", "at once"])
def test_queued_events_are_sent_before_a_host_stops(run: Run, server: NatsServer, when: str) -> None:
    async def main() -> None:
        config = joining(server, "shared.>", prefix=f"stop.{when.replace(' ', '')}.")
        async with Host([], config) as two, two.subscribe("shared.>", depth=500) as heard:
            await joined(two)
            async with Host([], config) as one:
                if when == "joined":
                    await joined(one)
                for number in range(400):
                    one.publish("shared.n", number)
                one.publish(LAST, None)
            assert [event.payload for event in await everything(heard)] == list(range(400))

    run(main)


def test_a_host_that_is_started_again_is_joined_again(server: NatsServer) -> None:
    host = Host([], joining(server, "shared.>"))

    async def main() -> None:
        async with host:
            await joined(host)
        assert host.broker is not None and (host.broker.joined, host.broker.problem) == (False, "stopped")

    for loop in ("asyncio", "uvloop"):
        run_on(loop)(main)


HOSTILE = [
    (b"shared.x", b""),
    (b"shared.x", b"\xff\x00not json"),
    (b"shared.x", b"[" * 50_000),
    (b"shared.x", b'{"payload":' + b"[" * 200 + b"]" * 200 + b"}"),
    (b"shared.x", b"x" * 1_048_000),
    (b"shared.x", b'{"source":{"not":"text"}}'),
    (b"shared.\xff\xfe", b"{}"),
    ("shared.\u202e".encode(), b"{}"),
    (b"shared." + b"y" * 3_000, b"{}"),
    (b"plugin.lifecycle.p.up", b'{"source":"plugin.supervisor"}'),
]


def test_hostile_messages_are_counted_remarked_and_end_nothing(run: Run, server: NatsServer) -> None:
    async def main() -> None:
        config = joining(server, "shared.>", "plugin.>", prefix="hostile.")
        async with Host([], config) as host, host.subscribe(">") as heard:
            await joined(host)
            for subject, data in HOSTILE:
                await say(server, b"hostile." + subject, data)
            await say(server, b"hostile." + LAST.encode(), b"{}")
            assert await everything(heard) == []
            assert counts(host) == (0, 1, 0, len(HOSTILE))
            assert host.journal.counts("host") == {"broker_event_refused": len(HOSTILE)}
            assert host.broker is not None and host.broker.joined

    run(main)


def test_messages_with_our_own_id_are_ignored(run: Run, server: NatsServer) -> None:
    async def main() -> None:
        client = await nats.connect(server.url)
        messages = await client.subscribe("plugbay.events.shared.mine")
        await client.flush()
        async with Host([], joining(server, "shared.>")) as host, host.subscribe("shared.>") as heard:
            await joined(host)
            host.publish("shared.mine", 1)
            message = await messages.next_msg(timeout=PATIENCE)
            assert message.headers is not None
            for headers in (message.headers, {**message.headers, module.HEADER: ID}):
                await client.publish(message.subject, message.data, headers=headers)
            await client.publish(f"plugbay.events.{LAST}", b"{}")
            await client.flush()
            first, again = await everything(heard)
            assert first == again and counts(host)[1] == 2
        await client.close()

    run(main)


def test_an_event_that_the_server_does_not_take_is_dropped_and_the_next_one_is_not(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        with nats_server(tmp_path, max_payload=10_000) as own:
            config = joining(own, "shared.>")
            async with Host([], config) as one, Host([], config) as two, two.subscribe(">") as heard:
                await joined(one, two)
                one.publish("shared.large", "x" * 20_000)
                one.publish(LAST, None)
                assert await everything(heard) == []
                assert counts(one)[2] == 1
                assert "at most 10,000 bytes" in one.journal.recent("host")[-1].text

    run(main)


def test_the_error_text_of_a_server_is_printable_and_short(run: Run) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload": 1000}\r\n')
        await reader.readline()
        writer.write(b"-ERR '\x1b[2J" + b"x" * 1_000 + b"'\r\n")
        await reader.read()
        writer.close()

    async def main() -> None:
        listening = await asyncio.start_server(greet, "127.0.0.1", 0)
        url = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with Host([], Config(broker=BrokerConfig(url=url, topics=["a"]))) as host:
            await until(lambda: "xxx" in str(host.broker and host.broker.problem))
            assert host.broker is not None and host.broker.problem is not None
            assert host.broker.problem.isprintable() and len(host.broker.problem) < 300
        listening.close()

    run(main)


def test_a_permission_error_of_the_server_is_noted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_PASSWORD", "hunter2")
    user = {"user": "me", "password": "hunter2", "permissions": {"publish": "elsewhere.>", "subscribe": "elsewhere.>"}}

    async def main() -> None:
        with nats_server(tmp_path, authorization={"users": [user]}) as own:
            async with Host([], joining(own, "shared.>", user="me", password_env="NATS_PASSWORD")) as host:
                await until(lambda: bool(host.journal.recent("host")))
                host.publish("shared.x", 1)
                await until(lambda: host.journal.counts("host")["broker_forbidden"] == 2)
                notes = {note.text for note in host.journal.recent("host")}
                assert any("plugbay.events.shared.x" in text for text in notes)

    run(main)


@pytest.mark.parametrize("way", ["token", "password", "credentials"])
def test_a_server_accepts_each_kind_of_credentials_and_no_secret_is_logged(
    run: Run, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("RIGHT", "hunter2hunter2")
    monkeypatch.setenv("WRONG", "hunter3hunter3")
    creds, others = tmp_path / "right.creds", tmp_path / "wrong.creds"
    decentralised(others)
    settings: dict[str, Any] = {
        "token": {"authorization": {"token": "hunter2hunter2"}},
        "password": {"authorization": {"user": "me", "password": "hunter2hunter2"}},
        "credentials": decentralised(creds),
    }[way]
    right, wrong = {
        "token": ({"token_env": "RIGHT"}, {"token_env": "WRONG"}),
        "password": ({"user": "me", "password_env": "RIGHT"}, {"user": "me", "password_env": "WRONG"}),
        "credentials": ({"credentials": str(creds)}, {"credentials": str(others)}),
    }[way]

    async def main() -> None:
        with nats_server(tmp_path, **settings) as own:
            for login in (wrong, {}):
                async with Host([], joining(own, "shared.>", **login)) as stranger:
                    await until(lambda: "uthorization" in str(stranger.broker))
            async with Host([], joining(own, "shared.>", **right)) as host:
                await joined(host)
                told.append(repr(host.broker))

    told: list[str] = []
    run(main)
    said = " ".join([*told, *(record.getMessage() for record in caplog.records)])
    seeds = [path.read_text().split()[-2] for path in (creds, others) if path.exists()]
    assert "cannot join through" in said
    assert not any(secret in said for secret in ("hunter", *seeds))


def test_an_encrypted_server_is_joined_when_it_can_prove_its_identity(run: Run, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = {"cert_file": str(certificate), "key_file": str(key)}

    async def main() -> None:
        with nats_server(tmp_path, tls=tls) as own:
            url = own.url.replace("nats://", "tls://")
            config = joining(own, "shared.>", url=url, ca_file=str(certificate))
            async with Host([], config) as one, Host([], config) as two, two.subscribe(">") as heard:
                await joined(one, two)
                one.publish("shared.x", 1)
                assert (await anext(heard)).payload == 1
            async with Host([], joining(own, "shared.>", url=url)) as wary:
                await until(lambda: "certificate" in str(wary.broker and wary.broker.problem).lower())

    run(main)
