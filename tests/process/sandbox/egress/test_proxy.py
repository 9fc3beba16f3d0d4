"""The way out: real sockets, real TLS, ordinary HTTP libraries, and plugins that do not keep to the rules."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from plugbay.process.sandbox.egress import proxy as proxy_module
from plugbay.process.sandbox.egress.decision import MAX_HELLO, Decision
from plugbay.process.sandbox.egress.proxy import (
    MAX_CONNECTIONS,
    MAX_DECISIONS,
    MAX_LOOKUPS,
    REPORTS_PER_SECOND,
    THREAD,
    Resolver,
    is_ours,
)
from plugbay.process.sandbox.policy import Endpoint, Network, Reach
from tests.process.helpers import ROOT, Run
from tests.process.sandbox.egress.corpus import NAMES, ROWS, connect, get
from tests.process.sandbox.egress.helpers import (
    OK,
    Server,
    Way,
    client_context,
    listen_only,
    server_context,
    serving,
    way_out,
)
from tests.process.sandbox.egress.test_decision import block, message, records, server_name
from tests.support.descriptors import many_descriptors
from tests.support.machine import needs_low_ports
from tests.support.patience import PATIENCE, until
from tests.support.tiers import first_alone

SITES = ("secure.test", "other.test")
MIB = 1 << 20


def way_to(server: Server, *hosts: str, **options: Any) -> AbstractAsyncContextManager[Way]:
    """For a plugin that may reach these names and knows where they are."""
    return way_out(listed(server, *hosts), at(server, *hosts), **options)


def listed(server: Server, *hosts: str, reach: Reach = Reach.LISTED) -> Network:
    """A plugin that may reach these names, all of which are this server."""
    return Network(reach, tuple(Endpoint(host) for host in hosts), server.pairs)


def at(server: Server, *hosts: str) -> dict[str, list[str]]:
    return {host: [server.address] for host in hosts}


# Who gets where.


@needs_low_ports
def test_each_refused_request_of_the_corpus_reaches_no_server(run: Run) -> None:
    async def main() -> None:
        async with serving(80, 443) as server:
            table = {host: [*found, server.address] if found else [] for host, found in NAMES.items()}
            for row in [row for row in ROWS if row.outcome.isdigit()]:
                async with way_out(row.network, table) as way:
                    assert str(await way.status(row.head)) == row.outcome, row.head
                    assert [verdict.allowed for verdict in way.proxy.decisions] == [False]
            assert server.seen == []

    run(main())


@needs_low_ports
def test_each_request_of_the_corpus_that_is_allowed_reaches_its_server_alone(run: Run) -> None:
    async def main() -> None:
        async with serving(1, 22, 80, 443, 8080, 65535) as server:
            rows = [row for row in ROWS if row.outcome.rpartition(":")[0] in NAMES]
            assert len(rows) > 20
            for number, row in enumerate(rows, 1):
                host, _, port = row.outcome.rpartition(":")
                async with way_out(replace(row.network, private=server.pairs), at(server, host)) as way:
                    assert await way.status(row.head) == 200, row.head
                    assert list(way.proxy.decisions) == [
                        Decision("test", host, int(port), True, address=server.address)
                    ]
                assert len(server.seen) == number

    run(main())


@needs_low_ports
def test_a_server_sees_the_request_for_the_checked_host(run: Run) -> None:
    async def main() -> None:
        async with serving(80) as server, way_to(server, "a.test") as way:
            head = get("http://A.test/x?y", "Host: a.test:80", "Proxy-Authorization: secret", "Accept: z")
            assert await way.ask(head) == OK
            assert server.seen == [b"GET /x?y HTTP/1.1\r\nHost: a.test\r\nAccept: z\r\nConnection: close\r\n\r\n"]
            assert (way.proxy.sent, way.proxy.received) == (0, len(OK))

    run(main())


def test_a_name_is_resolved_once_and_a_second_answer_is_checked_anew(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, serving() as private:
            answers = [[server.address], [private.address], [server.address, private.address]]
            asked = []

            async def flipping(host: str, port: int) -> list[str]:
                asked.append(host)
                return answers[len(asked) - 1]

            network = Network(Reach.ANY, private=server.pairs)
            async with way_out(network, resolver=flipping) as way:
                request = get(f"http://rebind.test:{server.port}/")
                assert [await way.status(request) for _ in answers] == [200, 403, 403]
            assert asked == ["rebind.test"] * 3
            assert (len(server.seen), private.seen) == (1, [])

    run(main())


def test_a_redirect_is_checked_like_a_new_request(run: Run) -> None:
    async def moved(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n")

    async def main() -> None:
        async with serving(script=moved) as server:
            network = listed(server, reach=Reach.ANY)
            async with way_out(network, at(server, "a.test")) as way:
                opener = urllib.request.build_opener(
                    urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{way.port}"})
                )
                with pytest.raises(urllib.error.HTTPError) as refused:
                    await asyncio.to_thread(opener.open, f"http://a.test:{server.port}/", timeout=PATIENCE)
                with refused.value:
                    assert refused.value.code == 403
                assert [(item.host, item.allowed) for item in way.proxy.decisions] == [
                    ("a.test", True),
                    ("169.254.169.254", False),
                ]

    run(main())


def test_the_next_address_is_tried_when_one_does_not_answer(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, serving() as gone:
            await gone.close()
            network = Network(Reach.ANY, private=(*server.pairs, f"{gone.address}:{server.port}"))
            async with way_out(network, {"a.test": [gone.address, server.address]}) as way:
                assert await way.status(get(f"http://a.test:{server.port}/")) == 200
                assert [item.address for item in way.proxy.decisions] == [server.address]

    run(main())


def test_an_unresolved_or_unreachable_host_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def main() -> None:
        async with serving() as gone:
            await gone.close()
            network = listed(gone, reach=Reach.ANY)
            async with way_out(network, at(gone, "a.test")) as way:
                answer = await way.ask(connect(f"a.test:{gone.port}"))
                assert answer.startswith(b"HTTP/1.1 502 a.test cannot be reached: ")
                assert gone.address.encode() not in answer
                assert b"502 b.test cannot be resolved: name or service" in await way.ask(connect("b.test:443"))
        monkeypatch.setattr(proxy_module, "RESOLVE_SECONDS", 0.01)
        async with way_out(network, resolver=never) as way:
            assert await way.status(connect("a.test:443")) == 504

    run(main())


def test_a_server_that_accepts_no_connection_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(proxy_module, "CONNECT_SECONDS", 0.05)
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            port = full.getsockname()[1]
            crowd = [socket.socket() for _ in range(4)]  # fill the queue of a server that accepts nobody
            for one in crowd:
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
            network = Network(Reach.ANY, private=(f"127.0.0.1:{port}",))
            async with way_out(network) as way:
                assert await way.status(connect(f"127.0.0.1:{port}")) == 504
            for one in crowd:
                one.close()

    run(main())


# Ordinary libraries.


@needs_low_ports
def test_https_works_through_the_libraries_that_plugins_use(run: Run, tmp_path: Path) -> None:
    def by_http_client(port: int) -> bytes:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=client_context(SITES))
        connection.set_tunnel("secure.test", 443)
        connection.request("GET", "/")
        body = connection.getresponse().read()
        connection.close()
        return body

    def by_urllib(port: int) -> bytes:
        proxies = urllib.request.ProxyHandler({"https": f"http://127.0.0.1:{port}"})
        opener = urllib.request.build_opener(proxies, urllib.request.HTTPSHandler(context=client_context(SITES)))
        with opener.open("https://secure.test/", timeout=PATIENCE) as answer:
            return bytes(answer.read())

    def by_httpx(port: int) -> bytes:
        proxy = f"http://127.0.0.1:{port}"
        with httpx2.Client(proxy=proxy, verify=client_context(SITES), trust_env=False) as client:
            return client.get("https://secure.test/").content

    async def main() -> None:
        async with serving(443, trust=server_context(tmp_path, SITES)) as server, way_to(server, "secure.test") as way:
            for library in (by_http_client, by_urllib, by_httpx):
                assert await asyncio.to_thread(library, way.port) == b"hello"
            assert [item.allowed for item in way.proxy.decisions] == [True] * 3

    run(main())


def test_a_library_shows_why_a_tunnel_was_refused(run: Run) -> None:
    def fetch(port: int) -> None:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.set_tunnel("evil.test", 443)
        try:
            connection.request("GET", "/")
        finally:
            connection.close()

    async def main() -> None:
        async with way_out(Network(Reach.LISTED, (Endpoint("a.test"),))) as way:
            with pytest.raises(OSError, match=r"403 the network is not granted for evil\.test, port 443; add"):
                await asyncio.to_thread(fetch, way.port)

    run(main())


# Inside a tunnel.


async def shake(way: Way, target: str, name: str) -> str:
    """Ask for a page by TLS in a tunnel: the page, or the reason of the failure."""
    _, writer = await way.tunnel(target)
    try:
        await writer.start_tls(client_context(SITES), server_hostname=name)
    except ssl.SSLError as error:
        return str(error.reason)
    finally:
        writer.transport.abort()
    return "done"


def low(*row: object) -> Any:
    """A row with a port below 1024."""
    return pytest.param(*row, marks=needs_low_ports)


@pytest.mark.parametrize(
    ("reach", "port", "name", "outcome"),
    [
        low(Reach.LISTED, 443, "secure.test", "done"),
        low(Reach.LISTED, 443, "other.test", "TLSV1_ALERT_ACCESS_DENIED"),
        (Reach.LISTED, 8443, "secure.test", "done"),
        (Reach.LISTED, 8443, "other.test", "TLSV1_ALERT_ACCESS_DENIED"),
        low(Reach.ANY, 443, "other.test", "done"),
    ],
)
def test_a_tunnel_leads_to_the_site_it_was_opened_for(
    run: Run, tmp_path: Path, reach: Reach, port: int, name: str, outcome: str
) -> None:
    """The server would answer for either site: the last row is the control."""

    async def main() -> None:
        async with serving(port, trust=server_context(tmp_path, SITES), script=listen_only) as server:
            network = listed(server, "secure.test", reach=reach)
            async with way_out(network, at(server, "secure.test")) as way:
                found = await shake(way, f"secure.test:{port}", name)
                assert found == outcome
                expected = [True] if outcome == "done" else [True, False]
                assert [item.allowed for item in way.proxy.decisions] == expected

    run(main())


ENCRYPTED_HELLO = b"\xfe\x0d" + block(b"names another server")


@pytest.mark.parametrize(
    ("port", "said", "passes"),
    [
        low(443, records(message(server_name(b"a.test"))), True),
        low(443, records(message(server_name(b"a.test")), 7), True),
        low(443, records(message(server_name(b"a.test")), 1), True),
        low(443, records(message(server_name(b"evil.test"))), False),
        low(443, records(message(server_name(b"evil.test")), 1), False),
        low(443, records(message(server_name(b"a.test", b"evil.test"))), False),
        low(443, records(message(server_name(b"a.test"), ENCRYPTED_HELLO)), False),
        low(443, b"\x16\3\1\x40\0\1\xff\xff\xff" + bytes(MAX_HELLO), False),
        low(443, records(message()), False),
        low(443, records(message(server_name(b"a.test\0.evil.test"))), False),
        low(443, b"GET / HTTP/1.1\r\n\r\n", False),
        low(443, b"SSH-2.0-x\r\n", False),
        (2222, b"SSH-2.0-x\r\n", True),
        (2222, records(message(server_name(b"evil.test"))), False),
        (2222, records(message(server_name(b"a.test"), ENCRYPTED_HELLO)), False),
        (2222, b"\x16 is not TLS", False),
    ],
)
def test_nothing_of_a_tunnel_is_sent_on_before_its_first_words_are_read(
    run: Run, port: int, said: bytes, passes: bool
) -> None:
    async def main() -> None:
        async with serving(port, script=listen_only) as server, way_to(server, "a.test") as way:
            _, writer = await way.tunnel(f"a.test:{port}")
            writer.write(said[:1])
            await asyncio.sleep(0)
            writer.write(said[1:])
            if passes:
                await until(lambda: bytes(server.seen[0]) == said)
            else:
                await until(lambda: way.proxy.connections == 0)
                assert server.seen == [b""]
                assert not way.proxy.decisions[-1].allowed
            writer.transport.abort()

    run(main())


@needs_low_ports
@pytest.mark.parametrize(("name", "passes"), [(b"a.test", True), (b"evil.test", False)])
def test_a_hello_may_come_in_as_many_segments_as_it_has_bytes(run: Run, name: bytes, passes: bool) -> None:
    hello = records(message(server_name(name)), 3)

    async def main() -> None:
        async with serving(443, script=listen_only) as server, way_to(server, "a.test") as way:
            _, writer = await way.tunnel("a.test:443")
            for at in range(len(hello)):
                assert bytes(server.seen[0]) == b"", "nothing passes before the name is known"
                writer.write(hello[at : at + 1])
                await asyncio.sleep(0.001)  # the next byte is another segment, read by itself
            if passes:
                await until(lambda: bytes(server.seen[0]) == hello)
            else:
                await until(lambda: way.proxy.connections == 0)
                assert server.seen == [b""]
            writer.transport.abort()

    run(main())


@needs_low_ports
def test_a_hello_may_come_together_with_the_request_for_its_tunnel(run: Run) -> None:
    hello = records(message(server_name(b"a.test")))

    async def main() -> None:
        async with serving(443, script=listen_only) as server, way_to(server, "a.test") as way:
            _, writer = await way.open()
            writer.write(connect("a.test:443") + hello)
            await until(lambda: [bytes(seen) for seen in server.seen] == [hello])
            writer.transport.abort()

    run(main())


def test_each_side_of_a_tunnel_may_end_before_the_other(run: Run) -> None:
    async def answer_at_the_end(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome ")  # first, as mail servers do
        writer.write((await reader.read()).upper())

    async def main() -> None:
        async with serving(2525, script=answer_at_the_end) as server, way_to(server, "a.test") as way:
            reader, writer = await way.tunnel("a.test:2525")
            assert await reader.readexactly(8) == b"welcome "
            writer.write(b"abc")
            writer.write_eof()
            assert await reader.read() == b"ABC"
            assert (way.proxy.sent, way.proxy.received) == (3, 11)
            writer.close()
            await until(lambda: way.proxy.connections == 0)

    run(main())


def test_a_plugin_that_ends_without_a_word_lets_the_server_end(run: Run) -> None:
    async def say_goodbye(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""
        writer.write(b"goodbye")

    async def main() -> None:
        async with serving(2525, script=say_goodbye) as server, way_to(server, "a.test") as way:
            reader, writer = await way.tunnel("a.test:2525")
            writer.write_eof()
            assert await reader.read() == b"goodbye"
            writer.close()

    run(main())


# One request and no more.


@pytest.mark.parametrize(
    ("headers", "body", "forwarded"),
    [
        ((), b"", b""),
        (("Content-Length: 3",), b"abc", b"abc"),
        (("Transfer-Encoding: chunked",), b"3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
    ],
)
def test_a_second_request_on_a_connection_reaches_no_server(
    run: Run, headers: tuple[str, ...], body: bytes, forwarded: bytes
) -> None:
    async def main() -> None:
        async with serving() as server, way_to(server, "a.test") as way:
            first = get(f"http://a.test:{server.port}/", *headers, method="POST") + body
            second = b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
            assert await way.ask(first + second) == OK
            assert len(server.seen) == 1
            head, _, sent = bytes(server.seen[0]).partition(b"\r\n\r\n")
            assert sent == forwarded
            assert b"evil" not in head

    run(main())


def test_a_body_whose_framing_breaks_is_cut_and_not_completed(run: Run) -> None:
    async def main() -> None:
        async with serving(script=listen_only) as server, way_to(server, "a.test") as way:
            head = get(f"http://a.test:{server.port}/", "Transfer-Encoding: chunked", method="POST")
            with pytest.raises(ConnectionResetError):
                await way.ask(head + b"3\r\nabc\r\n0\r\n\nGET http://evil.test/ HTTP/1.1\r\n\r\n")
            await until(lambda: way.proxy.connections == 0)
            assert bytes(server.seen[0]).endswith(b"\r\n\r\n3\r\nabc\r\n")

    run(main())


def test_an_answer_that_breaks_off_does_not_look_complete(run: Run) -> None:
    async def break_off(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf of")
        await writer.drain()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def main() -> None:
        async with serving(script=break_off) as server, way_to(server, "a.test") as way:
            with pytest.raises(ConnectionResetError):
                await way.ask(get(f"http://a.test:{server.port}/"))

    run(main())


def test_a_server_may_answer_before_it_has_the_whole_body(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, way_to(server, "a.test") as way:
            head = get(f"http://a.test:{server.port}/", "Content-Length: 100", method="POST")
            assert await way.ask(head + b"some") == OK

    run(main())


# Bounds.


def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(proxy_module, "HEAD_SECONDS", 1.0)  # enough for the proxy to read the first bytes
        async with way_out(Network(Reach.ANY)) as way:
            assert await way.status(b"GET http://a.test/ HTTP/1.1\r\nX: ") == 408
            reader, writer = await way.open()  # and one that never says a word gets none either
            assert await reader.read() == b""
            writer.close()
            assert len(way.proxy.decisions) == 1

    run(main())


@needs_low_ports
def test_a_tunnel_without_a_hello_is_cut(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(443, script=listen_only) as server, way_to(server, "a.test") as way:
            await way.tunnel("a.test:443")
            monkeypatch.setattr(proxy_module, "HEAD_SECONDS", 0.05)
            another, other = await way.tunnel("a.test:443")
            other.write(b"\x16\x03")
            with pytest.raises(ConnectionResetError):
                await another.read()
            assert way.proxy.connections == 1  # the first began when there was time

    run(main())


def test_what_does_not_move_is_cut(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(proxy_module, "IDLE_SECONDS", 0.05)
        async with serving(2525, script=listen_only) as server, way_to(server, "a.test") as way:
            reader, writer = await way.tunnel("a.test:2525")
            with pytest.raises(ConnectionResetError):
                await reader.read()
            with pytest.raises(ConnectionResetError):
                await way.ask(get("http://a.test:2525/"))
            writer.close()
            await until(lambda: way.proxy.connections == 0)

    run(main())


@pytest.mark.parametrize("limit", first_alone([MAX_CONNECTIONS, 3 * MAX_CONNECTIONS]))
def test_a_thousand_connections_cost_the_host_no_more_than_its_limit(
    run: Run, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    async def main() -> None:
        monkeypatch.setattr(proxy_module, "MAX_CONNECTIONS", limit)
        async with serving() as server, way_to(server, "a.test", backlog=1024) as way:
            crowd = [socket.create_connection(("127.0.0.1", way.port)) for _ in range(1000)]
            await until(lambda: way.proxy.connections == limit)
            crowd.pop().close()  # the last of the queue; its place is nobody's
            await asyncio.sleep(0)
            assert way.proxy.connections == limit
            for one in crowd:
                one.close()
            assert await way.ask(get(f"http://a.test:{server.port}/")) == OK

    with many_descriptors(4096):
        run(main())


def test_a_server_sends_no_faster_than_the_plugin_reads(run: Run) -> None:
    size = 64 * MIB

    async def flood(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(size // MIB):
            writer.write(bytes(MIB))
            await writer.drain()

    async def main() -> None:
        async with serving(2525, script=flood) as server, way_to(server, "a.test") as way:
            reader, writer = await way.tunnel("a.test:2525")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            last = [(-1, 0)]

            def stalled() -> bool:
                now = way.proxy.received
                last[0] = (now, last[0][1] + 1 if now == last[0][0] else 0)
                return now > 0 and last[0][1] > 40

            await until(stalled)
            assert way.proxy.received < size // 2  # what the kernel holds, and one piece
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            total = 0
            while data := await reader.read(MIB):
                total += len(data)
            assert total == way.proxy.received == size
            writer.close()

    run(main())


# What the operator learns.


def test_decisions_are_kept_and_reported_within_bounds(run: Run) -> None:
    told: list[Decision] = []

    async def main() -> None:
        async with way_out(Network(), on_decision=told.append) as way:
            for number in range(MAX_DECISIONS + 10):
                way.proxy._report(Decision("test", "a.test", number, False, "no"))
            await asyncio.sleep(0)
            assert [item.port for item in way.proxy.decisions] == list(range(10, MAX_DECISIONS + 10))
            assert REPORTS_PER_SECOND <= len(told) <= 2 * REPORTS_PER_SECOND  # a second may have ended meanwhile
            assert len(told) + way.proxy.unreported == MAX_DECISIONS + 10

    run(main())


def test_a_failing_callback_does_not_end_the_connection(run: Run) -> None:
    reported: list[object] = []

    def fail(verdict: Decision) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        async with serving() as server, way_to(server, "a.test", on_decision=fail) as way:
            assert await way.ask(get(f"http://a.test:{server.port}/")) == OK
        assert [type(item) for item in reported] == [ZeroDivisionError]

    run(main())


def test_no_control_character_is_ever_reported(run: Run) -> None:
    async def main() -> None:
        for row in ROWS:
            async with way_out(row.network, NAMES) as way:
                if row.outcome.isdigit():
                    assert await way.status(row.head) == int(row.outcome)
                assert all(f"{item.host}{item.why}{item.address}".isprintable() for item in way.proxy.decisions)

    run(main())


# The end.


def test_when_the_proxy_is_closed_there_is_no_way_out(run: Run) -> None:
    async def main() -> None:
        async with serving(2525, script=listen_only) as server, way_to(server, "a.test") as way:
            reader, _ = await way.tunnel("a.test:2525")
            way.proxy.close()
            way.proxy.close()
            assert await reader.read() == b""
            await until(lambda: way.proxy.connections == 0)
            with pytest.raises(ConnectionRefusedError):
                await way.open()

    run(main())


def test_a_proxy_may_be_closed_before_it_began(run: Run) -> None:
    async def main() -> None:
        async with way_out(Network()) as way:
            way.proxy.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            with pytest.raises(ConnectionRefusedError):
                await way.open()

    run(main())


def test_a_closed_proxy_accepts_no_connection(run: Run) -> None:
    async def main() -> None:
        async with way_out(Network()) as way:
            socket.create_connection(("127.0.0.1", way.port)).close()
            way.proxy.close()
            with pytest.raises(ConnectionRefusedError):  # without a turn of the loop in between
                socket.create_connection(("127.0.0.1", way.port))

    run(main())


OWN_ADDRESS = """
import fcntl, socket, struct, sys
from plugbay.process.sandbox.egress.proxy import is_ours
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
    print(is_ours("8.8.4.4"))
    fcntl.ioctl(link, 0x8916, struct.pack("16sHH4s8x", b"lo", 2, 0, socket.inet_aton("8.8.4.4")))  # its address
    fcntl.ioctl(link, 0x8914, struct.pack("16sH14x", b"lo", 1))  # up
print(is_ours("8.8.4.4"), is_ours("8.8.8.8"))
"""


def test_the_system_resolves_names(run: Run) -> None:
    async def main() -> None:
        assert "127.0.0.1" in await Resolver()("localhost", 80)

    run(main())


def test_a_name_that_does_not_exist_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def main() -> None:
        monkeypatch.setattr(socket, "getaddrinfo", missing)
        resolver = Resolver()
        for _ in range(MAX_LOOKUPS + 1):  # each gives its place back
            with pytest.raises(socket.gaierror):
                await resolver("missing.test", 80)

    run(main())


def test_name_servers_that_never_answer_hold_a_bounded_number_of_threads(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()

    def slow(*_: Any, **__: Any) -> Any:
        answer.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 80))] * 2

    def threads() -> int:
        return sum(thread.name == THREAD for thread in threading.enumerate())

    async def main() -> None:
        before = threads()
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        resolver = Resolver()
        asked = [asyncio.ensure_future(resolver("slow.test", 80)) for _ in range(MAX_LOOKUPS * 2)]
        try:
            await until(lambda: threads() - before == MAX_LOOKUPS)
            for one in asked[:MAX_LOOKUPS]:
                one.cancel()  # whoever asked is gone, and the thread is not
            await asyncio.wait(asked[:MAX_LOOKUPS])
            assert threads() - before == MAX_LOOKUPS
        finally:
            answer.set()
        assert await asyncio.gather(*asked[MAX_LOOKUPS:]) == [["8.8.8.8"]] * MAX_LOOKUPS
        await until(lambda: threads() == before)

    run(main())


def test_loopback_is_ours_and_an_unknown_address_is_not() -> None:
    assert is_ours("127.0.0.1")
    assert not is_ours("192.0.2.1")
    assert not is_ours("2001:db8::1")


def test_a_public_address_is_ours_once_the_machine_has_it() -> None:
    """In a network of its own, so that the machine keeps the addresses it has."""
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", OWN_ADDRESS]
    done = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
