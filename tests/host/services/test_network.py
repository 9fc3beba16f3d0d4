"""HTTP for plugins: real servers, and every trick that would lead a request to where it may not go."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from plugbay.host.services.network import Fetcher, Resolve
from plugbay.model import addresses
from plugbay.model.errors import CallFailed, Code
from plugbay.model.operations import FetchUrl
from plugbay.model.spec import Access
from tests.support.loops import Run
from tests.support.requirements import requirement

ANY = (Access("network"),)

CERTIFICATE = """-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGeimx7oXeVvg4LSc
58DVvC9JZMfYO/Z+QrJ3oGtVj4uhRANCAATYqT7jXSWvjytqUyXIYVzak2GjBGmO
NU/jqcqxv1Q6NfqHSkndUgFjzBrVUh0Moh1l/m5F5lWick7ngq2yCs2z
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBZzCCAQ2gAwIBAgIBATAKBggqhkjOPQQDAjAWMRQwEgYDVQQDDAtzZWN1cmUu
dGVzdDAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowFjEUMBIGA1UE
AwwLc2VjdXJlLnRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATYqT7jXSWv
jytqUyXIYVzak2GjBGmONU/jqcqxv1Q6NfqHSkndUgFjzBrVUh0Moh1l/m5F5lWi
ck7ngq2yCs2zo0owSDAWBgNVHREEDzANggtzZWN1cmUudGVzdDAPBgNVHRMBAf8E
BTADAQH/MB0GA1UdDgQWBBTnAkQMaSGTzoa5EUgCDN2ntd8UhjAKBggqhkjOPQQD
AgNIADBFAiBSdH3dnSEw/RBANr1aDeIRStMCCQ+Ofcy9ZvVQtG7RWQIhANCrT4kA
XQ2hdqJw1h+Luh5TpURgAub+AGgx+MyrN/eY
-----END CERTIFICATE-----
"""
"""For secure.test, by itself, until 2120; the key is not secret."""

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def ok(body: bytes = b"hello", *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def moved(location: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


class Server:
    """Answers by a script, path by path, and remembers what it was asked."""

    def __init__(self, script: Mapping[str, Answer], address: str = "127.0.0.1", port: int = 0) -> None:
        self.script = script
        self.address = address
        self.port = port
        self.seen: list[str] = []
        self.trust: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.address, self.port, ssl=self.trust)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def pair(self) -> str:
        return f"{self.address}:{self.port}"

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"http://{host or self.address}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next((int(line[15:]) for line in head.splitlines() if line.startswith("Content-Length:")), 0)
            self.seen.append(head + (await reader.readexactly(length)).decode("latin-1"))
            answer = self.script[head.split()[1]]
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort() if writer.is_closing() else writer.close()


def names(table: Mapping[str, list[str]]) -> Resolve:
    """A resolver that knows these names."""

    async def resolve(host: str, port: int) -> list[str]:
        return table[host]

    return resolve


class Reach:
    """A fetcher, and the `address:port`s that the operator has opened."""

    def __init__(self, opened: Iterable[str] = (), **options: Any) -> None:
        self.opened = frozenset(opened)
        self.fetcher = Fetcher(**options)


def reaching(*servers: Server, hosts: Mapping[str, list[str]] | None = None, **options: Any) -> Reach:
    """A fetcher whose operator has opened these servers."""
    return Reach([server.pair for server in servers], resolve=names(hosts or {}), **options)


async def fetched(fetcher: Reach, url: str, access: tuple[Access, ...] = ANY, **request: Any) -> Any:
    """The answer, or the code of the failure."""
    try:
        return await fetcher.fetcher.fetch(FetchUrl(url, **request), access, fetcher.opened)
    except CallFailed as error:
        if error.code == Code.CAPABILITY_NOT_ALLOWED:
            assert error.failure.detail == {"capability": "network"}
        return error.code


# What is asked and answered.


@requirement("ainb:host-network-fetch")
def test_a_page_is_fetched_with_its_status_its_headers_and_its_bytes(run: Run) -> None:
    async def main() -> None:
        async with Server({"/a?b=c": ok(b"\x00\xff", "X-A: 1", "X-A: 2", "Connection: close")}) as server:
            answer = await fetched(reaching(server), server.url("/a?b=c#part"))
            assert answer == {
                "status": 200,
                "headers": [["Content-Length", "2"], ["X-A", "1"], ["X-A", "2"]],
                "body": b"\x00\xff",
            }
            assert server.seen[0].splitlines() == [
                "GET /a?b=c HTTP/1.1",
                f"Host: 127.0.0.1:{server.port}",
                "User-Agent: plugbay",
                "Accept: */*",
                "Accept-Encoding: identity",
                "Connection: close",
                "",
            ]

    run(main)


@requirement("ainb:host-network-fetch")
def test_method_headers_and_body_are_the_plugins(run: Run) -> None:
    async def main() -> None:
        async with Server({"/": ok(b"")}) as server:
            headers = (("User-Agent", "me"), ("X-Key", " k\t1 "), ("accept", "text/html"))
            request: dict[str, Any] = {"method": "post", "body": b"a=1", "headers": headers}
            assert (await fetched(reaching(server), server.url(), **request))["status"] == 200
            assert (await fetched(reaching(server), server.url(), method="PUT"))["status"] == 200
            assert server.seen[0].split("\r\n") == [
                "POST / HTTP/1.1",
                f"Host: 127.0.0.1:{server.port}",
                "User-Agent: me",
                "X-Key: k\t1",
                "accept: text/html",
                "Accept-Encoding: identity",
                "Content-Length: 3",
                "Connection: close",
                "",
                "a=1",
            ]
            assert "Content-Length: 0" in server.seen[1]

    run(main)


def test_an_error_of_the_server_is_an_answer_like_any_other(run: Run) -> None:
    async def main() -> None:
        async with Server({"/": b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\n\r\nlater"}) as server:
            answer = await fetched(reaching(server), server.url())
            assert (answer["status"], answer["headers"], answer["body"]) == (503, [["Retry-After", "3"]], b"later")

    run(main)


REFUSED: dict[str, dict[str, Any]] = {
    "method": {"method": "CONNECT"},
    "method with a line": {"method": "GET / HTTP/1.1\r\nX: y\r\n\r\nGET"},
    "trace": {"method": "TRACE"},
    "body": {"method": "POST", "body": bytes(12_500_001)},
    "host": {"headers": (("Host", "other"),)},
    "length": {"headers": (("content-length", "5"),)},
    "chunks": {"headers": (("Transfer-Encoding", "chunked"),)},
    "connection": {"headers": (("Connection", "upgrade"),)},
    "upgrade": {"headers": (("Upgrade", "websocket"),)},
    "proxy": {"headers": (("Proxy-Authorization", "x"),)},
    "expect": {"headers": (("Expect", "100-continue"),)},
    "line in a value": {"headers": (("X", "a\r\nHost: other"),)},
    "line feed in a value": {"headers": (("X", "a\nb"),)},
    "zero in a value": {"headers": (("X", "a\0"),)},
    "value beyond ASCII": {"headers": (("X", "é"),)},
    "line in a name": {"headers": (("X\r\nY", "a"),)},
    "blank in a name": {"headers": (("X Y", "a"),)},
    "no name": {"headers": (("", "a"),)},
    "too many": {"headers": (("X", "a"),) * 101},
    "too long": {"headers": (("X", "a" * 17_000),)},
}


@requirement("ainb:host-network-request")
@pytest.mark.parametrize("what", list(REFUSED))
def test_an_invalid_request_is_refused_before_it_is_sent(run: Run, what: str) -> None:
    async def main() -> None:
        async with Server({"/": ok()}) as server:
            assert await fetched(reaching(server), server.url(), **REFUSED[what]) == Code.INVALID_INPUT
            assert server.seen == []

    run(main)


# Grants.


@requirement("ainb:host-network-allow-list")
def test_only_hosts_that_were_granted_are_asked(run: Run) -> None:
    async def main() -> None:
        async with Server({"/": ok()}) as server:
            hosts = {"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]}
            fetcher = reaching(server, hosts=hosts)
            granted = (Access("network", "a.test"), Access("network", "b.test", 1))
            assert (await fetched(fetcher, server.url(host="A.test"), granted))["status"] == 200
            for url in (server.url(host="b.test"), server.url(host="c.test"), server.url()):
                assert await fetched(fetcher, url, granted) == Code.CAPABILITY_NOT_ALLOWED
            assert await fetched(fetcher, server.url(host="a.test"), ()) == Code.CAPABILITY_NOT_ALLOWED
            assert len(server.seen) == 1
            assert "Host: a.test:" in server.seen[0]

    run(main)


# Addresses.


@requirement("ainb:host-network-addresses")
@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["0.0.0.0"],
        ["169.254.169.254"],
        ["fd00:ec2::254"],
        ["100.100.100.200"],
        ["10.0.0.1"],
        ["fe80::1%eth0"],
        ["8.8.8.8", "127.0.0.1"],
        ["127.0.0.1", "8.8.8.8"],
        ["not an address"],
    ],
    ids=str,
)
def test_a_name_at_an_address_that_is_not_public_is_not_connected_to(run: Run, answers: list[str]) -> None:
    async def main() -> None:
        async with Server({"/": ok()}) as server:
            fetcher = Reach(resolve=names({"a.test": answers}))
            assert await fetched(fetcher, server.url(host="a.test")) == Code.CAPABILITY_NOT_ALLOWED
            assert server.seen == []
            if answers == ["127.0.0.1"]:
                opened = reaching(server, hosts={"a.test": answers})
                assert (await fetched(opened, server.url(host="a.test")))["body"] == b"hello"

    run(main)


@requirement("ainb:host-network-addresses")
def test_literal_addresses_and_names_of_the_system_resolver_are_checked(run: Run) -> None:
    async def main() -> None:
        async with Server({"/": ok()}) as server:
            for host in ("127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "localhost"):
                assert await fetched(Reach(), server.url(host=host)) == Code.CAPABILITY_NOT_ALLOWED
            other = Reach([f"127.0.0.1:{server.port + 1}"])
            assert await fetched(other, server.url()) == Code.CAPABILITY_NOT_ALLOWED, "another port is another server"
            assert server.seen == []
            assert (await fetched(reaching(server), server.url()))["status"] == 200

    run(main)


def test_a_public_address_of_this_very_machine_is_not_connected_to(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "denied", lambda address: None)

    async def main() -> None:
        async with Server({"/": ok()}) as server:
            assert await fetched(Reach(), server.url()) == Code.CAPABILITY_NOT_ALLOWED
            assert (await fetched(reaching(server), server.url()))["status"] == 200

    run(main)


@requirement("ainb:host-network-pinned")
def test_a_name_that_changes_its_address_after_it_was_judged_changes_nothing(run: Run) -> None:
    """Two servers on one port of two addresses; the operator has opened the first, the name moves to the second."""

    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1" if len(asked) % 2 else "127.0.0.2"]

    async def main() -> None:
        asked.clear()
        first = Server({"/": ok(b"public")})
        async with first, Server({"/": ok(b"private")}, "127.0.0.2", first.port) as second:
            fetcher = Reach([first.pair], resolve=rebinding)
            assert (await fetched(fetcher, first.url(host="a.test")))["body"] == b"public"
            assert asked == ["a.test"], "one resolution for one connection"
            assert await fetched(fetcher, first.url(host="a.test")) == Code.CAPABILITY_NOT_ALLOWED
            assert second.seen == []

            judged, used = await rebinding("a.test", 0), await rebinding("a.test", 0)
            assert judged == ["127.0.0.1"]
            reader, writer = await asyncio.open_connection(used[0], first.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert b"private" in await reader.read(), "who resolves twice is deceived"
            writer.close()

    run(main)


def test_the_next_address_of_a_name_is_tried_when_one_does_not_answer(run: Run) -> None:
    async def main() -> None:
        async with Server({"/": ok()}) as server:
            pairs = [server.pair, f"127.0.0.3:{server.port}"]
            hosts = {"a.test": ["127.0.0.3", "127.0.0.1"], "down.test": ["127.0.0.3"], "none.test": []}
            fetcher = Reach(pairs, resolve=names(hosts))
            assert (await fetched(fetcher, server.url(host="a.test")))["status"] == 200
            for host in ("down.test", "none.test"):
                assert await fetched(fetcher, server.url(host=host)) == Code.INVALID_INPUT

    run(main)


def test_a_name_that_cannot_be_resolved_is_bad_input(run: Run) -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def main() -> None:
        assert await fetched(Reach(resolve=unknown), "http://a.test/") == Code.INVALID_INPUT

    run(main)


# Redirects.


@requirement("ainb:host-network-redirects")
@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://127.0.0.1:1/", Code.CAPABILITY_NOT_ALLOWED),
        ("http://localhost/", Code.CAPABILITY_NOT_ALLOWED),
        ("http://[::1]/", Code.CAPABILITY_NOT_ALLOWED),
        ("http://[::ffff:7f00:1]/", Code.CAPABILITY_NOT_ALLOWED),
        ("http://169.254.169.254/latest/meta-data/", Code.CAPABILITY_NOT_ALLOWED),
        ("http://metadata.test/", Code.CAPABILITY_NOT_ALLOWED),
        ("//169.254.169.254/", Code.CAPABILITY_NOT_ALLOWED),
        ("http://2852039166/", Code.INVALID_INPUT),
        ("file:///etc/passwd", Code.INVALID_INPUT),
        ("gopher://a.test/", Code.INVALID_INPUT),
        ("http://user:pass@a.test/", Code.INVALID_INPUT),
        ("http://a.test\\@b.test/", Code.INVALID_INPUT),
        ("http://[oops/", Code.INVALID_INPUT),
        ("/again", Code.INVALID_INPUT),
    ],
)
def test_a_redirect_leads_nowhere_that_a_request_would_not(run: Run, location: str, code: str) -> None:
    async def main() -> None:
        async with Server({"/": moved(location), "/again": moved("/again")}) as server:
            hosts = {"localhost": ["127.0.0.1"], "metadata.test": ["169.254.169.254"]}
            assert await fetched(reaching(server, hosts=hosts), server.url()) == code
            assert len(server.seen) == (6 if location == "/again" else 1)

    run(main)


@requirement("ainb:host-network-redirects")
def test_a_redirect_to_a_host_that_was_not_granted_is_not_followed(run: Run) -> None:
    async def main() -> None:
        async with Server({"/": ok(b"there")}) as there, Server({"/": moved(there.url(host="b.test"))}) as here:
            hosts = {"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]}
            fetcher = reaching(here, there, hosts=hosts)
            a, b = Access("network", "a.test"), Access("network", "b.test")
            assert await fetched(fetcher, here.url(host="a.test"), (a,)) == Code.CAPABILITY_NOT_ALLOWED
            assert there.seen == []
            assert (await fetched(fetcher, here.url(host="a.test"), (a, b)))["body"] == b"there"

    run(main)


@requirement("ainb:host-network-redirects")
@pytest.mark.parametrize(
    ("method", "status", "then"),
    [
        ("GET", 301, "GET"),
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("PUT", 302, "PUT"),
        ("POST", 303, "GET"),
        ("DELETE", 303, "GET"),
        ("HEAD", 303, "HEAD"),
        ("POST", 307, "POST"),
        ("POST", 308, "POST"),
    ],
)
def test_the_next_hop_has_the_method_and_body_that_its_status_says(
    run: Run, method: str, status: int, then: str
) -> None:
    async def main() -> None:
        async with Server({"/a/b": moved("../c?d", status), "/c?d": ok(b"")}) as server:
            body = None if method in ("GET", "HEAD") else b"body"
            headers = (("Content-Type", "text/plain"), ("X-Key", "k"))
            request: dict[str, Any] = {"method": method, "body": body, "headers": headers}
            assert (await fetched(reaching(server), server.url("/a/b"), **request))["status"] == 200
            second = server.seen[1]
            kept = then == method
            assert second.startswith(f"{then} /c?d HTTP/1.1\r\n")
            assert ("body" in second) is (kept and body is not None)
            assert ("Content-Type" in second) is kept
            assert "X-Key: k" in second, "the same server may know the same key"

    run(main)


@requirement("ainb:host-network-redirects")
@pytest.mark.parametrize("name", ["Authorization", "authorization", "Cookie", "X-Api-Key"])
def test_headers_that_may_be_credentials_stay_with_their_server(run: Run, name: str) -> None:
    async def main() -> None:
        async with Server({"/": ok()}) as there, Server({"/": moved(there.url())}) as here:
            headers = ((name, "secret"), ("Accept-Language", "pt"))
            assert (await fetched(reaching(here, there), here.url(), headers=headers))["status"] == 200
            assert "secret" in here.seen[0]
            assert "secret" not in there.seen[0] and "Accept-Language: pt" in there.seen[0]

    run(main)


def test_five_redirects_are_followed_and_an_answer_without_a_place_is_an_answer(run: Run) -> None:
    async def main() -> None:
        script: dict[str, Answer] = {f"/{number}": moved(f"/{number + 1}") for number in range(5)}
        async with Server({**script, "/5": b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"}) as server:
            assert (await fetched(reaching(server), server.url("/0")))["status"] == 302

    run(main)


# Answers that do not end.


async def dripping(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(5)


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not writer.is_closing():
        writer.write(bytes(1 << 20))
        await writer.drain()


async def bombing(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"1\r\nx\r\n" * 10_000)
        await writer.drain()


@requirement("ainb:host-network-bounds")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (dripping, Code.TIMEOUT),
        (silent, Code.TIMEOUT),
        (endless, Code.INVALID_INPUT),
        (bombing, Code.INVALID_INPUT),
        (ok(b"x")[:-1], Code.INVALID_INPUT),
        (b"", Code.INVALID_INPUT),
    ],
    ids=["dripping", "silent", "endless", "bombing", "cut", "nothing"],
)
def test_an_answer_without_end_ends_here(run: Run, answer: Answer, code: str) -> None:
    async def main() -> None:
        async with Server({"/": answer, "/good": ok()}) as server:
            fetcher = reaching(server, seconds=0.3 if code == Code.TIMEOUT else 30)
            slow = asyncio.ensure_future(fetched(fetcher, server.url()))
            assert (await fetched(reaching(server), server.url("/good")))["status"] == 200
            assert await slow == code

    run(main)


@requirement("ainb:host-network-bounds")
def test_the_time_is_for_all_hops_together(run: Run) -> None:
    async def slowly(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        writer.write(moved("/"))
        await writer.drain()

    async def main() -> None:
        async with Server({"/": slowly}) as server:
            assert await fetched(reaching(server, seconds=0.3), server.url()) == Code.TIMEOUT

    run(main)


@requirement("ainb:host-network-not-decoded")
def test_a_compressed_answer_is_handed_on_as_it_is(run: Run) -> None:
    async def main() -> None:
        packed = gzip.compress(json.dumps({"a": 1}).encode())
        async with Server({"/": ok(packed, "Content-Encoding: gzip")}) as server:
            answer = await fetched(reaching(server), server.url(), headers=(("Accept-Encoding", "gzip"),))
            assert answer["body"] == packed
            assert ["Content-Encoding", "gzip"] in answer["headers"]

    run(main)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_server_may_answer_before_it_has_read_the_request(run: Run, tmp_path: Path, secure: bool) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text(CERTIFICATE)

    async def main() -> None:
        over = asyncio.Event()

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
            await over.wait()
            writer.transport.abort()

        trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trust.load_cert_chain(file)
        server = await asyncio.start_server(refuse, "127.0.0.1", 0, ssl=trust if secure else None)
        port = server.sockets[0].getsockname()[1]
        ours = ssl.create_default_context(cafile=str(file))
        fetcher = Reach([f"127.0.0.1:{port}"], resolve=names({"secure.test": ["127.0.0.1"]}), trust=ours, seconds=5)
        url = f"{'https' if secure else 'http'}://secure.test:{port}/"
        answer = await fetched(fetcher, url, method="POST", body=bytes(12_000_000))
        over.set()
        server.close()
        assert not isinstance(answer, str) and (answer["status"], answer["body"]) == (413, b"no")

    run(main)


# TLS.


@requirement("ainb:host-network-tls")
def test_a_server_proves_the_name_that_was_asked_for_at_the_address_that_was_judged(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text(CERTIFICATE)

    async def main() -> None:
        async with Server({"/": ok(b"plain")}) as plain:
            server = Server({"/": ok(b"secret"), "/down": moved(plain.url())})
            server.trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            server.trust.load_cert_chain(file)
            async with server:
                hosts = {"secure.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}
                trust = ssl.create_default_context(cafile=str(file))
                fetcher = reaching(server, plain, hosts=hosts, trust=trust)
                secure = f"https://secure.test:{server.port}"
                assert (await fetched(fetcher, secure))["body"] == b"secret"
                assert await fetched(fetcher, f"{secure}/down") == Code.INVALID_INPUT, "no way back from https"
                assert await fetched(fetcher, f"https://other.test:{server.port}") == Code.INVALID_INPUT
                stranger = reaching(server, hosts=hosts)
                assert await fetched(stranger, secure) == Code.INVALID_INPUT, "nobody we trust vouches for it"
                hasty = reaching(plain, hosts=hosts, trust=trust, seconds=0.2)
                assert await fetched(hasty, f"https://secure.test:{plain.port}") == Code.TIMEOUT
                assert [line.split()[1] for line in server.seen] == ["/", "/down"]

    run(main)


@requirement("ainb:host-network-bounds")
def test_a_server_that_never_finishes_the_tls_handshake_loses_the_connection(run: Run) -> None:
    async def main() -> None:
        ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ended.set_result(await reader.read())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pair = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await fetched(Reach([pair], seconds=0.2), f"https://{pair}/") == Code.TIMEOUT
        assert (await asyncio.wait_for(ended, 5))[:1] == b"\x16", "the connection was closed after the hello"
        server.close()

    run(main)
