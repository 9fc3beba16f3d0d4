"""REST clients that invoke isolated and worker tools of one server as fast as it lets them.

Each client has its own key and one connection. After a 429 it waits as long as `Retry-After` says. Any other answer
without success is a problem.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from plugbay.cli.gateway.commands import ARCHIVE
from tests.load.figures import Figures, percentile
from tests.server.test_server import Served, served
from tests.support.packaged import Publisher
from tests.support.patience import PATIENCE
from tests.support.vai import export

CLASSES = ("isolated", "worker")

BODY = """
def tool(body, m):
    succeed(m, output(body["input"]))
"""


@dataclass
class Answers:
    """The answers of one execution class."""

    succeeded: list[float] = field(default_factory=list)
    """Seconds of each invocation that succeeded."""
    refused: list[float] = field(default_factory=list)
    """Seconds until each 429."""
    problems: list[str] = field(default_factory=list)


class Client:
    """One connection; HTTP/1.1 by hand, because a full client would take the processors that the server needs."""

    def __init__(self, url: str, key: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._address = host, int(port)
        self._head = (
            f"POST /v1/plugin-invocations HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        writer.write(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def prepare(server: Served, folder: Path, clients: int, concurrency: int) -> tuple[dict[str, str], list[str]]:
    """A binding for each execution class, and a key for each client."""
    headers = {"authorization": f"Bearer {server.facts['token']}"}
    async with httpx2.AsyncClient(base_url=server.facts["url"], headers=headers, timeout=PATIENCE) as client:

        async def post(path: str, body: Any) -> Any:
            return (await client.post(path, json=body)).raise_for_status().json()

        await post("/v1/orgs", {"id": "acme", "name": "acme"})
        publisher = Publisher(Path(server.facts["data"]), folder)
        packed = publisher.pack(
            BODY, [export(name, execution_class=name, max_concurrency=concurrency) for name in CLASSES]
        )
        sent = {"content-type": ARCHIVE, **publisher.header(packed)}
        (await client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=sent)).raise_for_status()
        named = {"package_id": "acme/p", "package_version": "1.0.0", "scope": {"org_id": "acme"}}
        bindings = {
            name: (await post("/v1/plugin-bindings", {**named, "export_id": name}))["binding_id"] for name in CLASSES
        }
        keys = []
        for number in range(clients):
            key = {"org_id": "acme", "name": f"client {number}", "role": "operator"}
            keys.append((await post("/v1/api-keys", key))["key"])
            await asyncio.sleep(0.02)  # below the rate limit of the operator
    return bindings, keys


async def ask(client: Client, binding: str, until: float, answers: Answers) -> None:
    """Invoke until the time is over."""
    body = json.dumps({"binding_id": binding, "input": {"text": "x" * 100}}).encode()
    try:
        for _ in itertools.takewhile(lambda _: time.monotonic() < until, itertools.count()):
            await asyncio.sleep(await _ask_once(client, body, answers))
    except (OSError, EOFError) as error:
        answers.problems.append(repr(error))
    finally:
        client.close()


async def _ask_once(client: Client, body: bytes, answers: Answers) -> float:
    """Invoke once; returns the seconds to wait before the next request."""
    began = time.monotonic()
    status, headers, answer = await client.post(body)
    took = time.monotonic() - began
    if status == 429:
        answers.refused.append(took)
        if "retry-after" not in headers:
            answers.problems.append("429 without Retry-After")
        return float(headers.get("retry-after", 1))
    if status == 200 and json.loads(answer)["status"] == "succeeded":
        answers.succeeded.append(took)
    else:
        answers.problems.append(f"{status}: {answer[:300].decode(errors='replace')}")
    return 0.0


def rest(folder: Path, *, clients: int = 50, seconds: float = 60.0, concurrency: int = 1) -> Figures:
    """The load for this long on a server that is started for it, and ended in order afterwards."""
    (folder / "plugbay.toml").write_text("[serve]\nqueue_seconds = 1\n")
    with served(folder) as server:
        answers, cpu = asyncio.run(_load(server, folder, clients, seconds, concurrency))
        ended = server.end()
    problems = [problem for each in answers.values() for problem in each.problems]
    if ended != 0:
        problems.append("the server did not end in order")
    rows = {name: _row(each, seconds) for name, each in answers.items()}
    rows["server"] = {"cpu_s": cpu}
    return Figures(f"{clients} REST clients, {seconds:g} s, max_concurrency {concurrency}", rows, problems)


async def _load(
    server: Served, folder: Path, clients: int, seconds: float, concurrency: int
) -> tuple[dict[str, Answers], float]:
    bindings, keys = await prepare(server, folder, clients, concurrency)
    answers = {name: Answers() for name in CLASSES}
    before, until = _cpu_seconds(server.process.pid), time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number, key in enumerate(keys):
            name = CLASSES[number % len(CLASSES)]
            group.create_task(ask(Client(server.facts["url"], key), bindings[name], until, answers[name]))
    return answers, _cpu_seconds(server.process.pid) - before


def _row(answers: Answers, seconds: float) -> dict[str, float]:
    times, refused = sorted(answers.succeeded), sorted(answers.refused)
    return {
        "succeeded": len(times),
        "per_s": len(times) / seconds,
        "p50_s": percentile(times, 0.5),
        "p99_s": percentile(times, 0.99),
        "max_s": percentile(times, 1.0),
        "refused": len(refused),
        "refused_max_s": percentile(refused, 1.0),
    }


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
