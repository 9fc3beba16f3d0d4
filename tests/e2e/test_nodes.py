"""`plugbay serve` with `[cluster]` and `plugbay node`, as processes: install once, call, kill a node, go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support.commands import plugbay
from tests.support.nodes import PASSWORD, Cell, cell
from tests.support.packaged import Publisher
from tests.support.patience import PATIENCE, pauses, until_blocking
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.support.vai import export

SCOPE = {"org_id": "org_1", "project_id": "proj_1"}


@contextmanager
def gateway(made: Cell, folder: Path) -> Iterator[httpx2.Client]:
    """`plugbay serve`; a client with the operator's token."""
    (folder / "plugbay.toml").write_text(
        f'[cluster]\nnats = ["{made.nats.url}"]\nuser = "gateway"\npassword_env = "CELL_PASSWORD"\n'
        f'registry = "oci://{made.registry}/plugbay"\n'
    )
    command = [sys.executable, "-m", "plugbay", "serve", "--listen", "127.0.0.1:0", "--no-sandbox"]
    with open(folder / "stderr", "wb") as log:
        process = subprocess.Popen(
            [*command, "--data", str(folder / "data"), "--json"],
            cwd=folder,
            env={**os.environ, "CELL_PASSWORD": PASSWORD, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (folder / "stderr").read_text()
        ready = json.loads(line)
        token = Path(ready["token_file"]).read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        with httpx2.Client(base_url=ready["url"], headers=headers, timeout=PATIENCE) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        process.stdout.close()


def bound(client: httpx2.Client, publisher: Publisher, body: str = "") -> str:
    """The id of an active binding of a package that was uploaded once."""
    packed = publisher.pack(body, exports=[export(execution_class="isolated")])
    for path, made in (
        ("/v1/orgs", {"id": "org_1", "name": "Acme"}),
        ("/v1/orgs/org_1/projects", {"id": "proj_1", "name": "P"}),
    ):
        answer = client.post(path, json=made)
        assert answer.is_success, answer.text
    headers = {**publisher.header(packed), "content-type": "application/gzip"}
    answer = client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers)
    assert answer.is_success, answer.text
    draft = {"package_id": "acme/p", "package_version": "1.0.0", "export_id": "t", "scope": SCOPE}
    answer = client.post("/v1/plugin-bindings", json=draft)
    assert answer.is_success, answer.text
    found: str = answer.json()["binding_id"]
    return found


def call(client: httpx2.Client, binding: str) -> dict[str, Any]:
    answer = client.post("/v1/plugin-invocations", json={"binding_id": binding, "input": {"city": "Lima"}})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


@exhaustive
@requirement("host:nodes-call", "host:nodes-drain")
def test_a_package_that_was_uploaded_once_runs_on_any_node(tmp_path: Path) -> None:
    with cell(tmp_path / "cell") as made, gateway(made, tmp_path) as client:
        binding = bound(client, Publisher(tmp_path / "data", tmp_path))
        trust = ("--trust", str(tmp_path / "data" / "trust.json"))
        assert call(client, binding)["failure"]["code"] == "unavailable"
        with made.process("n1", *trust) as first, made.process("n2", *trust):
            until_succeeded(client, binding)
            first.send(signal.SIGTERM)
            while first.is_running:
                assert call(client, binding)["status"] == "succeeded"
            assert call(client, binding)["status"] == "succeeded"


def until_succeeded(client: httpx2.Client, binding: str) -> None:
    """The gateway hears of a new node with its first beat."""
    for pause in pauses():
        if call(client, binding)["status"] == "succeeded":
            return
        time.sleep(pause)


SPEAKS = """
def tool(body, m):
    print("pouring", body["input"]["tea"], file=sys.stderr, flush=True)
    succeed(m, output({}))
"""


@exhaustive
@requirement("host:nodes-seen")
def test_commands_show_the_nodes_what_runs_there_and_what_it_wrote(tmp_path: Path) -> None:
    with cell(tmp_path / "cell") as made, gateway(made, tmp_path) as client, ExitStack() as stack:
        data = tmp_path / "data"
        binding = bound(client, Publisher(data, tmp_path), SPEAKS)
        stack.enter_context(made.process("n1", "--trust", str(data / "trust.json")))
        where = ("--server", str(client.base_url).rstrip("/"), "--token-file", str(data / "operator.token"))

        def run(*words: str) -> str:
            done = plugbay(*words, *where, cwd=tmp_path, env=dict(os.environ), timeout=PATIENCE)
            assert done.returncode == 0, done.stderr.decode()
            return done.stdout.decode()

        until_blocking(lambda: len(json.loads(run("nodes", "--json"))["nodes"]) == 1)
        for tea in ("oolong", "sencha"):
            body = {"binding_id": binding, "input": {"tea": tea}}
            answer = client.post("/v1/plugin-invocations", json=body)
            assert answer.json()["status"] == "succeeded", answer.text
            assert answer.json()["invocation"]["node"] == "n1"
        (node,) = json.loads(run("nodes", "--json"))["nodes"]
        assert (node["called"]["total"], node["called"]["failed"]) == (2, 0) and node["memory_bytes"] > 1 << 20
        until_blocking(lambda: "acme/p" in run("ps"))
        line = next(line for line in run("ps").splitlines() if "acme/p" in line)
        assert line.split() == ["acme/p", "vai", "running", "1.0.0", "n1"]
        until_blocking(lambda: "sencha" in run("logs", "acme/p"))
        lines = [each for each in run("logs", "acme/p").splitlines() if "pouring" in each]
        assert ["oolong" in lines[0], "sencha" in lines[1]] == [True, True] and all(" n1 " in each for each in lines)
        org = json.loads(run("logs", "acme/p", "--org", "org_1", "--json").splitlines()[-1])
        assert org["node"] == "n1" and org["text"].endswith("pouring sencha")
        assert "draining" in run("nodes", "drain", "n1")
