"""`kill -9` of a gateway at any statement: nothing is lost, nothing is done twice, nothing is broken, no token lives.

One history has several lives, each killed at another point; the last one is left to finish. Then a checker reads the
database and what the plugins wrote down themselves. PLUGBAY_KILLS makes a history longer: it is the number of lives.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import func, select

from plugbay.server.domain.compactions import MAX_STARTS
from plugbay.server.domain.sessions import decode_block, first_broken_block
from plugbay.store import chains as chain_rows
from plugbay.store.database import Database, Tx
from plugbay.store.tables import (
    CHAINS,
    COMPACTIONS,
    DELIVERIES,
    DELIVERY_ATTEMPTS,
    EVENTS,
    HARNESS_EXECUTIONS,
    INVOCATIONS,
    RUNS,
    TOKENS,
    TOOL_EXECUTIONS,
)
from tests.e2e.gateway_lives import WAIT
from tests.process.helpers import ROOT
from tests.server.test_server import served
from tests.support.conversing import calls, says, stuck
from tests.support.databases import database_url
from tests.support.openai_server import OpenAiServer, Reply
from tests.support.packaged import Publisher
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.support.vai import export

pytestmark = exhaustive

__all__ = ["database_url"]

LIVES = int(os.environ.get("PLUGBAY_KILLS", "3"))

LATEST = 400
"""Statements and commits of a life that is left alone, or about as many: those who wait look again and again."""


class Model(OpenAiServer):
    """Asks for the tool, and answers once it has its result; of one thing it never stops to speak."""

    def __init__(self) -> None:
        super().__init__(says("42"))
        self.replies = _ByRequest(self)


class _ByRequest(list[Reply]):
    def __init__(self, server: OpenAiServer) -> None:
        super().__init__([calls(("t", {}), text="let me see"), says("it is 42"), stuck()])
        self._server = server

    def __getitem__(self, at: Any) -> Any:
        last = self._server.seen[-1].body["messages"][-1]
        if last["content"] == WAIT:
            return super().__getitem__(2)
        return super().__getitem__(1 if last["role"] == "tool" else 0)


async def lived(url: str, folder: Path, kills: list[int]) -> list[int]:
    """How each life ended that was to be killed there; one without a kill before them and one after."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    async with Model() as model:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.e2e.gateway_lives", url, str(folder), model.url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=env,
        )
        assert process.stdin is not None and process.stdout is not None
        ends = []
        for life, kill_at in enumerate([0, *kills, 0]):
            process.stdin.write(f"{life} {kill_at}\n".encode())
            ends.append(int(await process.stdout.readline()))
        process.stdin.close()
        await process.wait()
    return ends


# The checker.


async def rows_of(tx: Tx, *columns: Any) -> list[Any]:
    return list((await tx.execute(select(*columns))).all())


async def events_are_complete(tx: Tx, promised: list[tuple[str, str]], killed: int) -> None:
    """Whatever came to its end has one event, and what was promised is there."""
    runs = dict(await rows_of(tx, RUNS.c.id, RUNS.c.status))
    compactions = await compactions_of(tx, killed)
    harnesses = dict(await rows_of(tx, HARNESS_EXECUTIONS.c.id, HARNESS_EXECUTIONS.c.status))
    for kind, known in (("run", runs), ("cancelled", runs), ("compaction", compactions), ("harness", harnesses)):
        assert {id for each, id in promised if each == kind} <= set(known)
    assert set(runs.values()) <= {"completed", "failed", "cancelled"}
    called_off = {runs[id] for kind, id in promised if kind == "cancelled"}
    assert called_off == {"cancelled"}, "who was told that a run is called off finds it so"
    assert set(harnesses.values()) <= {"succeeded", "retryable_failure"}, "what was cut off can be resumed"
    caused = Counter(row.cause_id for row in await rows_of(tx, EVENTS.c.cause_id))
    assert caused == Counter([*runs, *(id for id, status in compactions.items() if status == "succeeded")])


async def compactions_of(tx: Tx, killed: int) -> dict[str, str]:
    """How each ended: a compactor changes nothing, so it is begun again, until as many gateways died over it."""
    rows = await rows_of(tx, COMPACTIONS.c.id, COMPACTIONS.c.status, COMPACTIONS.c.attempts)
    given_up = [row for row in rows if row.status == "failed"]
    assert all(row.attempts == MAX_STARTS <= killed for row in given_up)
    assert {row.status for row in rows} <= {"succeeded", "failed"}
    return {row.id: row.status for row in rows}


async def deliveries_are_complete(tx: Tx, told: list[tuple[str, int]], killed: int) -> None:
    """Each event was delivered, with one success, and nobody was told after that, however many gateways died."""
    events = [row.id for row in await rows_of(tx, EVENTS.c.id)]
    deliveries = await rows_of(tx, *(DELIVERIES.c[name] for name in ("id", "event_id", "status", "attempts")))
    assert Counter(row.event_id for row in deliveries) == Counter(events)
    attempts = await rows_of(
        tx, DELIVERY_ATTEMPTS.c.delivery_id, DELIVERY_ATTEMPTS.c.attempt, DELIVERY_ATTEMPTS.c.outcome
    )
    died = Counter(row.delivery_id for row in attempts if row.outcome == "interrupted")
    assert max(died.values(), default=0) <= killed, "each attempt that was interrupted was so with another gateway"
    assert {row.status for row in deliveries} == {"delivered"}
    succeeded = [(row.delivery_id, row.attempt) for row in attempts if row.outcome == "succeeded"]
    assert Counter(id for id, _ in succeeded) == Counter(row.id for row in deliveries)
    last = dict(succeeded)
    assert set(succeeded) <= set(told), "a success is one that the hook knows of"
    assert all(attempt <= last[id] for id, attempt in told)
    assert max(Counter(told).values()) == 1, "no attempt was made twice"


async def chains_are_whole(tx: Tx) -> None:
    """Every block is what it was, where it was, and every call has its result."""
    for chain in await rows_of(tx, CHAINS.c.id, CHAINS.c.status, CHAINS.c.digest, CHAINS.c.block_count):
        stored = await chain_rows.blocks(tx, chain.id)
        assert first_broken_block(stored) is None
        assert (chain.status, chain.block_count) == ("idle", len(stored))
        assert not stored or stored[-1].digest == chain.digest
        blocks = [decode_block(block) for block in stored]
        asked = [block["tool_call_id"] for block in blocks if block["kind"] == "tool_call"]
        assert asked == [block["tool_call_id"] for block in blocks if block["kind"] == "tool_result"]
    made = await rows_of(tx, CHAINS.c.created_by_compaction_id)
    compacted = await rows_of(tx, COMPACTIONS.c.id, COMPACTIONS.c.status)
    assert Counter(row[0] for row in made if row[0]) == Counter(id for id, status in compacted if status == "succeeded")


async def nothing_is_open(tx: Tx) -> None:
    """No token stands, no invocation runs, no tool is waited for."""
    assert await tx.scalar(select(func.count()).select_from(TOKENS)), "there were tokens"
    assert await tx.scalar(select(func.count()).select_from(TOKENS).where(TOKENS.c.revoked_at.is_(None))) == 0
    assert await tx.scalar(select(func.count()).select_from(INVOCATIONS).where(INVOCATIONS.c.status.is_(None))) == 0
    open_tools = select(func.count()).select_from(TOOL_EXECUTIONS).where(TOOL_EXECUTIONS.c.status.is_(None))
    assert await tx.scalar(open_tools) == 0


@requirement("vai:control-killed")
def test_a_gateway_that_is_killed_anywhere_loses_nothing_and_does_nothing_twice(
    database_url: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    kills = [chance.randrange(1, LATEST) for _ in range(LIVES)]

    async def story() -> None:
        ends = await lived(database_url, tmp_path, kills)
        assert (ends[0], ends[-1]) == (0, 0), f"seed {seed}"
        assert -9 in ends, "at least one was killed"
        promised = _pairs(tmp_path / "promised")
        told = [(id, int(attempt)) for kind, id, attempt in _words(tmp_path / "log") if kind == "hook"]
        database = await Database.open(database_url, migrate=False)
        try:
            async with database.reading() as tx:
                await events_are_complete(tx, promised, ends.count(-9))
                await deliveries_are_complete(tx, told, ends.count(-9))
                await chains_are_whole(tx)
                await nothing_is_open(tx)
        finally:
            await database.close()

    with asyncio.Runner() as runner:
        runner.run(story())


def _words(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


def _pairs(path: Path) -> list[tuple[str, str]]:
    return [(kind, id) for kind, id in _words(path)]


# A real server, killed while a hook is at work.

HOOK = """
def hook(body, m):
    with open({told!r}, "a") as file:
        file.write(f"{{body['attempt']}}\\n")
    while not os.path.exists({go!r}):
        time.sleep(0.005)
    respond(m, status="ack")
"""


def made(answer: httpx2.Response, status: int = 201) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    whole: dict[str, Any] = answer.json()
    return whole


def told_at_last(path: Path, times: int) -> list[str]:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        told = path.read_text().split() if path.exists() else []
        if len(told) >= times:
            return told
        time.sleep(0.02)
    raise AssertionError(f"the hook was not told {times} times")


def killed_while_it_tells(folder: Path) -> None:
    """A server has a hook told of a run, and is killed before the hook answers."""
    with served(folder, "--no-sandbox") as server, server.client() as client:
        publisher = Publisher(Path(server.facts["data"]), folder)
        packed = publisher.pack(HOOK.format(told=str(folder / "told"), go=str(folder / "go")), [export("h", "hook")])
        headers = {"content-type": "application/vnd.vai.plugin.package.v1.tar+gzip", **publisher.header(packed)}
        made(client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers))
        made(client.post("/v1/orgs", json={"id": "acme", "name": "Acme"}))
        draft = {"package_id": "acme/p", "package_version": "1.0.0", "export_id": "h", "scope": {"org_id": "acme"}}
        made(client.post("/v1/plugin-bindings", json=draft))
        session = made(client.post("/v1/sessions", json={"org_id": "acme"}))
        hello = [{"kind": "input", "content": [{"type": "text", "text": "hello"}]}]
        chain = made(client.post("/v1/chains", json={"session_id": session["id"], "blocks": hello}))
        made(client.post("/v1/runs", json={"chain_id": chain["id"], "model": "local/m", "tools": []}))
        assert told_at_last(folder / "told", 1) == ["1"]
        server.end(signal.SIGKILL)
        # As if seven attempts had failed before this one, and as if its lease were over by now.
        with closing(sqlite3.connect(Path(server.facts["data"]) / "plugbay.db")) as database:
            database.execute("UPDATE deliveries SET attempts = 8, lease_until = 1")
            database.execute("UPDATE delivery_attempts SET attempt = 8")
            database.commit()


def told_again(folder: Path) -> None:
    """The next server has it told again, although this was its last attempt."""
    (folder / "go").touch()
    with served(folder, "--no-sandbox") as server, server.client() as client:
        assert told_at_last(folder / "told", 2) == ["1", "9"]
        deadline = time.monotonic() + PATIENCE
        [delivery] = made(client.get("/v1/hook-deliveries"), 200)["items"]
        while delivery["status"] == "delivering" and time.monotonic() < deadline:
            [delivery] = made(client.get("/v1/hook-deliveries"), 200)["items"]
        assert (delivery["status"], delivery["attempts"], delivery["interruptions"]) == ("delivered", 9, 1)
        history = made(client.get(f"/v1/hook-deliveries/{delivery['id']}"), 200)["history"]
        assert [(each["attempt"], each["outcome"]) for each in history] == [(8, "interrupted"), (9, "succeeded")]
        assert server.end() == 0


@requirement("vai:control-delivery-interrupted")
def test_a_server_that_is_killed_uses_up_no_attempt_of_a_hook(tmp_path: Path) -> None:
    async def story() -> None:
        async with OpenAiServer(says("hello")) as model:
            provider = f'[llm.providers.local]\nkind = "openai"\nbase_url = "{model.url}"\nmax_retries = 0\n'
            (tmp_path / "plugbay.toml").write_text(provider)
            await asyncio.to_thread(killed_while_it_tells, tmp_path)
            await asyncio.to_thread(told_again, tmp_path)

    with asyncio.Runner() as runner:
        runner.run(asyncio.wait_for(story(), 2 * PATIENCE))
