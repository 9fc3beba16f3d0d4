"""Two gateways on one PostgreSQL, with and without NATS: an invocation and a run are followed at the other one."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.server.test_server import Served
from tests.support.clusters import Cluster, cluster, config, made
from tests.support.nodes import PASSWORD, Cell, cell
from tests.support.openai_server import OpenAiServer, delta, events, streamed
from tests.support.patience import PATIENCE, until_blocking
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.support.vai import export

STEPS = 20

TOOL = """
import os, time
def tool(body, m):
    while not os.path.exists({go!r}):
        time.sleep(0.01)
    for n in range({steps}):
        event(m, n=n)
    succeed(m, output({{"done": True}}))
"""


class Words:
    """The reply of a model, word by word, as soon as a file is there."""

    def __init__(self, go: Path) -> None:
        self._go = go

    def __iter__(self) -> Iterator[bytes]:
        until_blocking(self._go.exists)
        for number in range(STEPS):
            yield b"data: " + json.dumps(delta(content=f"{number} ")).encode() + b"\n\n"
        yield events(delta("stop"))


@contextmanager
def model(go: Path) -> Iterator[str]:
    """The URL of a model that waits for a file; its server has a thread of its own, since it blocks."""
    ready: list[str] = []
    stop = threading.Event()

    async def main() -> None:
        reply = streamed([])
        reply.pieces = Words(go)  # type: ignore[assignment]
        async with OpenAiServer(reply) as server:
            ready.append(server.url)
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        until_blocking(lambda: bool(ready))
        yield ready[0]
    finally:
        stop.set()
        thread.join(PATIENCE)


class Stream:
    """The events of a stream from its first one on, which has arrived."""

    def __init__(self, client: httpx2.Client, path: str) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._thread = threading.Thread(target=self._read, args=(client, path))
        self._thread.start()
        until_blocking(lambda: bool(self.seen))

    def _read(self, client: httpx2.Client, path: str) -> None:
        with client.stream("GET", path) as stream:
            name = ""
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    self.seen.append((name, json.loads(line[6:])))

    def all(self) -> list[tuple[str, dict[str, Any]]]:
        """All of them, once the stream has ended."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), self.seen
        return self.seen


class Pair:
    """Two gateways, and a client of each."""

    def __init__(self, gateways: Cluster, go: Path, started: tuple[Served, Served], stack: ExitStack) -> None:
        self.gateways, self.go = gateways, go
        self.a, self.b = (stack.enter_context(each.client()) for each in started)
        body = TOOL.format(go=str(go), steps=STEPS)
        (self.binding,) = gateways.bring(self.a, body, [export(execution_class="isolated")])

    def invocation(self) -> str:
        self.go.unlink(missing_ok=True)
        body = {"binding_id": self.binding, "input": {"city": "Lima"}, "wait": False}
        answer = made(self.a.post("/v1/plugin-invocations", json=body), 202)
        found: str = answer["invocation"]["invocation_id"]
        return found

    def is_served(self) -> bool:
        """Whether the gateway has heard of the node."""
        self.go.touch()
        body = {"binding_id": self.binding, "input": {"city": "Lima"}}
        return bool(made(self.a.post("/v1/plugin-invocations", json=body), 200)["status"] == "succeeded")

    def run(self) -> str:
        self.go.unlink(missing_ok=True)
        session = made(self.a.post("/v1/sessions", json={"org_id": "acme"}))
        block = {"kind": "input", "content": [{"type": "text", "text": "hello"}]}
        body = {"session_id": session["id"], "blocks": [block], "model": "local/any", "tools": []}
        found: str = made(self.a.post("/v1/runs", json=body))["id"]
        return found

    def follow(self, path: str) -> Stream:
        """Follow at the other gateway; the work goes on once the stream has begun."""
        stream = Stream(self.b, path)
        self.go.touch()
        return stream


@contextmanager
def pair(folder: Path, more: str) -> Iterator[Pair]:
    go = folder / "go"
    with model(go) as url, ExitStack() as stack:
        llm = f'[llm.providers.local]\nkind = "openai"\nbase_url = "{url}"\n'
        gateways = stack.enter_context(cluster(folder, config(more + llm)))
        started = tuple(stack.enter_context(gateways.start()) for _ in range(2))
        yield Pair(gateways, go, (started[0], started[1]), stack)


@contextmanager
def pair_with_nats(folder: Path) -> Iterator[tuple[Pair, Cell]]:
    """Their packages run on a node."""
    with cell(folder / "cell") as made_cell, ExitStack() as stack:
        os.environ["CELL_PASSWORD"] = PASSWORD
        stack.callback(lambda: os.environ.pop("CELL_PASSWORD"))
        lines = f'nats = ["{made_cell.nats.url}"]\nuser = "gateway"\npassword_env = "CELL_PASSWORD"\n'
        two = stack.enter_context(pair(folder, f'{lines}registry = "oci://{made_cell.registry}/plugbay"\n'))
        trust = str(folder / "mounted" / "trust.json")
        stack.enter_context(made_cell.process("n1", "--trust", trust))
        until_blocking(two.is_served)
        yield two, made_cell


def steps_of_invocation(stream: Stream) -> list[Any]:
    seen = stream.all()
    assert (seen[0][0], seen[-1][0]) == ("invocation", "ended")
    assert seen[-1][1]["invocation"]["status"] == "succeeded", seen[-1]
    return [each["data"] if name == "event" else name for name, each in seen[1:-1] if name != "started"]


def words_of_run(stream: Stream) -> list[Any]:
    seen = stream.all()
    assert (seen[0][0], seen[-1][0]) == ("run", "run.completed")
    assert seen[-1][1]["blocks"][0]["content"][0]["text"].split() == [str(number) for number in range(STEPS)]
    return [each.get("delta", name) for name, each in seen[1:-1] if name != "run.started"]


@exhaustive
@requirement("host:live-streams")
def test_what_one_gateway_runs_is_followed_at_another_event_by_event(tmp_path: Path) -> None:
    with pair_with_nats(tmp_path) as (two, _):
        steps = steps_of_invocation(two.follow(f"/v1/plugin-invocations/{two.invocation()}/events"))
        assert [step["n"] for step in steps] == list(range(STEPS))
        words = words_of_run(two.follow(f"/v1/runs/{two.run()}/events"))
        assert words == [f"{number} " for number in range(STEPS)]


@exhaustive
@requirement("host:live-streams")
def test_without_nats_another_gateway_shows_start_and_end_only(tmp_path: Path) -> None:
    with pair(tmp_path, "") as two:
        assert steps_of_invocation(two.follow(f"/v1/plugin-invocations/{two.invocation()}/events")) == []
        assert words_of_run(two.follow(f"/v1/runs/{two.run()}/events")) == []


@exhaustive
@requirement("host:live-streams")
def test_a_watcher_is_told_of_a_gap_after_nats_was_away(tmp_path: Path) -> None:
    with pair_with_nats(tmp_path) as (two, made_cell):
        id = two.run()
        stream = Stream(two.b, f"/v1/runs/{id}/events")
        made_cell.nats.kill()
        until_blocking(lambda: ("lost", {"type": "lost", "events": None}) in stream.seen)
        two.go.touch()
        assert words_of_run(stream) == ["lost", "lost"], "its end comes from the database, and not with all before it"
