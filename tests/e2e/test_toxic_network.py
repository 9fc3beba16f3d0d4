"""A bad network between plugbay and PostgreSQL, NATS, a registry or a model: each toxic has one expected outcome.

A slow network delays and changes nothing. A broken one is reported in bounded time with the code of the failure, no
acknowledged record is lost, and when it is sound again the work goes on without a restart. Each case also runs without
a toxic (`""`), as the control.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from plugbay.brokers import nats as broker
from plugbay.host.config.config import Config
from plugbay.host.config.sections import BrokerConfig
from plugbay.host.events.bus import Stream
from plugbay.host.host import Host
from plugbay.host.services.llm.chat import ChatRequest
from plugbay.host.services.llm.openai import OpenAiProvider
from plugbay.model.errors import CallFailed, Code
from plugbay.packages import connection as registry_connection
from plugbay.packages import registry as artifacts
from plugbay.packages.connection import PUSH, Connection
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.reference import parse
from plugbay.packages.rules import Limits
from plugbay.store import database as store
from tests.packages.builders import pack
from tests.packages.registry_server import serve
from tests.support.databases import postgresql
from tests.support.gateways import client_of, gateway_at
from tests.support.loops import Run, run_on
from tests.support.nats_server import nats_server
from tests.support.openai_server import OpenAiServer, completion, delta, events, streamed
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.support.toxic_proxy import ToxicProxy

pytestmark = exhaustive

SLOW = ("", "latency", "slicer")
"""Nothing is lost: the control, and two toxics that only delay."""

BROKEN = ("reset", "cut", "drop", "half_open", "down")

PATIENCE = 1.0
"""Seconds after which a silent server counts as lost, in these tests."""

BOUND = 12.0
"""Seconds in which every failure is reported; several waits of `PATIENCE` on a busy machine."""


@pytest.fixture
def run() -> Run:
    return run_on("uvloop")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


# PostgreSQL.


@pytest.fixture
def postgres() -> Iterator[tuple[ToxicProxy, str]]:
    server = postgresql()
    name = server.create()
    with ToxicProxy(server.folder / ".s.PGSQL.5432") as proxy:
        yield proxy, f"postgresql+asyncpg://plugbay@{proxy.address}/{name}?ssl=disable"
    server.drop(name)


async def create(client: httpx2.AsyncClient, id: str) -> httpx2.Response:
    return await client.post("/v1/orgs", json={"name": "An org", "id": id})


async def listed(client: httpx2.AsyncClient) -> set[str]:
    answer = await client.get("/v1/orgs", params={"limit": 200})
    assert answer.status_code == 200, answer.text
    return {org["id"] for org in answer.json()["items"]}


@requirement("host:toxic-network")
@pytest.mark.parametrize("toxic", (*SLOW, *BROKEN))
def test_the_database_is_reached_through_a_bad_network(
    toxic: str, postgres: tuple[ToxicProxy, str], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, url = postgres
    monkeypatch.setattr(store, "PATIENCE", PATIENCE)
    monkeypatch.setattr(store, "SILENCE", PATIENCE)

    async def main() -> None:
        async with gateway_at(url, tmp_path) as gateway, client_of(gateway) as client:
            acknowledged = {"org_0"}
            assert (await create(client, "org_0")).status_code == 201
            if toxic:
                proxy.inject(toxic)
            for number in range(1, 4):
                began = time.monotonic()
                answer = await create(client, f"org_{number}")
                assert time.monotonic() - began < BOUND
                if answer.status_code == 201:
                    acknowledged.add(f"org_{number}")
                    continue
                error = answer.json()["error"]
                assert (answer.status_code, error["code"], error["retryable"]) == (503, "store.unavailable", True)
                assert int(answer.headers["retry-after"]) >= 1
            assert len(acknowledged) == (4 if toxic in SLOW else 1)
            proxy.heal()
            await until_available(client)
            found = await listed(client)
            assert acknowledged <= found <= {f"org_{number}" for number in range(4)}
            for number in range(1, 4):  # a client repeats what was not acknowledged
                expected = {201} if f"org_{number}" not in found else {409}
                assert (await create(client, f"org_{number}")).status_code in expected
            assert len(await listed(client)) == 4
            checked = (await client.get("/v1/audit/verification")).json()
            assert checked["valid"] and len(checked["chains"]) == 4

    run(main)


async def until_available(client: httpx2.AsyncClient) -> None:
    """The pool finds out that its connections are lost."""
    for _ in range(100):
        if (await client.get("/v1/orgs")).status_code == 200:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError


# NATS.


def is_joined(host: Host) -> bool:
    return host.broker is not None and host.broker.joined


async def lose(host: Host, here: Stream) -> None:
    """Wait until the host knows that its connection is lost; its own subscribers get all events meanwhile."""
    for number in range(100):  # some toxics need traffic
        host.publish("shared.meanwhile", number)
        assert (await anext(here)).payload == number
        if not is_joined(host):
            return
        await asyncio.sleep(0.01)
    await until(lambda: not is_joined(host))


@requirement("host:toxic-network")
@pytest.mark.parametrize("toxic", (*SLOW, *BROKEN))
def test_hosts_are_joined_through_a_bad_network(
    toxic: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "HEARTBEAT", PATIENCE / 4)
    monkeypatch.setattr(broker, "CONNECT_SECONDS", PATIENCE)

    async def main(proxy: ToxicProxy, direct: str) -> None:
        configs = [
            Config(broker=BrokerConfig(url=url, topics=["shared.>"])) for url in (f"nats://{proxy.address}", direct)
        ]
        one, two = (Host([], config) for config in configs)
        async with one, two, two.subscribe("shared.>") as there, one.subscribe("shared.>") as here:
            await until(lambda: is_joined(one) and is_joined(two))
            if toxic:
                proxy.inject(toxic)
            if toxic in BROKEN:
                await lose(one, here)
                proxy.heal()
                await until(lambda: is_joined(one))
            one.publish("shared.last", 7)
            async with asyncio.timeout(BOUND):
                last = await anext(event async for event in there if event.topic == "shared.last")
            assert last.payload == 7

    with nats_server(tmp_path) as server, ToxicProxy(("127.0.0.1", server.port)) as proxy:
        run(lambda: main(proxy, server.url))


# A registry.


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("registry")) as address:
        yield address


@requirement("host:toxic-network")
@pytest.mark.parametrize("toxic", (*SLOW, *BROKEN))
def test_a_package_is_pulled_through_a_bad_network(
    toxic: str, registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_connection, "STALL_SECONDS", PATIENCE)
    monkeypatch.setattr(registry_connection, "CONNECT_SECONDS", PATIENCE)
    package = pack(tmp_path)
    host, port = registry.rsplit(":", 1)
    with ToxicProxy((host, int(port))) as proxy:
        place = parse(f"{proxy.address}/acme/toxic-{toxic.replace('_', '-') or 'none'}:1.0.0")
        with Connection(place, plain_http=True, actions=PUSH) as connection:
            artifacts.push(connection, place, package, {})
        if toxic:
            proxy.inject(toxic)
        began = time.monotonic()
        if toxic in SLOW:
            assert pull(place, tmp_path / "out") == package.read_bytes()
            return
        with pytest.raises(PackageRefused) as refused:
            pull(place, tmp_path / "out")
        assert refused.value.reason == Reason.REGISTRY_FAILED
        assert time.monotonic() - began < BOUND
        assert list((tmp_path / "out").glob("*")) == [], "no part of a package is left"
        proxy.heal()
        assert pull(place, tmp_path / "out") == package.read_bytes()


def pull(place: Any, out: Path) -> bytes:
    out.mkdir(exist_ok=True)
    with Connection(place, plain_http=True) as connection:
        return artifacts.pull(connection, place, out, Limits()).archive.read_bytes()


# A model.

TEXT = "Hello " + "x" * 200
HELLO = events(delta(role="assistant", content=TEXT), delta(content=" there"), delta("stop"))
REQUEST = ChatRequest("m", [{"role": "user", "content": "hi"}])

FAILURES = {"drop": Code.TIMEOUT, "half_open": Code.TIMEOUT}
"""The codes of toxics that leave the connection open; the others are `UNAVAILABLE`."""


@requirement("host:toxic-network")
@pytest.mark.parametrize("toxic", (*SLOW, *BROKEN))
@pytest.mark.parametrize("way", ["chat", "stream"])
def test_a_model_is_asked_through_a_bad_network(toxic: str, way: str, run: Run) -> None:
    async def ask(model: OpenAiProvider) -> str:
        if way == "chat":
            return str((await model.chat(REQUEST)).text)
        text = ""
        async with aclosing(model.stream(REQUEST)) as chunks:
            async for chunk in chunks:
                text += chunk["delta"] if chunk["type"] == "text_delta" else ""
        return text

    async def main(proxy: ToxicProxy) -> None:
        waits: dict[str, Any] = {"timeout": PATIENCE, "stream_timeout": 2 * PATIENCE, "idle_timeout": PATIENCE}
        model = OpenAiProvider("toxic", f"http://{proxy.address}/v1", max_retries=1, **waits)
        assert (await ask(model)).startswith("Hello")
        if toxic:
            proxy.inject(toxic)
        began = time.monotonic()
        if toxic in SLOW:
            assert (await ask(model)).startswith("Hello")
        else:
            with pytest.raises(CallFailed) as failed:
                await ask(model)
            assert failed.value.failure.code == FAILURES.get(toxic, Code.UNAVAILABLE)
            assert time.monotonic() - began < BOUND
            proxy.heal()
            assert (await ask(model)).startswith("Hello"), "the next request has a new connection"
        await model.close()

    async def serve_model() -> None:
        async with OpenAiServer(completion(TEXT) if way == "chat" else streamed([HELLO])) as server:
            with ToxicProxy(("127.0.0.1", urlsplit(server.url).port or 0)) as proxy:
                await main(proxy)

    run(serve_model)
