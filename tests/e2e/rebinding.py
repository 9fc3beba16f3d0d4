"""Names that change their addresses, asked for through the proxy, through `Fetcher`, and by a naive client.

Run in a network of its own (`tests.support.name_server`): has a granted server, and canaries at addresses that no
plugin may reach. Prints as JSON the outcome of each lookup, the visits of the canaries and the number of lookups.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from plugbay.host.services.network import Fetcher
from plugbay.model.errors import CallFailed
from plugbay.model.operations import FetchUrl
from plugbay.model.spec import Access
from plugbay.process.sandbox.egress.proxy import Resolver
from plugbay.process.sandbox.policy import Endpoint, Network, Reach
from tests.process.sandbox.egress.corpus import get
from tests.process.sandbox.egress.helpers import OK, way_out
from tests.support.name_server import A, NameServer, Records, add_address

NAME, PORT = "rebind.test", 8080
GOOD, OWN_PUBLIC, METADATA, PRIVATE = "127.9.9.9", "93.184.216.34", "169.254.169.254", "10.1.2.3"
CANARIES = ("127.0.0.1", "::1", METADATA, PRIVATE, OWN_PUBLIC)

LOOKUPS: dict[str, Records] = {
    "granted": [GOOD],
    "loopback": ["127.0.0.1"],
    "metadata": [METADATA],
    "private": [PRIVATE],
    "loopback of IPv6": ["::1"],
    "mapped": ["::ffff:127.0.0.1"],
    "compatible": ["::127.0.0.1"],
    "NAT64": ["64:ff9b::7f00:1"],
    "6to4": ["2002:7f00:1::"],
    "an own public address": [OWN_PUBLIC],
    "an alias of a private name": ["inside.test", "127.0.0.1"],
    "a granted and a private one": [GOOD, "127.0.0.1"],
    "a private and a granted one": ["127.0.0.1", GOOD],
    "a granted one and one of IPv6": [GOOD, "::1"],
    "many, the last one private": [*(f"127.9.9.{number}" for number in range(9, 24)), METADATA],
    "no address": [],
    "granted again": [GOOD],
    "an alias of a granted address": ["elsewhere.test", GOOD],
}
REACHED = {"granted", "granted again", "an alias of a granted address"}


OPEN = AsyncExitStack()
"""The proxy, until the program ends."""


class Servers:
    """A server at each address, with the number of its visits."""

    def __init__(self) -> None:
        self.visits: dict[str, int] = {}

    async def open(self, address: str) -> None:
        self.visits[address] = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.visits[address] += 1
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            writer.close()

        await asyncio.start_server(serve, address, PORT)


async def through_the_proxy() -> Callable[[], Awaitable[str]]:
    network = Network(Reach.LISTED, (Endpoint(NAME),), (f"{GOOD}:{PORT}",))
    way = await OPEN.enter_async_context(way_out(network, resolver=Resolver()))

    async def ask() -> str:
        return str(await way.status(get(f"http://{NAME}:{PORT}/")))

    return ask


async def through_the_fetcher() -> Callable[[], Awaitable[str]]:
    fetcher = Fetcher()
    access = (Access("network", NAME),)

    async def ask() -> str:
        try:
            answer = await fetcher.fetch(FetchUrl(f"http://{NAME}:{PORT}/"), access, (f"{GOOD}:{PORT}",))
        except CallFailed as failed:
            return failed.code
        return str(answer["status"])

    return ask


async def without_a_guard() -> Callable[[], Awaitable[str]]:
    """The positive control: connects to whatever the name leads to."""

    def connect() -> str:
        try:
            with socket.create_connection((NAME, PORT)) as link:
                link.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return link.recv(100).split()[1].decode()
        except OSError as error:
            return type(error).__name__

    async def ask() -> str:
        return await asyncio.to_thread(connect)

    return ask


WAYS = {"proxy": through_the_proxy, "fetcher": through_the_fetcher, "naive": without_a_guard}


async def main(way: str) -> dict[str, Any]:
    add_address("lo", "")
    for number, address in enumerate((METADATA, PRIVATE, OWN_PUBLIC)):
        add_address(f"lo:{number}", address)
    servers = Servers()
    for address in (GOOD, *CANARIES):
        await servers.open(address)
    names = NameServer({NAME: list(LOOKUPS.values())})
    await names.open()
    ask = await WAYS[way]()
    outcomes = {title: await ask() for title in LOOKUPS}
    return {
        "outcomes": outcomes,
        "canaries": {address: count for address, count in servers.visits.items() if address != GOOD and count},
        "granted": servers.visits[GOOD],
        "lookups": names.asked[NAME, A],
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
