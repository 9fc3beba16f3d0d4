"""Conversations for tests: on a real database, with a model behind real HTTP, and plugins that a test scripts.

async with conversing(sqlite_url, says("hello")) as talk:
    run = await talk.answered("hi")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from plugbay.host.config import config
from plugbay.host.host import Host
from plugbay.host.ports import CallRecord, InvocationRecord
from plugbay.host.request import CallRequest, CallResult
from plugbay.host.services.llm.openai import OpenAiProvider
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.model.errors import Failure
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.background import Tasks
from plugbay.server.domain.clock import Clock, SystemClock
from plugbay.server.domain.credentials import Credentials
from plugbay.server.domain.errors import GatewayError, conflict
from plugbay.server.domain.gateway import Conversations, Gateway
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.runs import NewRun
from plugbay.server.domain.sessions import text_block
from plugbay.server.domain.settings import GatewaySettings
from plugbay.server.domain.workers import BoundExport
from plugbay.store.chains import Chain
from plugbay.store.database import Database
from plugbay.store.runs import Run
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.gateways import gateway_at
from tests.support.openai_server import OpenAiServer, Reply, delta, events, streamed
from tests.support.patience import PATIENCE, pauses

CALLER = Principal("key", "org_1", "proj_1", role="admin", key_id="key_1")
STRANGER = Principal("key", "org_2", None, role="admin", key_id="key_2")

T = TypeVar("T")
Does = Callable[[CallRequest], Awaitable[Any]]

_CODEC = MsgspecCodec()
USAGE = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}


def says(text: str, finish: str = "stop") -> Reply:
    """A model that answers with a text."""
    return streamed([events(delta(content=text), delta(finish), USAGE)])


def calls(*named: tuple[str, dict[str, Any]], text: str = "") -> Reply:
    """A model that asks for tools."""
    asked = [
        {"index": at, "id": f"c{at}", "function": {"name": name, "arguments": msgspec.json.encode(given).decode()}}
        for at, (name, given) in enumerate(named)
    ]
    return streamed([events(delta(content=text), delta(tool_calls=asked), delta("tool_calls"), USAGE)])


def stuck() -> Reply:
    """A model that begins and never comes to an end."""
    return streamed([b'data: {"choices":[{"index":0,"delta":{"content":"well"}}]}\n\n'], "held")


def result_of(text: str, **more: Any) -> dict[str, Any]:
    """What a tool gives back."""
    return {"content": [{"type": "text", "text": text}], "structured_output": None, "is_error": False, **more}


def delegated(scopes: Sequence[str], **claims: Any) -> Principal:
    """A plugin with a token."""
    known = {"org_id": "org_1", "project_id": "proj_1", "invocation_id": "inv_1", "execution_id": "exec_1", **claims}
    return Principal(
        "delegated", "org_1", "proj_1", scopes=frozenset(scopes), invocation_id=known["invocation_id"], claims=known
    )


class ScriptedWorkers:
    """Bindings that do what a test says: what `does` gives back, a `Failure`, or an exception."""

    def __init__(self) -> None:
        self.bindings: dict[str, tuple[BoundExport, Does]] = {}
        self.received: list[CallRequest] = []
        self.inactive: set[str] = set()

    def bind(self, kind: str, id: str, does: Does, **facts: Any) -> BoundExport:
        bound = BoundExport(f"bind_{id}", "acme/p", id, kind, f"does {id}", {"type": "object"}, facts)
        self.bindings[bound.binding_id] = (bound, does)
        return bound

    async def serving(
        self, kind: str, org_id: str, project_id: str | None, key: str, event: str | None = None
    ) -> Sequence[BoundExport]:
        active = [bound for id, (bound, _) in self.bindings.items() if id not in self.inactive and bound.kind == kind]
        return [bound for bound in active if event is None or event in bound.facts.get("subscribes_to", ())]

    async def bound(self, kind: str, org_id: str, project_id: str | None, binding_id: str) -> BoundExport | None:
        found = self.bindings.get(binding_id)
        return found[0] if found is not None and found[0].kind == kind and org_id == "org_1" else None

    async def do(self, work: CallRequest) -> CallResult:
        assert work.binding_id is not None
        if work.binding_id in self.inactive:
            raise conflict("binding.not_active", "off")
        self.received.append(work)
        bound, does = self.bindings[work.binding_id]
        value = await does(work)
        failure = value if isinstance(value, Failure) else None
        call = CallRecord("call_1", "acme/p", "1.0.0", "vai", bound.export_id, 0.0, 1.0, failure)
        output = None if failure is not None else _CODEC.dump(value)
        return CallResult(call, output, _CODEC, (_record(work, bound, failure),))


def _record(work: CallRequest, bound: BoundExport, failure: Failure | None) -> InvocationRecord:
    return InvocationRecord(
        invocation_id=f"inv_{work.execution_id}_{work.attempt}",
        trace_id=str(work.trace_id),
        export_kind=bound.kind,
        export_id=bound.export_id,
        package_id=bound.package_id,
        package_version="1.0.0",
        binding_id=bound.binding_id,
        execution_class="worker",
        org_id=str(work.org_id),
        project_id=work.project_id,
        session_id=work.session_id,
        chain_id=work.chain_id,
        run_id=work.run_id,
        execution_id=str(work.execution_id),
        retry_count=0,
        started_at="",
        permissions={},
        narrowed=False,
        status="succeeded" if failure is None else failure.outcome,
    )


async def settled(look: Callable[[], Awaitable[T]], done: Callable[[T], bool], seconds: float = PATIENCE) -> T:
    """What one sees once it is as one wants it; says so when it never is."""
    async with asyncio.timeout(seconds):
        for pause in pauses(seconds):
            seen = await look()
            if done(seen):
                return seen
            await asyncio.sleep(pause)
    raise AssertionError("it never was")


@dataclass
class Talk:
    """Conversations of one gateway, and what they are made of."""

    database: Database
    conversations: Conversations
    workers: ScriptedWorkers
    server: OpenAiServer
    clock: Clock
    caller: Principal = field(default=CALLER)

    async def chain(self, *texts: str, **more: Any) -> Chain:
        """A chain in a session of its own, with these inputs."""
        session = await self.conversations.sessions.create(self.caller)
        blocks = [text_block("input", text) for text in texts]
        return await self.conversations.chains.create(
            self.caller, session.id, blocks=blocks, defaults={"model": "m"}, **more
        )

    async def begun(self, text: str, chain: Chain | None = None, **asked: Any) -> Run:
        """A run that was asked something."""
        chain = chain or await self.chain()
        blocks = [text_block("input", text)]
        return await self.conversations.runs.create(self.caller, chain.id, NewRun(blocks=blocks, **asked))

    async def ended(self, run: Run) -> Run:
        """The run as it is once it has ended."""
        look = self.conversations.runs.get
        return await settled(lambda: look(self.caller, run.id), lambda now: now.completed_at is not None)

    async def answered(self, text: str, chain: Chain | None = None, **asked: Any) -> Run:
        """A run from its question to its end."""
        return await self.ended(await self.begun(text, chain, **asked))

    async def blocks(self, chain_id: str) -> list[dict[str, Any]]:
        return (await self.conversations.chains.context(self.caller, chain_id))[1]


@asynccontextmanager
async def conversing(
    url: str,
    *replies: Reply,
    workers: ScriptedWorkers | None = None,
    clock: Clock | None = None,
    lease: float = 30.0,
    started: bool = True,
) -> AsyncIterator[Talk]:
    """Conversations on a migrated database, with `org_1`, `org_2` and a model that answers so."""
    database = await Database.open(url, migrate=False)
    clock, tasks, workers = clock or SystemClock(), Tasks(), workers or ScriptedWorkers()
    audit = Audit(database, clock)
    orgs = Orgs(database, audit, clock)
    registry = LlmRegistry()
    try:
        async with OpenAiServer(*(replies or (says("ok"),))) as server:
            registry.register("local", OpenAiProvider("local", server.url, max_retries=0), "tests")
            conversations = Conversations(
                database,
                lambda: registry,
                workers,
                Credentials(database, clock),
                orgs,
                audit,
                tasks,
                Meters(),
                clock,
                lease=lease,
            )
            await _make_orgs(orgs)
            if started:
                await conversations.start()
            try:
                yield Talk(database, conversations, workers, server, clock)
            finally:
                await tasks.stop()
                await conversations.stop()
                await registry.close()
    finally:
        await database.close()


async def _make_orgs(orgs: Orgs) -> None:
    for org, project in (("org_1", "proj_1"), ("org_2", "proj_2")):
        try:
            await orgs.create(OPERATOR, org, {}, org)
            await orgs.create_project(OPERATOR, org, project, project)
        except GatewayError:
            continue  # an earlier gateway of the same test has made it


@asynccontextmanager
async def gateway_with_model(url: str, data: Path, *replies: Reply) -> AsyncIterator[Gateway]:
    """A whole gateway with `org_1`, `org_2` and a model that answers so; plugins of packages run unconfined."""
    async with OpenAiServer(*(replies or (says("ok"),))) as server:
        toml = f'[llm.providers.local]\nkind = "openai"\nbase_url = "{server.url}"\nmax_retries = 0\n'
        host = Host([], config.parse(toml), state_dir=data / "host")
        settings = GatewaySettings(data, unconfined=True)
        data.mkdir(exist_ok=True)
        async with gateway_at(url, data, host=host, settings=settings) as gateway:
            await _make_orgs(gateway.orgs)
            yield gateway
