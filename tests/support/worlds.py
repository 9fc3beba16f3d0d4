"""A whole gateway behind a real server, with one of everything in it and somebody of every kind to ask for it.

with world_at(folder) as world:
    answer = world.ask("admin", "GET", f"/v1/runs/{world.ids['run_id']}")

`org_1` has all of it, in `proj_1`; `proj_3` is another project of it, and `org_2` is somebody else's. The server runs
in a thread of its own, so that a test can be plain code.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import uvicorn
import uvloop

from plugbay.host.host import Host
from plugbay.server.app import create_app
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.compactions import CompactionRequest
from plugbay.server.domain.credentials import API_KEY_PREFIX, digest_of, operator_token
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.harnesses import HarnessRequest
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.runs import NewRun, RunOptions
from plugbay.server.domain.secrets import SecretScope
from plugbay.server.domain.settings import GatewaySettings
from plugbay.server.server import _uvicorn_config
from plugbay.store import invocations as invocation_rows
from plugbay.store import keys as key_rows
from plugbay.store.keys import ApiKey
from plugbay.store.pages import Page
from tests.store.test_invocations import record
from tests.support.ainb import write_ainb_plugin
from tests.support.conversing import says, settled
from tests.support.databases import run_write, sqlite_database
from tests.support.gateways import gateway_at, make_key, make_org, openapi_of
from tests.support.mcp_servers import write_server
from tests.support.openai_server import OpenAiServer
from tests.support.packaged import Publisher, bind
from tests.support.patience import PATIENCE
from tests.support.plugins import write_plugin
from tests.support.vai import export

T = TypeVar("T")

ADMIN = Principal("key", "org_1", "proj_1", role="admin", key_id="key_of_the_world")

HOOK = """
def hook(body, m):
    end(m, "failed", "slack.gone")
"""
"""Its deliveries fail, so that they can be replayed."""

WRITES = """
def tool(body, m):
    import hashlib
    room = body["context"]["scratch_dir"]
    if room is None:
        return succeed(m, output(body["input"]))
    with open(os.path.join(room, "a.txt"), "w") as file:
        file.write("a")
    ref = {"path": "a.txt", "media_type": "text/plain", "size_bytes": 1, "sha256": hashlib.sha256(b"a").hexdigest()}
    succeed(m, output(None, artifacts=[ref]))
"""
"""A tool with a scratch directory has an artifact in its result."""

EXPORTS = [
    export("t"),
    export("w", permissions={"filesystem": "scratch"}),
    export("h", "hook"),
    export("c", "compactor"),
    export("x", "harness", own={"supports": ["continue", "tool"]}),
]

SCOPES = ("sessions", "chains", "runs", "compactions")
EVERY_SCOPE = [f"{area}:{verb}" for area in SCOPES for verb in ("read", "write")]


class World:
    """What there is, and who may ask."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gateway: Gateway
        self.publisher: Publisher
        self.url = ""
        self.ending_url = ""
        """The same gateway behind a server that is about to stop: its streams come to their end at once."""
        self.openapi: dict[str, Any] = {}
        self.ids: dict[str, str] = {}
        """By the name under which paths and bodies know them."""
        self.tokens: dict[str, str | None] = {}
        """By who has them."""
        self._loop = uvloop.new_event_loop()
        self._client = httpx2.Client(timeout=PATIENCE)  # one for all: to make one takes 25 ms
        self._stop = asyncio.Event()
        self._database_url = sqlite_database(folder)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have something done where the gateway runs."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def ask(self, who: str, method: str, path: str, *, ending: bool = False, **more: Any) -> httpx2.Response:
        """The answer to one request. A fast machine meets the limit of requests, and waits."""
        token = self.tokens[who]
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        base = self.ending_url if ending else self.url
        headers |= more.pop("headers", {})
        while (answer := self._client.request(method, base + path, headers=headers, **more)).status_code == 429:
            time.sleep(float(answer.headers["retry-after"]))
        return answer

    def made(self, method: str, path: str, body: Any = None, key: str = "id") -> str:
        """The id of something new, which the admin has made."""
        answer = self.ask("admin", method, path, json=body)
        assert answer.is_success, answer.text
        return str(answer.json()[key])

    # In the thread of the server.

    def run(self, ready: threading.Event, broken: list[BaseException]) -> None:
        try:
            self._loop.run_until_complete(self._served(ready))
        except BaseException as error:  # whoever waits for the world is told
            broken.append(error)
        finally:
            ready.set()
            self._loop.close()

    async def _served(self, ready: threading.Event) -> None:
        data = self.folder / "data"
        data.mkdir()
        write_plugin(self.folder / "plugins", "p", capabilities=["tool.execute"])
        write_server(self.folder / "plugins", "srv")
        write_ainb_plugin(self.folder / "plugins", "panel", screens=["main"], namespaces=["panel"])
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(OpenAiServer(says("ok")))
            toml = f'[llm.providers.local]\nkind = "openai"\nbase_url = "{model.url}"\nmax_retries = 0\n'
            file = self.folder / "plugbay.toml"
            file.write_text(toml)
            host = Host.load(self.folder / "plugins", config=file, state_dir=self.folder / "host")
            settings = GatewaySettings(
                data, unconfined=True, requests_per_second=1e6, request_burst=1e6, config_file=file
            )
            opened = gateway_at(self._database_url, data, host=host, settings=settings)
            self.gateway = await stack.enter_async_context(opened)
            self.openapi = openapi_of(self.gateway)
            await self._fill(data)
            self.url = await self._listen(stack, ending=False)
            self.ending_url = await self._listen(stack, ending=True)
            ready.set()
            await self._stop.wait()

    async def _listen(self, stack: AsyncExitStack, *, ending: bool) -> str:
        app = create_app(self.gateway)
        if ending:
            app.state.closing.set()
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        server = uvicorn.Server(_uvicorn_config(app))
        serving = asyncio.ensure_future(server._serve(sockets=[listener]))

        async def end() -> None:
            app.state.closing.set()
            server.should_exit = True
            await serving

        stack.push_async_callback(end)
        while not server.started:
            assert not serving.done(), serving
            await asyncio.sleep(0.005)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def _fill(self, data: Path) -> None:
        await make_org(self.gateway)
        await self.gateway.orgs.create_project(OPERATOR, "org_1", "Another", "proj_3")
        await make_org(self.gateway, "org_2", "proj_2")
        self.ids |= {"org_id": "org_1", "project_id": "proj_1", "card_id": "thread-weave", "plugin_id": "p"}
        await self._package(data)
        await self._conversation()
        await self._keys(data)
        await self._delegates()
        scope = SecretScope("org_1", "proj_1")
        await self.gateway.secrets.put(ADMIN, scope, "token", "a secret of the world")
        self.ids["name"] = "token"

    async def _package(self, data: Path) -> None:
        self.publisher = Publisher(data, self.folder)
        package = await self.publisher.bring(self.gateway, HOOK + WRITES, EXPORTS)
        org1 = Principal("key", "org_1", role="admin", key_id="key_of_the_org")
        own = await self.publisher.bring(self.gateway, "", EXPORTS, package="acme/own", caller=org1)
        self.ids |= {"package": own.id, "shared_package": package.id}
        named = {"t": "binding_id", "w": "writer", "h": "hook", "c": "compactor", "x": "harness"}
        for id, kind in named.items():
            self.ids[kind] = (await bind(self.gateway, package, id)).id

    async def _conversation(self) -> None:
        gateway, ids = self.gateway, self.ids
        session = await gateway.sessions.create(ADMIN)
        block = {"kind": "input", "content": [{"type": "text", "text": "hello"}]}
        chain = await gateway.chains.create(ADMIN, session.id, blocks=[block], defaults={"model": "m"})
        ids |= {"session_id": session.id, "chain_id": chain.id}
        run = await gateway.runs.create(ADMIN, chain.id, NewRun([block], RunOptions(model="m")))
        await settled(lambda: gateway.runs.get(ADMIN, run.id), lambda now: now.completed_at is not None)
        ids["run_id"] = run.id
        told = await settled(lambda: gateway.deliveries.page(ADMIN, Page()), lambda part: bool(part.items))
        ids["delivery_id"] = told.items[0].id
        squeeze = CompactionRequest(chain.id, {"max_input_tokens": 1000}, {}, binding_id=ids["compactor"])
        ids["compaction_id"] = (await gateway.compactions.create(ADMIN, squeeze)).id
        errand = HarnessRequest(ids["harness"], {"type": "user_request", "input": []}, {"max_depth": 4})
        ids["execution_id"] = (await gateway.harnesses.create(ADMIN, errand)).id

    async def _keys(self, data: Path) -> None:
        gateway, now = self.gateway, self.gateway.clock.now()
        self.tokens |= {"nobody": None, "wrong": API_KEY_PREFIX + "invented", "bootstrap": operator_token(data)[0]}
        self.tokens["viewer"] = await make_key(gateway, "org_1", "viewer")
        self.tokens["operator"] = await make_key(gateway, "org_1", "operator")
        self.tokens["admin"] = await make_key(gateway, "org_1", "admin")
        self.tokens["stranger"] = await make_key(gateway, "org_2", "admin")
        self.tokens["project"] = await make_key(gateway, "org_1", "admin", "proj_1")
        self.tokens["neighbour"] = await make_key(gateway, "org_1", "admin", "proj_3")
        spare, revoked = await gateway.keys.create(OPERATOR, "org_1", "spare", "admin", "proj_1")
        await gateway.keys.revoke(OPERATOR, spare.id)
        self.ids["key_id"], self.tokens["revoked"] = spare.id, revoked
        self.tokens["expired"] = API_KEY_PREFIX + "expired"
        async with gateway.database.transaction() as tx:
            old = ApiKey("key_expired", "org_1", None, "old", "admin", "ired", now - 9, now - 1, None)
            await key_rows.insert(tx, old, digest_of(API_KEY_PREFIX + "expired"))

    async def _delegates(self) -> None:
        """Tokens of an invocation that goes on for as long as the world."""
        async with self.gateway.database.transaction() as tx:
            await run_write(tx, invocation_rows.opening(record(binding_id=None, project_id="proj_1")))
        self.ids["invocation_id"] = "inv_1"
        self.tokens["scopeless"] = await self.delegate([])
        self.tokens["delegate"] = await self.delegate(EVERY_SCOPE)
        self.tokens["expired token"] = await self.delegate(EVERY_SCOPE, seconds=-1)
        self.tokens["revoked token"] = revoked = await self.delegate(EVERY_SCOPE)
        await self.gateway.credentials.revoke(revoked)

    async def delegate(self, scopes: list[str], seconds: float = 3600.0) -> str:
        """A token of a harness with these scopes."""
        now = self.gateway.clock.now()
        return await self.gateway.credentials.issue(
            {
                "invocation_id": "inv_1",
                "binding_id": self.ids["harness"],
                "export_kind": "harness",
                "trace_id": "tr_1",
                "org_id": "org_1",
                "project_id": "proj_1",
                "session_id": self.ids["session_id"],
                "chain_id": self.ids["chain_id"],
                "execution_id": "exec_of_the_world",
                "scopes": scopes,
                "policy": {"max_child_runs": 1_000},
                "issued_at": stamp(now - 10),
                "expires_at": stamp(now + seconds),
            }
        )

    def close(self) -> None:
        self._client.close()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)


@contextmanager
def world_at(folder: Path) -> Iterator[World]:
    """A world in an empty folder."""
    world, ready, broken = World(folder), threading.Event(), list[BaseException]()
    thread = threading.Thread(target=world.run, args=(ready, broken))
    thread.start()
    try:
        ready.wait()
        if broken:
            raise broken[0]
        yield world
    finally:
        world.close()
        thread.join(PATIENCE)
    if broken:
        raise broken[0]
