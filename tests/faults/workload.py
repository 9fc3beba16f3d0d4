"""`Workload`: clients of a cluster that write down what they ask and what they are told, and the plugin that they call.

The plugin appends to the ledger, with fsync, when it is asked. Clients call a tool that must not run twice, with and
without an `Idempotency-Key`, one that may, and one in the background; they send events to a hook; they revoke keys;
they call the singleton of the world; they begin runs on a few chains, and cancel some; they watch runs and invocations
live.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from tests.faults.checker import (
    BEGUN,
    LOST,
    READ,
    REFUSED,
    RUN,
    STEPS,
    SUCCEEDED,
    WRITE,
    Awaited,
    ChainSeen,
    Entry,
    History,
    KeyUse,
    Request,
    Rows,
    RunChange,
    RunSeen,
)
from tests.faults.runs import ASKS_FOR_TOOL, MODEL, WORDS
from tests.faults.singleton import EXPORT, NAME, written
from tests.faults.watching import watch
from tests.faults.world import Gateway, World
from tests.support.patience import PATIENCE
from tests.support.vai import export

BODY = """
def note(kind, execution, body):
    line = json.dumps([kind, execution, body["context"]["invocation_id"], time.monotonic(), __file__, os.getpid()])
    place = os.open({ledger!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(place, line.encode() + b"\\n")
    os.fsync(place)
    os.close(place)

def tool(body, m):
    if "kind" not in body["input"] or body["input"]["kind"] == "steps":
        return steps(body, m)
    note(body["input"]["kind"], body["tool_execution_id"], body)
    time.sleep(body["input"]["seconds"])
    succeed(m, output({{"n": body["input"]["n"]}}))

def steps(body, m):
    time.sleep(0.4)
    note("steps", body["tool_execution_id"], body)
    for n in range({steps}):
        event(m, n=n)
        time.sleep(0.04)
    succeed(m, output({{}}))

def hook(body, m):
    note("hook", body["delivery_id"], body)
    time.sleep(0.3)
    respond(m, status="ack")
"""

CLIENTS, WATCHERS = 5, 3
"""Clients that ask for anything; those that begin what takes longer, and watch it."""

SECONDS = 20.0
"""The patience of a client. A request that takes longer is lost."""

NUMBER_OF_STEPS = 24
"""Events of the tool that sends some."""

CHAINS = 2

EXPORTS = {WRITE: "w", READ: "r", STEPS: "s"}

REPEATS = 12
"""Repetitions of a request with a key, through any gateway."""

SINGLETON = "singleton"
"""The kind of a call of the singleton."""

MS = 8_000
"""The timeout of invocations."""

QUICK, LONG = 0.02, 1.5
"""Seconds that the tool takes; the longer ones are there to be interrupted."""


Act = Callable[[random.Random], object]
"""What a client does next."""


class Workload:
    """Clients in threads."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.history = History()
        self.ledger = world.folder / "ledger"
        self.failures: list[BaseException] = []
        """Bugs of the clients."""
        self._seed = seed
        self._over = threading.Event()
        self._count = iter(range(10**9))
        self._threads: list[threading.Thread] = []
        self.bindings: dict[str, str] = {}
        self.chains: list[str] = []
        self.refused_writes = 0
        """Writes that the singleton was told to be refused."""

    # Set up.

    def prepare(self) -> None:
        """Upload the package, bind its exports, and wait until each gateway has called each node."""
        write = export("w", default_timeout_ms=MS, max_concurrency=16, own={"effect_class": "non_idempotent_write"})
        read = export("r", default_timeout_ms=MS, max_concurrency=16, own={"effect_class": "read_only"})
        steps = export("s", default_timeout_ms=MS, max_concurrency=16, own={"effect_class": "read_only"})
        hook = export("h", "hook", default_timeout_ms=MS, max_concurrency=16)
        body = BODY.format(ledger=str(self.ledger), steps=NUMBER_OF_STEPS)
        packed = self.world.publisher.pack(body, [write, read, steps, hook])
        head = {"content-type": "application/gzip", **self.world.publisher.header(packed)}
        self._create("plugin-packages", content=packed.path.read_bytes(), headers=head)
        self._create("orgs", json={"id": "acme", "name": "Acme"})
        for id in (*EXPORTS.values(), "h"):
            draft = {"package_id": "acme/p", "package_version": "1.0.0", "export_id": id}
            bound = self._create("plugin-bindings", json={**draft, "scope": {"org_id": "acme"}})
            self.bindings[id] = bound["binding_id"]
        session = self._create("sessions", json={"org_id": "acme"})
        for _ in range(CHAINS):
            self.chains.append(self._create("chains", json={"session_id": session["id"]})["id"])
        self.wait_served()
        self.world.until(self.world.has_acted, "the singleton acts")

    def _create(self, path: str, **request: Any) -> Any:
        """Ask the first gateway for something new. On a machine that stood still it may have lost its lease: then it is
        started again, as systemd would.
        """
        gateway = self.world.gateways[0]
        while True:
            try:
                with gateway.client() as client:
                    return _made(client.post(f"/v1/{path}", **request))
            except httpx2.ConnectError:  # so nothing was asked
                if not gateway.notice_end():
                    raise
                gateway.start()
                self.world.until(gateway.is_ready, f"{gateway.name} is ready again")

    def wait_served(self) -> None:
        """Until each gateway has a call answered."""
        for gateway in self.world.gateways:
            with gateway.client(SECONDS) as client:
                what = f"{gateway.name} serves a call"
                self.world.until(partial(self._is_served, gateway, client), what)

    def _is_served(self, gateway: Gateway, client: httpx2.Client) -> bool:
        if gateway.notice_end():
            gateway.start()
        return self.invoke(gateway, client, READ).status == SUCCEEDED

    # Clients.

    def begin(self) -> None:
        self._over.clear()
        acts: list[Act] = [
            *[self._write] * 3,
            *[self._keyed_write] * 3,
            *[self._read] * 3,
            self._background,
            *[self._event] * 2,
            self._revocation,
            self._singleton,
        ]
        for at in range(CLIENTS + WATCHERS):
            asks = acts if at < CLIENTS else [self._watched_steps, self._run_of_chain]
            dice = random.Random(f"{self._seed}.{at}")
            thread = threading.Thread(target=self._run, args=(asks, dice), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Have the clients stop after their present request."""
        self._over.set()

    def join(self) -> None:
        """Wait until they have."""
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        self._threads.clear()
        if self.failures:
            raise self.failures[0]

    def _run(self, acts: Sequence[Act], dice: random.Random) -> None:
        try:
            while not self._over.is_set():
                dice.choice(acts)(dice)
                time.sleep(dice.uniform(0.01, 0.1))
        except BaseException as error:
            self.failures.append(error)

    def _write(self, dice: random.Random) -> None:
        self._at(dice, lambda gateway, client: self.invoke(gateway, client, WRITE, _seconds(dice)))

    def _read(self, dice: random.Random) -> None:
        self._at(dice, lambda gateway, client: self.invoke(gateway, client, READ, _seconds(dice)))

    def _background(self, dice: random.Random) -> None:
        kind = dice.choice([WRITE, READ])
        self._at(dice, lambda gateway, client: self.invoke(gateway, client, kind, _seconds(dice), wait=False))

    def _keyed_write(self, dice: random.Random) -> None:
        """The same request until it has an answer, through any gateway."""
        key, seconds = f"k-{next(self._count)}", _seconds(dice)
        for _ in range(REPEATS):
            told = self._at(dice, lambda gateway, client: self.invoke(gateway, client, WRITE, seconds, key))
            if told.status not in (REFUSED, LOST) or told.code == "idempotency.answer_lost" or self._over.is_set():
                return
            time.sleep(0.5)

    def _event(self, dice: random.Random) -> None:
        def send(gateway: Gateway, client: httpx2.Client) -> None:
            with suppress(httpx2.HTTPError):
                answer = client.post(f"/v1/plugin-bindings/{self.bindings['h']}:test-delivery", json={})
                if answer.status_code == 202:
                    self.history.promised.add(answer.json()["id"])

        self._at(dice, send)

    def _revocation(self, dice: random.Random) -> None:
        """Make a key, use it, revoke it, and try it again at every gateway."""
        made: list[dict[str, Any]] = []

        def make(gateway: Gateway, client: httpx2.Client) -> None:
            with suppress(httpx2.HTTPError):
                answer = client.post("/v1/api-keys", json={"org_id": "acme", "name": "k", "role": "viewer"})
                if answer.status_code == 201:
                    made.append(answer.json())

        def revoke(gateway: Gateway, client: httpx2.Client) -> None:
            with suppress(httpx2.HTTPError):
                if client.delete(f"/v1/api-keys/{made[0]['id']}").status_code == 200:
                    self.history.revoked[made[0]["id"]] = time.monotonic()

        self._at(dice, make)
        if made:
            self._use(made[0])
            self._at(dice, revoke)
            self._use(made[0])

    def _watched_steps(self, dice: random.Random) -> None:
        """Begin an invocation at a gateway, and watch it at any."""
        begun = self._at(dice, lambda gateway, client: self.invoke(gateway, client, STEPS, wait=False))
        if begun.invocation:
            self._watch(dice, "plugin-invocations", begun.invocation, NUMBER_OF_STEPS)

    def _watch(self, dice: random.Random, kind: str, id: str, total: int) -> None:
        seen = self._at(dice, lambda at, client: watch(client, at.name, f"/v1/{kind}/{id}/events", id, total))
        if seen is not None:
            self.history.watched.append(seen)

    def _run_of_chain(self, dice: random.Random) -> None:
        """Begin a run on a chain that other clients use, watch or cancel it, and look at both; each at any gateway."""
        name, chain = f"x-{next(self._count)}", dice.choice(self.chains)
        key = f"k-{name}" if dice.random() < 0.5 else ""
        text = ASKS_FOR_TOOL if dice.random() < 0.5 else "hello"
        ask = partial(self._begin_run, chain, name, key, text)
        run: str | None = self._at(dice, ask)
        for _ in range(REPEATS if key else 0):
            if run is not None or self._over.is_set():
                break
            time.sleep(0.5)
            run = self._at(dice, ask)
        if run is None:
            return
        if dice.random() < 0.2:
            self._at(dice, lambda at, client: self._see(client.post, f"/v1/runs/{run}:cancel", name))
        else:
            self._watch(dice, "runs", run, WORDS)
        self._at(dice, lambda at, client: self._see(client.get, f"/v1/runs/{run}", name))
        self._at(dice, lambda at, client: self._see(client.get, f"/v1/chains/{chain}"))

    def _begin_run(
        self, chain: str, name: str, key: str, text: str, gateway: Gateway, client: httpx2.Client
    ) -> str | None:
        """The id of the run, if it was begun; the same each time with a key."""
        block = {"kind": "input", "content": [{"type": "text", "text": text}]}
        body = {"blocks": [block], "model": MODEL, "limits": {"timeout_ms": MS}, "metadata": {"request": name}}
        begun, run = time.monotonic(), None
        told: dict[str, Any] = {"status": LOST}
        try:
            head = {"idempotency-key": key} if key else {}
            answer = client.post(f"/v1/chains/{chain}/runs", json=body, headers=head)
            told = {"status": BEGUN} if answer.is_success else _refusal(answer)
            run = self._note_seen(answer, name)
        except httpx2.ConnectError:
            told = {"status": REFUSED, "code": "not connected"}
        except httpx2.HTTPError as error:
            told = {"status": LOST, "code": type(error).__name__}
        request = Request(RUN, name, begun, time.monotonic(), key=key, gateway=gateway.name, **told)
        self.history.requests.append(request)
        return run

    def _see(self, ask: Callable[[str], httpx2.Response], path: str, name: str = "") -> None:
        with suppress(httpx2.HTTPError):
            self._note_seen(ask(path), name)

    def _note_seen(self, answer: httpx2.Response, name: str) -> str | None:
        """Write down the run or the chain in an answer; the id of a run."""
        if not answer.is_success:
            return None
        found = answer.json()
        if "digest" in found:
            self.history.chains.append(ChainSeen(found["id"], found["message_count_cached"], found["digest"]))
            return None
        self.history.runs.append(RunSeen(name, found["chain_id"], found["id"], found["status"]))
        id: str = found["id"]
        return id

    def _singleton(self, dice: random.Random) -> None:
        self._at(dice, self.call_singleton)

    def call_singleton(self, gateway: Gateway, client: httpx2.Client) -> Request:
        """One call of the tool of the singleton, which is written down."""
        begun, execution = time.monotonic(), f"x-{next(self._count)}"
        told: dict[str, Any] = {"status": LOST}
        try:
            found = client.post("/api/v1/calls", json={"export": EXPORT, "input": {}, "timeout_ms": MS})
            told = _told_of_call(found)
        except httpx2.ConnectError:
            told = {"status": REFUSED, "code": "not connected"}
        except httpx2.HTTPError as error:
            told = {"status": LOST, "code": type(error).__name__}
        request = Request(SINGLETON, execution, begun, time.monotonic(), gateway=gateway.name, **told)
        self.history.requests.append(request)
        return request

    def _use(self, key: dict[str, Any]) -> None:
        for gateway in self.world.gateways:
            begun = time.monotonic()
            with suppress(httpx2.HTTPError), gateway.client(SECONDS) as client:
                head = {"authorization": f"Bearer {key['key']}"}
                accepted = client.get("/v1/orgs/acme", headers=head).status_code == 200
                self.history.uses.append(KeyUse(key["id"], begun, accepted))

    def _at(self, dice: random.Random, act: Callable[[Gateway, httpx2.Client], Any]) -> Any:
        gateway = dice.choice(self.world.gateways)
        with gateway.client(SECONDS) as client:
            return act(gateway, client)

    def invoke(
        self,
        gateway: Gateway,
        client: httpx2.Client,
        kind: str,
        seconds: float = QUICK,
        key: str = "",
        *,
        wait: bool = True,
        execution: str = "",
        timeout_ms: int | None = None,
    ) -> Request:
        """One request, which is written down. With a key it is the same request each time."""
        execution = execution or (f"x-{key}" if key else f"x-{next(self._count)}")
        body = {
            "binding_id": self.bindings[EXPORTS[kind]],
            "input": {"kind": kind, "seconds": seconds, "n": execution},
            "execution_id": execution,
            "wait": wait,
            "timeout_ms": timeout_ms,
        }
        begun = time.monotonic()
        told: dict[str, Any] = {"status": LOST}
        try:
            head = {"idempotency-key": key} if key else {}
            told = _told(client.post("/v1/plugin-invocations", json=body, headers=head))
        except httpx2.ConnectError:
            told = {"status": REFUSED, "code": "not connected"}
        except httpx2.HTTPError as error:
            told = {"status": LOST, "code": type(error).__name__}
        request = Request(kind, execution, begun, time.monotonic(), key=key, gateway=gateway.name, **told)
        self.history.requests.append(request)
        return request

    # The end.

    def settle(self, seconds: float = PATIENCE) -> History:
        """Wait until nothing is at work; the history with all witnesses."""
        self.world.until(lambda: not self._unsettled(), "nothing is at work", seconds)
        return self.witness()

    def _unsettled(self) -> int:
        open_now = "SELECT count(*) AS n FROM plugin_invocations WHERE status IS NULL"
        at_work = (
            "SELECT count(*) AS n FROM deliveries WHERE status = 'delivering' "
            "OR (status = 'pending' AND due_at < extract(epoch FROM clock_timestamp()) * 1000000 + 2000000)"
        )
        unended = "SELECT count(*) AS n FROM runs WHERE status IN ('queued', 'running')"
        found = [self.world.postgres.writable.query(query)[0]["n"] for query in (open_now, at_work, unended)]
        return sum(found)

    def wait_acting(self, seconds: float) -> None:
        """Wait until the singleton acts, or so long. Nothing hinders it now, so the checker expects an act."""
        since = time.monotonic()
        while not self.world.has_acted(since) and time.monotonic() - since < seconds:
            time.sleep(0.1)
        self.history.awaited.append(Awaited(NAME, since, time.monotonic()))

    def witness(self) -> History:
        """The history as it is now."""
        history, query = self.history, self.world.postgres.writable.query
        before = {row["id"]: row["status"] for row in history.rows.invocations if row["status"]}
        history.closed.update({id: status for id, status in before.items() if id not in history.closed})
        history.rows = Rows(
            invocations=query(
                "SELECT id, status, export_id, execution_id, owner, started_at / 1e6 AS started_at, "
                "ended_at / 1e6 AS ended_at FROM plugin_invocations"
            ),
            tokens=query(
                "SELECT invocation_id, revoked_at / 1e6 AS revoked_at, expires_at / 1e6 AS expires_at "
                "FROM plugin_tokens"
            ),
            events=query("SELECT id FROM events WHERE type = 'run.completed'"),  # those that the hook subscribes to
            deliveries=query("SELECT id, event_id, status, completed_at / 1e6 AS completed_at FROM deliveries"),
            chains=query("SELECT id, status, block_count, digest FROM chains"),
            blocks=query(
                "SELECT chain_id, run_id, kind, digest, body, "
                "convert_from(body, 'UTF8')::json ->> 'tool_call_id' AS call FROM blocks ORDER BY chain_id, sequence"
            ),
            runs=query(
                "SELECT id, chain_id, status, metadata::json ->> 'request' AS request, (SELECT count(*) FROM events "
                "WHERE subject_kind = 'run' AND subject_id = runs.id) AS events FROM runs"
            ),
            now=query("SELECT extract(epoch FROM clock_timestamp())::float AS now")[0]["now"],
        )
        changes = query("SELECT chain, run, status FROM witnessed_runs ORDER BY number")
        history.run_changes = [RunChange(**change) for change in changes]
        history.ledger = read_ledger(self.ledger)
        noted = self.world.singleton.noted(self.world.node_of)
        history.acts, history.acknowledged, self.refused_writes = noted.acts, noted.accepted, noted.refused
        writes = query("SELECT epoch, node, value FROM witnessed_writes ORDER BY number")
        history.accepted = written(writes, self.world.node_of)
        return history


def read_ledger(path: Path) -> list[Entry]:
    lines = path.read_text().splitlines() if path.exists() else []
    entries = []
    for line in lines:
        kind, execution, invocation, at, place, pid = json.loads(line)
        entries.append(Entry(kind, execution, invocation, at, holder=place, boot=str(pid)))
    return entries


def _refusal(answer: httpx2.Response) -> dict[str, Any]:
    retry_after = answer.headers.get("retry-after", "")
    return {"status": REFUSED, "code": answer.json()["error"]["code"], "retry_after": retry_after}


def _told(answer: httpx2.Response) -> dict[str, Any]:
    """The outcome in an answer."""
    found = answer.json()
    if not answer.is_success:
        return _refusal(answer)
    status = found["status"] if answer.status_code == 200 else BEGUN
    told = {"status": status, "failure": found["failure"] or {}, "invocation": found["invocation"]["invocation_id"]}
    return told


def _told_of_call(answer: httpx2.Response) -> dict[str, Any]:
    """The outcome of a call of an installed plugin, which has no invocation."""
    found = answer.json()
    if not answer.is_success:
        return _refusal(answer)
    status = SUCCEEDED if found["failure"] is None else found["status"]
    return {"status": status, "failure": found["failure"] or {}}


def _seconds(dice: random.Random) -> float:
    return LONG if dice.random() < 0.3 else QUICK


def _made(answer: httpx2.Response) -> Any:
    assert answer.status_code in (200, 201), answer.text
    return answer.json()
