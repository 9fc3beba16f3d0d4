"""Connections of programs that know nothing of a proxy: confined programs with plain sockets."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from plugbay.process.sandbox.egress import proxy as proxy_module
from plugbay.process.sandbox.egress.decision import Decision
from plugbay.process.sandbox.policy import Endpoint, Network, Reach
from plugbay.process.stderr import log_name
from tests.process.helpers import Run, open_spawner
from tests.process.sandbox.egress.helpers import Server, certificate, server_context, serving
from tests.process.sandbox.test_jail import confined, said
from tests.support.requirements import requirement

CONNECT = """
import json, socket, ssl, sys
socket.setdefaulttimeout(240)
def connect(host, port, name=None):
    try:
        with socket.create_connection((host, port)) as link:
            if name is not None:
                link = ssl.create_default_context(cadata=sys.argv[2]).wrap_socket(link, server_hostname=name)
            link.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
            return link.recv(1000).decode().rpartition("\\r\\n")[2]
    except OSError as error:
        return type(error).__name__
print(json.dumps([connect(*target) for target in json.loads(sys.argv[1])]))
"""

NOT_FOUND, RESET, REFUSED = "gaierror", "ConnectionResetError", "ConnectionRefusedError"


@pytest.fixture(autouse=True)
def open_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The names that the system's resolver knows, and their addresses."""
    known: dict[str, list[str]] = {}

    def look_up(host: str, port: int) -> list[str]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known[host]

    monkeypatch.setattr(proxy_module, "_addresses", look_up)
    return known


class Inside:
    """Runs programs in a sandbox with this network; keeps the decisions about their connections, and the log."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        self.network = network
        self.decisions: list[Decision] = []
        self.log = ""

    async def run(self, *argv: str) -> str:
        async with open_spawner(self.folder, on_egress=self.decisions.append) as spawner:
            text, child = await said(spawner, confined(self.folder, *argv, network=self.network))
            assert child.jail is not None and child.jail.not_forwarded == ""
            assert text, child.stderr.tail()
        path = self.folder / log_name("cell")
        self.log = path.read_text() if path.exists() else ""
        return text

    async def connect(self, *targets: list[Any], trusted: str = "") -> list[str]:
        """What a program sees that connects to each target: host, port, and the name for TLS."""
        found = await self.run("/usr/bin/python3", "-I", "-c", CONNECT, json.dumps(targets), trusted)
        words: list[str] = json.loads(found)
        return words


def listed(server: Server, *hosts: str) -> Network:
    return Network(Reach.LISTED, tuple(Endpoint(host, server.port) for host in hosts), server.pairs)


@requirement("host:network-every-client", "host:network-names-pinned")
def test_a_granted_name_is_reached_with_a_plain_socket(run: Run, tmp_path: Path, table: dict[str, list[str]]) -> None:
    async def main() -> None:
        async with serving() as server:
            table["good.test"] = [server.address]
            inside = Inside(tmp_path, listed(server, "good.test"))
            assert await inside.connect(["good.test", server.port], ["GOOD.test", server.port]) == ["hello", "hello"]
            expected = Decision("cell", "good.test", server.port, True, address=server.address)
            assert inside.decisions == [expected, expected]
            assert len(server.seen) == 2
            assert inside.log == ""

    run(main())


@requirement("host:network-every-client", "host:network-refusal-logged")
def test_a_connection_that_is_not_granted_fails_at_once_and_the_log_says_why(
    run: Run, tmp_path: Path, table: dict[str, list[str]]
) -> None:
    async def main() -> None:
        async with serving() as server, serving() as other:
            table.update({"good.test": [server.address], "bad.test": [server.address]})
            network = Network(
                Reach.LISTED, (Endpoint("good.test", server.port), Endpoint("gone.test", 80)), server.pairs
            )
            inside = Inside(tmp_path, network)
            targets: dict[tuple[str, int], tuple[str, str]] = {
                ("good.test", 9): (RESET, "good.test:9: the network is not granted for good.test, port 9; add"),
                ("bad.test", server.port): (NOT_FOUND, "bad.test: the network is not granted for bad.test; add"),
                ("gone.test", 80): (NOT_FOUND, "gone.test: gone.test cannot be resolved: name or service not known"),
                ("192.0.2.7", 443): (RESET, "192.0.2.7:443: the network is not granted for 192.0.2.7, port 443; add"),
                ("2001:db8::7", 443): (RESET, "[2001:db8::7]:443: the network is not granted for 2001:db8::7, port"),
                ("198.18.9.9", 80): (RESET, "198.18.9.9:80: the network is not granted for 198.18.9.9, port 80; add"),
            }
            found = await inside.connect(*map(list, targets), [server.address, server.port], ["127.0.0.1", 3129])
            assert found == [*(word for word, _ in targets.values()), REFUSED, RESET]
            for _, why in targets.values():
                assert f"[plugbay] connection refused: {why}" in inside.log
            assert not any(decision.allowed for decision in inside.decisions)
            assert not server.seen and not other.seen

    run(main())


@requirement("host:network-names-pinned")
def test_a_granted_name_at_a_private_address_is_not_reached(
    run: Run, tmp_path: Path, table: dict[str, list[str]]
) -> None:
    async def main() -> None:
        async with serving() as server:
            table["good.test"] = [server.address]
            inside = Inside(tmp_path, Network(Reach.LISTED, (Endpoint("good.test", server.port),)))
            assert await inside.connect(["good.test", server.port]) == [RESET]
            assert "is at an address that plugins may not reach (loopback)" in inside.log
            everywhere = Inside(tmp_path, Network(Reach.ANY))
            assert await everywhere.connect(["good.test", server.port], ["169.254.169.254", 80]) == [RESET, RESET]
            assert not server.seen

    run(main())


@requirement("host:network-explicit-private")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_granted_loopback_address_is_the_hosts_and_another_is_the_plugins_own(
    run: Run, tmp_path: Path, host: str
) -> None:
    async def main() -> None:
        async with serving() as other:
            server = Server()
            server.address = "127.0.0.1"
            await server.open()
            try:
                inside = Inside(tmp_path, listed(server, host))
                found = await inside.connect(["127.0.0.1", server.port], ["localhost", server.port], ["127.0.0.1", 5])
                assert found == ["hello", "hello", REFUSED]
                assert len(server.seen) == 2 and not other.seen
            finally:
                await server.close()

    run(main())


def test_tls_of_a_direct_connection_leads_to_the_site_whose_name_was_resolved(
    run: Run, tmp_path: Path, table: dict[str, list[str]]
) -> None:
    async def main() -> None:
        trust = server_context(tmp_path, ["good.test", "other.test"])
        trusted = certificate("good.test", "other.test")[1]
        async with serving(trust=trust) as server:
            table["good.test"] = [server.address]
            inside = Inside(tmp_path, listed(server, "good.test"))
            targets = ["good.test", server.port, "good.test"], ["good.test", server.port, "other.test"]
            assert await inside.connect(*targets, trusted=trusted) == ["hello", "SSLError"]
            assert "sends another name as its TLS server name" in inside.log

    run(main())


def test_a_server_that_speaks_first_is_heard(run: Run, tmp_path: Path, table: dict[str, list[str]]) -> None:
    async def greet(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 welcome\r\n")
        await reader.read()

    async def main() -> None:
        async with serving(script=greet) as server:
            table["mail.test"] = [server.address]
            script = (
                "import socket, sys; link = socket.create_connection(('mail.test', int(sys.argv[1])));"
                "print(link.recv(100).decode())"
            )
            inside = Inside(tmp_path, listed(server, "mail.test"))
            assert "220 welcome" in await inside.run("/usr/bin/python3", "-c", script, str(server.port))

    run(main())


RESOLVE = """
const dns = require("dns").promises;
const [name, port] = process.argv.slice(1);
const outside = new dns.Resolver(); outside.setServers(["192.0.2.53"]);
const caught = error => error.code;
(async () => console.log(JSON.stringify([
    await fetch(`http://${name}:${port}/`).then(answer => answer.text()).catch(caught),
    (await dns.resolve4(name)).length,
    (await outside.resolve4(name)).length,
    await dns.resolve6(name).catch(caught),
    await dns.resolve4("bad.test").catch(caught),
    await dns.reverse("198.18.0.2").catch(caught),
])))();
"""


@requirement("host:network-every-client")
def test_clients_with_a_resolver_of_their_own_reach_a_granted_name(
    run: Run, tmp_path: Path, table: dict[str, list[str]]
) -> None:
    """Node.js: `fetch` without proxy, its own resolver, and one that asks a name server on the internet."""

    async def main() -> None:
        async with serving() as server:
            table["good.test"] = [server.address]
            inside = Inside(tmp_path, listed(server, "good.test"))
            node = shutil.which("node") or "node"
            found = json.loads(await inside.run(node, "-e", RESOLVE, "good.test", str(server.port)))
            assert found == ["hello", 1, 1, "ENODATA", "ENOTFOUND", "ENOTFOUND"]

    run(main())


@pytest.mark.parametrize(
    ("error", "code"), [(socket.EAI_AGAIN, "ESERVFAIL"), (socket.EAI_NONAME, "ENOTFOUND"), (None, "ESERVFAIL")]
)
def test_a_name_that_cannot_be_resolved_now_is_another_error_than_one_that_does_not_exist(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int | None, code: str
) -> None:
    def fail(host: str, port: int) -> list[str]:
        raise socket.gaierror(error, "failed")

    async def never(self: object, host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(proxy_module, "RESOLVE_SECONDS", 0.1)
    if error is None:
        monkeypatch.setattr(proxy_module.Resolver, "__call__", never)
    else:
        monkeypatch.setattr(proxy_module, "_addresses", fail)

    async def main() -> None:
        inside = Inside(tmp_path, Network(Reach.LISTED, (Endpoint("slow.test", 80),)))
        script = "require('dns').promises.resolve4('slow.test').catch(error => console.log(error.code))"
        assert (await inside.run(shutil.which("node") or "node", "-e", script)).strip() == code

    run(main())


FLOOD = """
import socket, struct
asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asked.connect(("127.0.0.1", 53))
head = struct.pack(">HHHHHH", 1, 256, 1, 0, 0, 0)
for number in range(500):
    asked.send(head + b"\\4slow\\4test\\0\\0\\1\\0\\1")
    asked.send(b"junk" * number)
asked.send(struct.pack(">HHHHHH", 9, 256, 1, 0, 0, 0) + b"\\3bad\\4test\\0\\0\\34\\0\\1")
asked.settimeout(240)
print(asked.recv(100)[0:4].hex())
"""


def test_open_questions_are_bounded(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that do not resolve keep 32 questions open; more are dropped, and no question ends the name service."""
    now = most = 0

    async def never(self: object, host: str, port: int) -> list[str]:
        nonlocal now, most
        now += 1
        most = max(now, most)
        try:
            await asyncio.Event().wait()
        finally:
            now -= 1
        return []

    monkeypatch.setattr(proxy_module.Resolver, "__call__", never)
    monkeypatch.setattr(proxy_module, "RESOLVE_SECONDS", 0.5)

    async def main() -> None:
        inside = Inside(tmp_path, Network(Reach.LISTED, (Endpoint("slow.test", 80),)))
        found = await inside.run("/usr/bin/python3", "-I", "-c", FLOOD)
        assert found.strip() == "00018182"  # the first question, after its time: server failure
        assert most == proxy_module.MAX_QUERIES

    run(main())
