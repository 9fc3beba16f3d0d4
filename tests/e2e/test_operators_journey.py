"""The journey of an operator, by REST and by command line: upload, bind, validate, set a secret, run a chain, deliver
to a hook, compact, run a harness within its budget and resume it.

A real server, a real model behind HTTP, a signed package. The administrator of another org tries every step as well:
nothing of it is there for that org.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import httpx2
import pytest

from plugbay.cli.gateway.commands import ARCHIVE, arguments, routes
from plugbay.cli.gateway.resources import RESOURCES
from plugbay.packages.archive import Packed, signature_path
from tests.cli.conftest import environment
from tests.server.test_server import Served, served
from tests.support.commands import plugbay
from tests.support.conversing import calls, says
from tests.support.openai_server import OpenAiServer
from tests.support.packaged import Publisher
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import later
from tests.support.vai import export

SECRET = "correct horse battery"

BODY = """
import urllib.error, urllib.request

def tool(body, m):
    succeed(m, output({"city": body["input"]["city"], "letters": len(body["secrets"]["key"])}))

def harness(body, m):
    gateway, mine = body["context"]["gateway"], body["target"]

    def child():
        headers = {"authorization": "Bearer " + gateway["delegation_token"], "content-type": "application/json"}

        def ask(path, **fields):
            request = urllib.request.Request(gateway["base_url"] + path, json.dumps(fields).encode(), headers)
            with urllib.request.urlopen(request, timeout=240) as answer:
                return json.loads(answer.read())

        task = [{"kind": "input", "content": [{"type": "text", "text": "a draft"}]}]
        chain = ask("/v1/chains", session_id=mine["session_id"], blocks=task)
        try:
            return ask("/v1/runs", chain_id=chain["id"], model="local/m", tools=[])["status"]
        except urllib.error.HTTPError as error:
            return json.loads(error.read())["error"]["code"]

    if body["mode"] == "start":
        data = {"children": [child()]}
        checkpoint = {"kind": "checkpoint", "data": data}
        end(m, "failed", "shop.closed", "come back later", result={"checkpoint": checkpoint})
        return
    data = {"children": [*body["checkpoint"]["data"]["children"], child(), child()]}
    checkpoint = {"kind": "checkpoint", "data": data}
    succeed(m, {"checkpoint": checkpoint, "summary": {"text": "done"}, "artifacts": []})
"""

HARNESS = {
    "network": "egress",
    "filesystem": "none",
    "gateway_api_scopes": ["chains:write", "runs:write"],
    "secret_slots": [],
}
EXPORTS = [
    export("t", permissions={"secret_slots": ["key"]}),
    export("h", "hook"),
    export("c", "compactor"),
    export("x", "harness", permissions=HARNESS, default_timeout_ms=60_000),
]


class Answer:
    """The outcome of one step: a document, or a refusal."""

    def __init__(self, document: Any, refused: int = 0) -> None:
        self.document = document
        self.refused = refused
        """0, `ABSENT` or another status."""

    def __getitem__(self, name: str) -> Any:
        assert not self.refused, self.document
        return self.document[name]


ABSENT = 404


class Operator(Protocol):
    """The administrator of one org."""

    def do(self, command: str, *words: str, **options: Any) -> Answer: ...

    def upload(self, packed: Packed) -> Answer: ...

    def set_secret(self, name: str, value: str) -> Answer: ...


class ByRest:
    """Sends the requests themselves."""

    def __init__(self, server: Served, token: str, folder: Path) -> None:
        headers = {"authorization": f"Bearer {token}"}
        self._client = httpx2.Client(base_url=server.facts["url"], headers=headers, timeout=PATIENCE)

    def do(self, command: str, *words: str, **options: Any) -> Answer:
        group, name = command.split()
        verb = RESOURCES[group].verbs[name]
        route = routes()[verb.route]
        given = {**dict(zip((each.name for each in arguments(route)), words, strict=False)), **options}
        path, query, body = route.path, {}, dict[str, Any]()
        for parameter in route.parameters:
            value = given.get(parameter.name)
            if parameter.place == "path":
                path = path.replace("{" + parameter.path[0] + "}", str(value))
            elif value is not None and parameter.place == "query":
                query[parameter.path[0]] = value
            elif value is not None:
                inner = body
                for step in parameter.path[:-1]:
                    inner = inner.setdefault(step, {})
                inner[parameter.path[-1]] = value
        has_body = any(each.place == "body" for each in route.parameters)
        response = self._client.request(route.method, path, params=query, json=body if has_body else None)
        answer = self._read(response)
        while options.get("wait") and not answer.refused and answer["status"] in ("queued", "running", "pending"):
            time.sleep(0.05)
            answer = self.do(f"{'runs' if group == 'chain' else group} show", answer["id"])
        return answer

    def upload(self, packed: Packed) -> Answer:
        signature = base64.b64encode(signature_path(packed.path).read_bytes()).decode()
        headers = {"content-type": ARCHIVE, "x-vai-signature": signature}
        return self._read(self._client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers))

    def set_secret(self, name: str, value: str) -> Answer:
        return self._read(self._client.put(f"/v1/secrets/{name}", json={"value": value}))

    def close(self) -> None:
        self._client.close()

    def _read(self, response: httpx2.Response) -> Answer:
        return Answer(response.json() if response.content else None, 0 if response.is_success else response.status_code)


class ByCommand:
    """Runs `plugbay`."""

    def __init__(self, server: Served, token: str, folder: Path) -> None:
        self._folder = folder
        self._env = environment(folder, PLUGBAY_SERVER=server.facts["url"], PLUGBAY_TOKEN=token)

    def do(self, command: str, *words: str, **options: Any) -> Answer:
        flags = []
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            flags += [flag] if value is True else [flag, value if isinstance(value, str) else json.dumps(value)]
        return self._run(*command.split(), *words, *flags)

    def upload(self, packed: Packed) -> Answer:
        return self._run("package", "add", str(packed.path))

    def set_secret(self, name: str, value: str) -> Answer:
        return self._run("secret", "set", name, stdin=value)

    def close(self) -> None:
        """It keeps nothing open."""

    def _run(self, *words: str, stdin: str = "") -> Answer:
        done = plugbay(*words, "--json", stdin=stdin.encode(), cwd=self._folder, env=self._env, timeout=2 * PATIENCE)
        document = json.loads(done.stdout) if done.stdout else None
        refused = {0: 0, 10: 0, 9: 0, 4: ABSENT}.get(done.returncode, done.returncode)
        return Answer(document, refused)


def journey(folder: Path, operator: type[ByRest] | type[ByCommand]) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(served(folder))
        root = stack.enter_context(server.client())
        publisher = Publisher(Path(server.facts["data"]), folder)
        people: dict[str, ByRest | ByCommand] = {}
        for org in ("acme", "globex"):
            assert root.post("/v1/orgs", json={"id": org, "name": org}).is_success
            key = root.post("/v1/api-keys", json={"org_id": org, "name": "admin", "role": "admin"}).json()["key"]
            people[org] = operator(server, key, folder)
            stack.callback(people[org].close)
        ours, theirs = people["acme"], people["globex"]
        package = upload(ours, theirs, publisher)
        bindings = bind(ours, theirs, package)
        chain = converse(ours, theirs, bindings)
        deliver(ours, theirs)
        compact(ours, theirs, bindings, chain)
        run_harness(ours, theirs, bindings, chain)
        read_records(ours, theirs)
        assert server.end() == 0


def is_absent(*answers: Answer) -> bool:
    return all(answer.refused == ABSENT for answer in answers)


def upload(ours: Operator, theirs: Operator, publisher: Publisher) -> str:
    packed = publisher.pack(BODY, EXPORTS)
    signature_path(packed.path).write_bytes(publisher.sign(packed))
    added = ours.upload(packed)
    assert (added["status"], added["signature"]["status"]) == ("available", "verified")
    assert ours.do("package show", added["id"])["digest"] == added["digest"]
    assert is_absent(theirs.do("package show", added["id"]))
    assert added["id"] not in {each["id"] for each in theirs.do("package list")["items"]}
    assert "t" in {each["export_id"] for each in ours.do("export tools")["items"]}
    assert "t" not in {each["export_id"] for each in theirs.do("export tools")["items"]}
    return str(added["id"])


def bind(ours: Operator, theirs: Operator, package: str) -> dict[str, str]:
    named = {"package": "acme/p", "package_version": "1.0.0"}
    key = {"key": "secret://acme/key"}
    assert theirs.do("binding create", **named, export="t", org="globex").refused, "it has no such package"
    assert theirs.do("binding create", **named, export="t", org="acme").refused, "it is not its org"
    draft = ours.do("binding create", **named, export="t", org="acme", status="draft", secrets=key)["binding_id"]
    verdict = ours.do("binding validate", draft)
    assert (verdict["valid"], verdict["errors"][0]["code"]) == (False, "binding.secret_not_found")
    assert ours.set_secret("key", SECRET)["version"] == 1
    assert "key" not in {each["name"] for each in theirs.do("secret list")["items"]}
    assert is_absent(theirs.do("secret delete", "key"))
    assert ours.do("binding validate", draft)["valid"] is True
    assert is_absent(theirs.do("binding validate", draft), theirs.do("binding update", draft, status="disabled"))
    assert ours.do("binding update", draft, status="active")["status"] == "active"
    others = {id: ours.do("binding create", **named, export=id, org="acme")["binding_id"] for id in ("h", "c", "x")}
    bindings = {"t": draft, **others}
    assert not set(bindings.values()) & {each["binding_id"] for each in theirs.do("binding list")["items"]}
    invoked = ours.do("invocation create", binding=draft, input={"city": "Lima"})
    assert invoked["result"]["structured_output"] == {"city": "Lima", "letters": len(SECRET)}
    assert theirs.do("invocation create", binding=draft, input={"city": "Lima"}).refused
    id = invoked["invocation"]["invocation_id"]
    assert ours.do("invocation show", id)["status"] == "succeeded"
    assert is_absent(theirs.do("invocation show", id), theirs.do("invocation cancel", id))
    return bindings


def converse(ours: Operator, theirs: Operator, bindings: dict[str, str]) -> str:
    session = ours.do("session create")["id"]
    chain = str(ours.do("chain create", session, defaults_model="local/m")["id"])
    question = [{"kind": "input", "content": [{"type": "text", "text": "Which tea is left?"}]}]
    strangers = (
        theirs.do("session show", session),
        theirs.do("chain create", session),
        theirs.do("chain show", chain),
        theirs.do("chain context", chain),
        theirs.do("chain run", chain, blocks=question, model="local/m"),
    )
    assert is_absent(*strangers)
    run = ours.do("chain run", chain, blocks=question, wait=True)
    assert (run["status"], run["tool_count"]) == ("completed", 1)
    kinds = [block["kind"] for block in ours.do("chain context", chain)["blocks"]]
    assert kinds == ["input", "tool_call", "tool_result", "response"]
    assert is_absent(theirs.do("runs show", run["id"]), theirs.do("runs timeline", run["id"]))
    assert is_absent(theirs.do("runs cancel", run["id"]), theirs.do("runs regenerate", run["id"]))
    return chain


def deliver(ours: Operator, theirs: Operator) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (found := ours.do("delivery list", status="delivered")["items"]):
        assert time.monotonic() < deadline, "the delivery has no end"
        time.sleep(0.1)
    detail = ours.do("delivery show", found[0]["id"])
    assert (detail["event"]["type"], detail["history"][0]["outcome"]) == ("run.completed", "succeeded")
    assert is_absent(theirs.do("delivery show", found[0]["id"]), theirs.do("delivery replay", found[0]["id"]))
    assert theirs.do("delivery list")["items"] == [] == theirs.do("delivery events")["items"]


def compact(ours: Operator, theirs: Operator, bindings: dict[str, str], chain: str) -> None:
    small = {"target_max_input_tokens": 1000}
    assert is_absent(theirs.do("compaction create", chain, **small))
    before = ours.do("chain show", chain)["digest"]
    compaction = ours.do("compaction create", chain, **small, compactor_binding=bindings["c"], wait=True)
    assert compaction["status"] == "succeeded", compaction.document
    assert ours.do("chain show", compaction["new_chain_id"])["created_by_compaction_id"] == compaction["id"]
    assert ours.do("chain show", chain)["digest"] == before
    assert is_absent(theirs.do("compaction show", compaction["id"]))
    assert is_absent(theirs.do("chain show", compaction["new_chain_id"]))


def run_harness(ours: Operator, theirs: Operator, bindings: dict[str, str], chain: str) -> None:
    assert theirs.do("harness create", bindings["x"]).refused
    begun = ours.do("harness create", bindings["x"], chain=chain, policy_max_child_runs=2, wait=True)
    assert (begun["status"], begun["error"]["code"]) == ("failed", "shop.closed"), begun.document
    assert is_absent(theirs.do("harness show", begun["id"]), theirs.do("harness resume", begun["id"]))
    ended = ours.do("harness resume", begun["id"], wait=True)
    assert (ended["status"], ended["resumes"]) == ("succeeded", 1), ended["error"]
    children = ended["checkpoint"]["data"]["children"]
    assert children[2] == "policy.limit_exceeded" and "policy.limit_exceeded" not in children[:2]


def read_records(ours: Operator, theirs: Operator) -> None:
    kinds = {each["export_kind"] for each in ours.do("invocation list")["items"]}
    assert kinds == {"tool", "hook", "compactor", "harness"}
    assert theirs.do("invocation list")["items"] == []
    actions = {each["action"] for each in ours.do("audit list", limit=200)["items"]}
    assert {"binding.create", "chain.create", "run.create", "harness.resume"} <= actions, actions
    assert {each["org_id"] for each in theirs.do("audit list", limit=200)["items"]} <= {"globex"}


@requirement("vai:operators-journey")
@pytest.mark.parametrize("operator", [ByCommand, later(ByRest)])
def test_the_journey_of_an_operator_and_nothing_of_it_for_another_org(
    operator: type[ByRest] | type[ByCommand], tmp_path: Path
) -> None:
    async def story() -> None:
        async with OpenAiServer(calls(("t", {"city": "Lima"})), says("done")) as model:
            provider = f'[llm.providers.local]\nkind = "openai"\nbase_url = "{model.url}"\nmax_retries = 0\n'
            (tmp_path / "plugbay.toml").write_text(provider)
            await asyncio.to_thread(journey, tmp_path, operator)

    with asyncio.Runner() as runner:
        runner.run(asyncio.wait_for(story(), 2 * PATIENCE))
