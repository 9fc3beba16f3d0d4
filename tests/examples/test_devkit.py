"""The example of vai at work: one package, four kinds, a receiver and a gateway that are really there."""

from __future__ import annotations

import hashlib
import hmac
import json
import runpy
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from plugbay.conformance.engine.plugin_runner import run_conformance
from plugbay.host.discovery.folders import inspect
from plugbay.host.invocations.compaction_result import token_estimate
from plugbay.host.invocations.resources import Gateway
from plugbay.host.ports import ResumeState
from plugbay.host.records import MemoryTokens
from plugbay.host.request import ExportBinding
from plugbay.sdk.manifests import schemas_of, vai_manifest, vai_program
from tests.support import commands
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

DEVKIT = Path(__file__).parents[2] / "examples" / "devkit"
KEY = "correct horse battery staple"
EVENT = {"type": "run.completed", "subject": {"kind": "run", "id": "run_1"}, "summary": {"task": "make tea"}}
SUBJECTS = "feat: a menu\n- fix(till): the price of tea\nchore: tidy up\nwithout a kind"


def plugbay(*words: str, status: int = 0) -> str:
    """What a command prints on stdout."""
    done = commands.plugbay(*words)
    assert done.returncode == status, done.stderr
    return done.stdout.decode()


def with_devkit(
    run: Run, state: Path, main: Callable[[Host], Coroutine[Any, Any, None]], *, url: str = "", **options: Any
) -> None:
    """With a host that lets the package out to this server on a private address, if there is one."""
    config = state / "plugbay.toml"
    config.write_text(f'[network]\nallow_private = ["{url.removeprefix("http://")}"]\n' if url else "")

    async def story() -> None:
        async with Host.load(DEVKIT, state_dir=state, config=config, **{"grant_all": True, **options}) as host:
            await main(host)

    run(story)


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[tuple[str, str, dict[str, str], bytes]]]]:
    """A server that answers everything alike, and what it was sent: method, path, headers, body."""
    heard: list[tuple[str, str, dict[str, str], bytes]] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.answer()

        def do_PATCH(self) -> None:
            self.answer()

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((self.command, self.path, dict(self.headers), body))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", heard
        finally:
            server.shutdown()
            thread.join()


# The package.


def test_it_has_a_readme_every_kind_and_no_manifest_problem() -> None:
    told = json.loads(plugbay("inspect", str(DEVKIT), "--json"))
    assert (told["contract"], told["problems"]) == ("vai", [])
    assert {export["kind"] for export in told["exports"]} == {"tool", "hook", "compactor", "harness"}
    assert (DEVKIT / "README.md").exists()


@requirement("vai:examples-code-and-manifest")
def test_its_files_are_what_its_code_declares() -> None:
    plugin = runpy.run_path(str(DEVKIT / "devkit.py"))["plugin"]
    assert (DEVKIT / "vai-plugin.toml").read_text("utf-8") == vai_manifest(plugin)
    assert (DEVKIT / "bin" / "plugin").read_text("utf-8") == vai_program("devkit.py")
    written = {f"schemas/{path.name}": json.loads(path.read_text("utf-8")) for path in (DEVKIT / "schemas").iterdir()}
    assert written == schemas_of(plugin)


@exhaustive
@requirement("vai:examples-conform")
def test_it_conforms() -> None:
    spec = inspect(DEVKIT).spec
    assert spec is not None
    report = run_conformance(spec)
    assert [axis for axis in report.axes if axis.status in ("failed", "advice")] == []
    assert report.passed > 10


CALLS: dict[str, dict[str, Any]] = {
    "diff_stat": {"diff": "--- a/tea\n+++ b/tea\n@@ -1 +1 @@\n-milk\n+lemon\n"},
    "run_webhook": EVENT,
    "coding_window": {
        "source": {"projection": {"blocks": [{"kind": "input", "content": []}]}},
        "target": {"max_input_tokens": 100},
    },
    "release_notes": {"trigger": {"type": "user_request", "input": [{"type": "text", "text": SUBJECTS}]}},
}
ANSWERS = {
    "diff_stat": (
        "structured_output",
        {"files": [{"path": "tea", "added": 1, "removed": 1}], "added": 1, "removed": 1},
    ),
    "run_webhook": (None, {}),
    "coding_window": ("summary", {"text": "Nothing had to go."}),
    "release_notes": ("summary", {"text": "4 changes in 3 sections."}),
}


@requirement("vai:examples-four-kinds")
@pytest.mark.parametrize("export", CALLS)
def test_every_kind_answers_on_the_command_line(export: str) -> None:
    told = json.loads(plugbay("call", str(DEVKIT), export, json.dumps(CALLS[export]), "--grant-all", "--json"))
    key, expected = ANSWERS[export]
    assert told["status"] == "succeeded"
    assert (told["output"] if key is None else told["output"][key]) == expected


# The tool.

DIFFS = {
    "a file that is gone": ("--- a/old\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n", [("old", 0, 2)]),
    "a new file": ("--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n", [("new", 1, 0)]),
    "lines that look like headers": ("--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n--- dashes\n+++ pluses\n-y\n", [("x", 1, 2)]),
    "context": ("--- a/x\t2026\n+++ b/x\t2026\n@@ -1,3 +1,3 @@ def f\n a\n-b\n+c\n\n", [("x", 1, 1)]),
    "two files": (
        "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n a\n+b\n--- a/y\n+++ b/y\n@@ -1 +0,0 @@\n-a\n",
        [("x", 1, 0), ("y", 0, 1)],
    ),
}


def test_diffs_are_counted_file_by_file(run: Run, tmp_path: Path) -> None:
    async def main(host: Host) -> None:
        for name, (diff, files) in DIFFS.items():
            found = (await host.call("diff_stat", {"diff": diff}))["structured_output"]
            assert [tuple(file.values()) for file in found["files"]] == files, name

    with_devkit(run, tmp_path, main)


def test_what_is_no_diff_is_an_error_that_the_model_reads(run: Run, tmp_path: Path) -> None:
    async def main(host: Host) -> None:
        done = await host.invoke("diff_stat", {"diff": "good morning"})
        assert (done.status, done.value()["is_error"], len(done.invocations)) == ("succeeded", True, 1)

    with_devkit(run, tmp_path, main)


# The hook.


def bound(url: str) -> ExportBinding:
    return ExportBinding(binding_id="bind_1", config={"url": url}, secrets={"webhook_key": KEY})


def test_a_receiver_can_check_who_tells_it_and_whether_it_knows_already(run: Run, tmp_path: Path) -> None:
    async def main(host: Host) -> None:
        heard.clear()
        for attempt in (1, 2):
            done = await host.invoke("run_webhook", EVENT, execution_id="del_1", attempt=attempt, binding=bound(url))
            assert done.status == "succeeded"
        for attempt, (_, _, headers, body) in enumerate(heard, 1):
            assert json.loads(body) == {"delivery_id": "del_1", "attempt": attempt, "event": EVENT}
            assert headers["X-Delivery"] == "del_1"
            assert headers["X-Signature"] == f"sha256={hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()}"
        assert len(heard) == 2

    with receiver() as (url, heard):
        with_devkit(run, tmp_path, main, url=url)


def test_a_receiver_on_an_address_that_the_operator_has_not_opened_hears_nothing(run: Run, tmp_path: Path) -> None:
    async def main(host: Host) -> None:
        done = await host.invoke("run_webhook", EVENT, binding=bound(url))
        assert done.status != "succeeded"
        assert host.plugins()[0].counters["egress_refused"] == 1
        assert heard == []

    with receiver() as (url, heard):
        with_devkit(run, tmp_path, main)


def test_without_the_grant_for_its_secret_nothing_is_signed(run: Run, tmp_path: Path) -> None:
    async def main(host: Host) -> None:
        heard.clear()
        done = await host.invoke("run_webhook", EVENT, binding=bound(url))
        assert (done.status, "X-Signature" in heard[0][2]) == ("succeeded", False)
        assert done.invocation is not None
        assert (done.invocation.narrowed, done.invocation.permissions["secret_slots"]) == (True, [])

    with receiver() as (url, heard):
        with_devkit(run, tmp_path, main, url=url, grant_all=False, grants=["network"])


@pytest.mark.parametrize(
    ("status", "ending"), [(404, "failed"), (503, "retryable_failure"), (None, "retryable_failure")]
)
def test_a_receiver_that_cannot_is_told_again_and_one_that_will_not_is_not(
    run: Run, tmp_path: Path, status: int | None, ending: str
) -> None:
    async def main(host: Host) -> None:
        done = await host.invoke("run_webhook", EVENT, binding=bound(url))
        assert (done.status, len(done.invocations)) == (ending, 1)

    with receiver(status or 200) as (url, _):
        if status:
            with_devkit(run, tmp_path, main, url=url)
    if not status:  # nobody is there any more
        with_devkit(run, tmp_path, main, url=url)


# The compactor.


def text(kind: str, words: str) -> dict[str, Any]:
    return {"kind": kind, "content": [{"type": "text", "text": words}]}


def conversation(steps: int, size: int) -> list[dict[str, Any]]:
    """A system, a task, and steps of a thought, a call of a tool and its result."""
    blocks = [text("system", "You are a programmer."), text("input", "Brew the tea.")]
    for step in range(steps):
        id = f"call_{step}"
        blocks.append(text("response", f"step {step}"))
        blocks.append({"kind": "tool_call", "content": [], "tool_call_id": id, "name": "kettle", "input": {}})
        blocks.append({**text("tool_result", "x" * size), "tool_call_id": id})
    return blocks


def compaction(blocks: list[dict[str, Any]], most: int, pinned: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    projection = {"blocks": blocks, "pinned_items": pinned or []}
    target, policy = {"max_input_tokens": most}, {"retain_system": True}
    return {"source": {"chain_id": "ch_1", "projection": projection}, "target": target, "policy": policy}


@pytest.mark.parametrize("most", [300, 555, 1_000])
def test_what_is_left_fits_and_has_the_task_what_is_pinned_and_whole_steps(run: Run, tmp_path: Path, most: int) -> None:
    blocks, pinned = conversation(20, 200), text("response", "Never use the microwave.")

    async def main(host: Host) -> None:
        value = await host.call("coding_window", compaction(blocks, most, [pinned]))
        seed = value["seed_blocks"]
        assert seed[:3] == [blocks[0], pinned, blocks[1]]
        gone = blocks.index(seed[4]) - 2
        assert seed[3] == text("input", f"[{gone} earlier blocks left out; tools used: kettle]")
        assert seed[4:] == blocks[gone + 2 :]
        assert token_estimate(seed) <= most
        assert value["summary"]["text"] == f"{gone} of {len(blocks)} blocks are gone."

    with_devkit(run, tmp_path, main)


def test_a_long_conversation_comes_as_a_file_and_ends_the_same(run: Run, tmp_path: Path) -> None:
    request = compaction(conversation(600, 2_000), 50_000)
    ends = []

    async def main(host: Host) -> None:
        done = await host.invoke("coding_window", request)
        assert done.invocation is not None
        ends.append((done.value_or_raise()["seed_blocks"], done.invocation.permissions["filesystem"]))

    with_devkit(run, tmp_path, main)
    with_devkit(run, tmp_path, main, grant_all=False, grants=["network"])
    assert [filesystem for _, filesystem in ends] == ["scratch", "none"]
    assert ends[0][0] == ends[1][0]


def test_what_has_to_stay_may_be_too_long(run: Run, tmp_path: Path) -> None:
    async def main(host: Host) -> None:
        done = await host.invoke("coding_window", compaction(conversation(2, 10), 20))
        assert (done.status, done.invocation and done.invocation.error_code) == ("failed", "compactor.no_room")

    with_devkit(run, tmp_path, main)


# The harness.


def test_notes_are_kept_after_the_scratch_folder_is_gone(run: Run, tmp_path: Path) -> None:
    heard: list[Any] = []

    async def main(host: Host) -> None:
        done = await host.invoke("release_notes", CALLS["release_notes"], on_progress=heard.append)
        [artifact] = done.value_or_raise()["artifacts"]
        kept = host.invocations.artifacts.path(artifact["asset_id"]).read_text("utf-8")
        assert kept == (
            "## Added\n\n- a menu\n\n## Fixed\n\n- the price of tea\n\n## Changed\n\n- tidy up\n- without a kind\n"
        )
        await until(lambda: list(tmp_path.glob("scratch/host_*/rooms/*/inv_*")) == [])

    with_devkit(run, tmp_path, main)
    assert [event["message"] for event in heard if event["type"] == "progress"] == [
        "Added: 1",
        "Fixed: 1",
        "Faster: 0",
        "Documented: 0",
        "Changed: 2",
    ]
    assert sum(event["type"] == "checkpoint" for event in heard) == 5


def test_after_a_break_it_goes_on_where_it_was(run: Run, tmp_path: Path) -> None:
    heard: list[Any] = []
    kept = {"kind": "checkpoint", "data": {"Added": ["found before the break"], "Fixed": []}}

    async def main(host: Host) -> None:
        await host.invocations.checkpoints.save("exec_1", ResumeState(CALLS["release_notes"]["trigger"], kept))
        request = {"mode": "resume", "target": {"execution_id": "exec_1"}}
        done = await host.invoke("release_notes", request, on_progress=heard.append)
        assert done.value_or_raise()["checkpoint"]["data"]["Added"] == ["found before the break"]

    with_devkit(run, tmp_path, main)
    assert [event["message"] for event in heard if event["type"] == "progress"] == [
        "Faster: 0",
        "Documented: 0",
        "Changed: 2",
    ]


def test_where_there_is_a_gateway_the_chain_gets_the_notes_with_a_token_of_this_call(run: Run, tmp_path: Path) -> None:
    tokens = MemoryTokens()

    async def main(host: Host) -> None:
        heard.clear()
        host.invocations.gateway = Gateway(url, tokens)
        request = {**CALLS["release_notes"], "target": {"chain_id": "ch_1"}}
        assert (await host.invoke("release_notes", request)).status == "succeeded"
        [(method, path, headers, body)] = heard
        assert (method, path) == ("PATCH", "/v1/chains/ch_1")
        assert json.loads(body)["metadata"]["release_notes"].startswith("## Added\n\n- a menu")
        assert headers["Authorization"].startswith("Bearer vai_dlg_")
        assert len(tokens) == 0

    with receiver() as (url, heard):
        with_devkit(run, tmp_path, main, url=url)
