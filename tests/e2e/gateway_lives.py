"""Gateways that are killed at a certain statement: each life takes up what the one before it left, and adds its own.

Reads `LIFE KILL_AT` on stdin and becomes a gateway that kills itself with SIGKILL when it is about to send its
KILL_AT-th statement or commit to the database (0: never); prints how it ended, 0 or -9. Lives are forked from one
process, because starting Python each time would be most of the work. Each life is a minute later than the one before,
so that what it finds held by the dead is lost by its lease.

Run as `python -m tests.e2e.gateway_lives DATABASE_URL FOLDER MODEL_URL`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy import event

from plugbay.host.config import config
from plugbay.host.host import Host
from plugbay.server.domain.compactions import CompactionRequest
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.harnesses import HarnessRequest
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.runs import NewRun
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store import compactions as compaction_rows
from plugbay.store import deliveries as delivery_rows
from plugbay.store import harnesses as harness_rows
from plugbay.store import runs as run_rows
from plugbay.store.database import Database
from plugbay.store.harnesses import HarnessExecution
from plugbay.store.pages import Page
from plugbay.store.runs import Run
from plugbay.store.sqlite import Connection
from tests.support.conversing import settled
from tests.support.gateways import make_org
from tests.support.packaged import Publisher, bind
from tests.support.patience import PATIENCE
from tests.support.vai import export

EVENTS = ["run.completed", "run.failed", "run.cancelled", "chain.compacted"]
REACH = {"network": "egress", "filesystem": "none", "gateway_api_scopes": ["runs:read"], "secret_slots": []}
CALLER = Principal("key", "org_1", "proj_1", role="admin", key_id="key_1")

BODY = """
def note(*words):
    with open({log!r}, "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

def tool(body, m):
    note("tool", body["tool_execution_id"], bool(body["context"]["gateway"]["delegation_token"]))
    succeed(m, output({{"n": 42}}))

def hook(body, m):
    note("hook", body["delivery_id"], body["attempt"])
    respond(m, status="ack")

def compactor(body, m):
    text = [{{"type": "text", "text": "in short"}}]
    succeed(m, {{"seed_blocks": [{{"kind": "input", "content": text}}], "summary": {{"text": "short"}}}})

def harness(body, m):
    note("harness", body["target"]["execution_id"], bool(body["context"]["gateway"]["delegation_token"]))
    checkpoint = {{"kind": "checkpoint", "data": {{"step": 1}}}}
    send(type="event", request_id=m["id"], event={{"type": "checkpoint", "checkpoint": checkpoint}})
    succeed(m, {{"checkpoint": checkpoint, "summary": {{"text": "done"}}, "artifacts": []}})
"""

WAIT = "wait for me"
"""What the model never comes to an end with."""

MINUTE = 60.0


class LaterClock:
    """As many minutes ahead as this is the how-manieth life."""

    def __init__(self, life: int) -> None:
        self._ahead = life * MINUTE

    def now(self) -> float:
        return time.time() + self._ahead

    def monotonic(self) -> float:
        return time.monotonic()


def doomed(database: Database, kill_at: int) -> None:
    """See to it that this process ends just before that statement or commit."""
    done = 0

    def count(*_: Any) -> None:
        nonlocal done
        done += 1
        if done == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    engine = database._engine.sync_engine
    event.listen(engine, "before_cursor_execute", count)
    event.listen(engine, "commit", count)
    for name in ("_small", "commit"):  # what SQLite is told without SQLAlchemy
        setattr(Connection, name, _counted(getattr(Connection, name), count))


def _counted(method: Callable[..., Awaitable[Any]], count: Callable[[], None]) -> Callable[..., Awaitable[Any]]:
    async def counted(*arguments: Any) -> Any:
        count()
        return await method(*arguments)

    return counted


async def life(url: str, folder: Path, model: str, number: int, kill_at: int) -> None:
    """One gateway, from its start to its end, whatever that is."""
    toml = f'[llm.providers.local]\nkind = "openai"\nbase_url = "{model}"\nmax_retries = 0\n'
    database = await Database.open(url, migrate=False)
    if kill_at:
        doomed(database, kill_at)
    (folder / "data").mkdir(exist_ok=True)
    settings = GatewaySettings(folder / "data", unconfined=True)
    async with Host([], config.parse(toml), state_dir=folder / "host") as host:
        gateway = Gateway(database, host, settings, LaterClock(number))
        await gateway.start()
        if number == 0:
            await prepare(gateway, folder)
        else:
            await converse(gateway, folder, number)
        await until_all_is_told(gateway)
        await gateway.stop()
    await database.close()


async def prepare(gateway: Gateway, folder: Path) -> None:
    """A package of each kind that takes part, and its bindings."""
    await make_org(gateway)
    exports = [
        export("t", permissions=REACH, own={"effect_class": "read_only"}),
        export("h", "hook", permissions=REACH, own={"subscribes_to": EVENTS}),
        export("c", "compactor"),
        export("x", "harness", permissions=REACH),
    ]
    publisher = Publisher(folder / "data", folder)
    package = await publisher.bring(gateway, BODY.format(log=str(folder / "log")), exports)
    for name in ("t", "h", "c", "x"):
        await bind(gateway, package, name)


async def converse(gateway: Gateway, folder: Path, number: int) -> None:
    """A run that is called off, one with a tool, a harness and a compaction.

    What is promised to a client is written down once it is promised.
    """
    session = await gateway.sessions.create(CALLER)
    chain = await gateway.chains.create(CALLER, session.id, defaults={"model": "m"})
    unwanted = await begun(gateway, folder, chain.id, WAIT)
    await gateway.runs.cancel(CALLER, unwanted.id)
    promise(folder, "cancelled", unwanted.id)
    await settled(lambda: gateway.runs.get(CALLER, unwanted.id), lambda now: now.completed_at is not None)
    run = await begun(gateway, folder, chain.id, f"life {number}")
    await settled(lambda: gateway.runs.get(CALLER, run.id), lambda now: now.completed_at is not None)
    await harnessed(gateway, folder, chain.id)
    squeeze = CompactionRequest(chain.id, {"max_input_tokens": 1000}, {"retain_system": True})
    compaction = await gateway.compactions.create(CALLER, squeeze)
    promise(folder, "compaction", compaction.id)
    await settled(lambda: gateway.compactions.get(CALLER, compaction.id), lambda now: now.completed_at is not None)


async def begun(gateway: Gateway, folder: Path, chain_id: str, text: str) -> Run:
    hello = [{"kind": "input", "content": [{"type": "text", "text": text}]}]
    run = await gateway.runs.create(CALLER, chain_id, NewRun(blocks=hello))
    promise(folder, "run", run.id)
    return run


async def harnessed(gateway: Gateway, folder: Path, chain_id: str) -> None:
    """A harness from its start to its end."""
    [binding] = (await gateway.bindings.page(CALLER, Page(), export_id="x")).items
    errand = HarnessRequest(binding.id, {"type": "user_request", "input": []}, {"max_child_runs": 1}, chain_id=chain_id)
    execution = await gateway.harnesses.create(CALLER, errand)
    promise(folder, "harness", execution.id)

    async def look() -> HarnessExecution:
        return (await gateway.harnesses.get(CALLER, execution.id))[0]

    await settled(look, lambda now: now.completed_at is not None)


def promise(folder: Path, kind: str, id: str) -> None:
    with open(folder / "promised", "a") as file:
        file.write(f"{kind} {id}\n")


async def until_all_is_told(gateway: Gateway) -> None:
    """Until nothing is at work and nothing waits."""

    async def left() -> int:
        async with gateway.database.reading() as tx:
            counts = await delivery_rows.counts(tx)
            busy = [
                *await run_rows.unfinished(tx),
                *await compaction_rows.unfinished(tx),
                *await harness_rows.unfinished(tx),
            ]
        return len(busy) + counts.get("pending", 0) + counts.get("delivering", 0)

    await settled(left, lambda number: number == 0, 40)


def main() -> None:
    url, folder, model = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    for line in sys.stdin:
        number, kill_at = map(int, line.split())
        child = os.fork()
        if child == 0:
            asyncio.run(asyncio.wait_for(life(url, folder, model, number, kill_at), PATIENCE))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
