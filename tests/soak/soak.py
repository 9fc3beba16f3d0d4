"""A real server under mixed load: calls, invocations, events, crashes, reloads, uploads, page views, live streams.

Asserts at the end that nothing in the server grew, that each acknowledged invocation has its record, and that no
process is left. The load is bounded: each kind of work pauses after each request.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from plugbay.cli.gateway.commands import ARCHIVE
from plugbay.process.warden_main import environ_of, marks
from plugbay.server.domain.settings import DATABASE_FILE
from plugbay.store.tables import INVOCATIONS
from tests.server.test_server import Served, served
from tests.soak.readings import MIB, Reading, find_growth
from tests.support.nexo import write_nexo_plugin
from tests.support.packaged import Publisher
from tests.support.patience import PATIENCE
from tests.support.plugins import write_plugin
from tests.support.usage import descriptor_count, private_memory, thread_count
from tests.support.vai import export

CRASHES = {"crashed", "unavailable", "quarantined"}
"""Failures of calls to the plugin that is killed."""

RATE_LIMITED = 429
"""A busy server's answer, which is no problem; the pauses keep the load below its limit most of the time."""

READ_SECONDS = 2.0


class Refused(Exception):
    """A request without success."""


@dataclass
class Soak:
    """One server and the load on it."""

    server: Served
    client: httpx2.AsyncClient
    publisher: Publisher
    counts: Counter[str] = field(default_factory=Counter)
    """Requests by kind and outcome."""
    acknowledged: list[str] = field(default_factory=list)
    """Invocations whose success was reported."""
    hosts: set[bytes] = field(default_factory=set)
    """Marks of the server's hosts, which all their processes carry."""
    problems: list[str] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    binding: str = ""

    async def prepare(self) -> None:
        """An org with a bound package."""
        await self._post("/v1/orgs", {"id": "acme", "name": "acme"})
        await self._upload("1.0.0")
        named = {"package_id": "acme/p", "package_version": "1.0.0", "export_id": "t"}
        self.binding = (await self._post("/v1/plugin-bindings", {**named, "scope": {"org_id": "acme"}}))["binding_id"]

    async def run(self, seconds: float) -> None:
        """All kinds of load at once, for this long."""
        until = time.monotonic() + seconds
        kinds: list[tuple[Callable[[int], Awaitable[None]], float]] = [
            (self.call_calm, 0.05),
            (self.call_resident, 0.04),
            (self.invoke, 0.05),
            (self.publish, 0.05),
            (self.crash, 3.0),
            (self.reload, 2.0),
            (self.exchange_packages, 4.0),
            (self.view_pages, 0.3),
            (self.watch, 1.0),
            (self.read, READ_SECONDS),
        ]
        async with asyncio.TaskGroup() as group:
            for work, pause in kinds:
                group.create_task(self._repeat(work, pause, until))

    async def _repeat(self, work: Callable[[int], Awaitable[None]], pause: float, until: float) -> None:
        number = 0
        while time.monotonic() < until:
            number += 1
            with suppress(Refused):  # it is counted already
                await work(number)
            await asyncio.sleep(pause)

    # The kinds of load.

    async def call_calm(self, number: int) -> None:
        await self._call("calm/t", {"n": number}, allowed=set())

    async def call_resident(self, number: int) -> None:
        await self._call("stays/stays_t", {"n": number}, allowed=CRASHES)

    async def invoke(self, number: int) -> None:
        answer = await self._post("/v1/plugin-invocations", {"binding_id": self.binding, "input": {"n": number}})
        invocation = answer["invocation"]
        self.counts[f"invocation {invocation['status']}"] += 1
        if invocation["status"] == "succeeded":
            self.acknowledged.append(invocation["invocation_id"])
        else:
            self.problems.append(f"invocation {number}: {invocation['status']} {answer.get('error')}")

    async def publish(self, number: int) -> None:
        await self._post("/api/v1/events", {"topic": "soak.tick", "payload": {"n": number}})
        self.counts["event published"] += 1

    async def crash(self, number: int) -> None:
        """Kill the resident plugin, and start it again where its restarts are used up."""
        plugin = (await self.client.get("/api/v1/plugins/stays")).json()
        if plugin.get("pid"):
            with suppress(ProcessLookupError):
                os.kill(plugin["pid"], signal.SIGKILL)
            self.counts["plugin killed"] += 1
        elif plugin.get("state") == "quarantined":
            await self._post("/api/v1/plugins/stays:start", {})
            self.counts["plugin started"] += 1

    async def reload(self, number: int) -> None:
        await self._post("/api/v1/plugins/calm:reload", {})
        self.counts["plugin reloaded"] += 1

    async def exchange_packages(self, number: int) -> None:
        """Upload a release and delete it."""
        added = await self._upload(f"2.0.{number}")
        response = await self.client.delete(f"/v1/plugin-packages/{added['id']}")
        self._check("package deleted", response)

    async def view_pages(self, number: int) -> None:
        if number % 50 == 1:
            link = await self._post("/api/v1/dashboard-links", {})
            self._check("login", await self.client.get(link["url"], follow_redirects=True))
        for path in ("/", "/plugins", "/plugins/stays", "/calls", "/events"):
            self._check("page viewed", await self.client.get(path))

    async def watch(self, number: int) -> None:
        """Open a live stream, read its beginning, close it."""
        async with self.client.stream("GET", "/api/v1/events", params={"topic": "soak.*"}) as stream:
            self.counts[f"stream {stream.status_code}"] += 1
            async for _ in stream.aiter_bytes():
                break

    async def read(self, number: int) -> None:
        pid = self.server.process.pid
        disk = sum(map(_size, os.walk(self.server.facts["data"])))
        records = self.counts.total()
        self.hosts |= {mark for child in _children(pid) if (mark := marks(environ_of(child))[0])}
        used = private_memory(pid), descriptor_count(pid), thread_count(pid)
        self.readings.append(Reading(time.monotonic(), *used, disk, records))

    # Requests.

    async def _call(self, name: str, given: Any, allowed: set[str]) -> None:
        answer = await self._post("/api/v1/calls", {"export": name, "input": given})
        failure = answer.get("failure")
        self.counts[f"call {failure['code'] if failure else 'succeeded'}"] += 1
        if failure and failure["code"] not in allowed:
            self.problems.append(f"{name}: {failure['code']}: {failure['message']}")

    async def _upload(self, version: str) -> Any:
        packed = await asyncio.to_thread(self.publisher.pack, BODY, [export("t")], version=version)
        headers = {"content-type": ARCHIVE, **self.publisher.header(packed)}
        response = await self.client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers)
        packed.path.unlink()
        return self._check("package uploaded", response)

    async def _post(self, path: str, body: Any) -> Any:
        response = await self.client.post(path, json=body)
        return self._check("", response)

    def _check(self, kind: str, response: httpx2.Response) -> Any:
        if kind:
            self.counts[kind] += 1
        if response.status_code == RATE_LIMITED:
            self.counts["rate limited"] += 1
            raise Refused
        if not response.is_success:
            self.problems.append(f"{response.request.method} {response.request.url.path}: {response.text[:300]}")
            raise Refused
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return response.json() if is_json else None


BODY = """
def tool(body, m):
    succeed(m, output(body["input"]))
"""


def soak(folder: Path, seconds: float, show: Callable[[str], None] = lambda line: None) -> list[str]:
    """Run the load for this long; return the problems."""
    write_plugin(folder / "plugins", "calm")
    write_nexo_plugin(folder / "plugins", "stays", tools=["t"])
    with served(folder, "plugins", "--grant-all") as server:
        done = asyncio.run(_soak(server, folder, seconds, show))
        if server.end() != 0:
            done.problems.append("the server did not end in order")
    everything = map(int, filter(str.isdigit, os.listdir("/proc")))
    left = sorted(pid for pid in everything if marks(environ_of(pid))[0] in done.hosts)
    if left or not done.hosts:
        done.problems.append(f"of {len(done.hosts)} hosts, processes are left: {left}")
    lost = _lost(Path(server.facts["data"]), done.acknowledged)
    if lost:
        done.problems.append(f"{len(lost)} of {len(done.acknowledged)} acknowledged invocations have no record")
    return [*find_growth(done.readings), *done.problems]


async def _soak(server: Served, folder: Path, seconds: float, show: Callable[[str], None]) -> Soak:
    headers = {"authorization": f"Bearer {server.facts['token']}"}
    limits = httpx2.Limits(max_connections=32)
    async with httpx2.AsyncClient(
        base_url=server.facts["url"], headers=headers, timeout=PATIENCE, limits=limits
    ) as client:
        load = Soak(server, client, Publisher(Path(server.facts["data"]), folder))
        await load.prepare()
        reporting = asyncio.ensure_future(_report(load, show))
        await load.run(seconds)
        reporting.cancel()
    for line in _summary(load):
        show(line)
    return load


async def _report(load: Soak, show: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(60)
        last = load.readings[-1]
        show(
            f"{last.memory / MIB:7.1f} MiB  {last.descriptors:4d} descriptors  {last.threads:3d} threads  "
            f"{last.disk / MIB:7.1f} MiB on disk  {load.counts.total():8d} requests"
        )


def _summary(load: Soak) -> list[str]:
    first, last = load.readings[len(load.readings) // 3], load.readings[-1]
    names = ("memory", "descriptors", "threads", "disk")
    changes = [f"{name} {getattr(first, name):,} -> {getattr(last, name):,}" for name in names]
    return [*(f"{number:8d} {name}" for name, number in sorted(load.counts.items())), "; ".join(changes)]


def _size(folder: tuple[str, list[str], list[str]]) -> int:
    """Bytes of the files of one step of `os.walk`, which passes over folders that are removed meanwhile."""
    size = 0
    for name in folder[2]:
        with suppress(FileNotFoundError):  # as uploads are
            size += os.lstat(os.path.join(folder[0], name)).st_size
    return size


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            found |= set(map(int, (task / "children").read_text().split()))
    return found


def _lost(data: Path, acknowledged: list[str]) -> set[str]:
    with closing(sqlite3.connect(f"file:{data / DATABASE_FILE}?mode=ro", uri=True)) as database:
        return set(acknowledged) - {id for (id,) in database.execute(f"SELECT id FROM {INVOCATIONS.name}")}
