"""The four kinds of executions: their requests, the check of their results, and how they resume."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from plugbay.host.invocations.kinds import MAX_CHECKPOINT, MAX_INLINE
from plugbay.host.invocations.resources import Gateway
from plugbay.host.ports import ResumeState
from plugbay.host.records import MemoryCheckpoints, MemoryTokens
from plugbay.host.request import ExportBinding
from plugbay.model.errors import Code
from tests.support.invoking import COUNTS, SCRATCH, host_of, raw_host_of, records, rooms, with_host
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.vai import export, write_vai_plugin

# Tools.


@requirement("vai:host-tool-output")
@pytest.mark.parametrize(
    ("result", "path"),
    [
        ("output({'n': 'one'})", "structured_output/n"),
        ("output({})", "structured_output"),
        ("output(None)", "structured_output"),
        ("'text'", "not an object"),
        ("{'content': 'text'}", "content must be a list"),
        ("output({'n': 1}, is_error='no')", "is_error and retryable"),
    ],
)
def test_an_output_that_breaks_its_schema_is_no_success(run: Run, tmp_path: Path, result: str, path: str) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    own = {"output_schema": "schemas/out.json"}
    body = f"def tool(body, m): succeed(m, {result})"
    root = write_vai_plugin(tmp_path, body, [export(own=own)], schemas={"out": schema})

    async def main(host: Host) -> None:
        outcome = await host.invoke("t", {})
        assert outcome.failure is not None and outcome.failure.code == Code.PLUGIN_ERROR
        assert path in outcome.failure.message
        (record,) = outcome.invocations
        assert (record.status, record.error_code) == ("failed", "tool.invalid_output")

    with_host(run, host_of(root), main)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("output({'n': 1})", {"n": 1}),
        ("{'structured_output': {'n': 1}}", {"n": 1}),
        ("{'content': [], 'is_error': True}", None),
    ],
)
def test_an_output_that_fits_comes_with_all_its_fields(run: Run, tmp_path: Path, result: str, expected: Any) -> None:
    schema = {"type": "object", "required": ["n"]}
    own = {"output_schema": "schemas/out.json"}
    body = f"def tool(body, m): succeed(m, {result})"
    root = write_vai_plugin(tmp_path, body, [export(own=own)], schemas={"out": schema})

    async def main(host: Host) -> None:
        said = await host.call("t", {})
        assert sorted(said) == ["content", "is_error", "retryable", "structured_output"]
        assert said["structured_output"] == expected

    with_host(run, host_of(root), main)


# Hooks.


@requirement("vai:host-hook-delivery")
def test_a_hook_is_told_which_delivery_this_is_and_acknowledges(run: Run, tmp_path: Path) -> None:
    body = """
    def hook(body, m):
        event(m, delivery=[body["delivery_id"], body["attempt"], body["event"]["type"]])
        respond(m, status="ack")
    """
    root = write_vai_plugin(tmp_path, body, [export("h", "hook")])

    async def main(host: Host) -> None:
        heard: list[Any] = []
        event = {"type": "run.completed", "occurred_at": "2026-03-12T19:00:00Z", "subject": {"kind": "run", "id": "r"}}
        for attempt in (1, 2):
            result = await host.invoke("h", event, execution_id="del_1", attempt=attempt, on_progress=heard.append)
            assert result.status == "succeeded" and result.value() == {}
        assert [item["delivery"] for item in heard] == [["del_1", 1, "run.completed"], ["del_1", 2, "run.completed"]]
        assert {record.execution_id for record in records(host)} == {"del_1"}

    with_host(run, host_of(root), main)


@requirement("vai:host-hook-outcome")
@pytest.mark.parametrize(
    ("ending", "status", "retryable"),
    [
        ('respond(m, status="succeeded")', "succeeded", False),
        ('end(m, "failed")', "failed", False),
        ('end(m, "retryable_failure")', "retryable_failure", True),
        ("os._exit(3)", "retryable_failure", True),
        ('send(type="response", id=m["id"], ok=True, body={"status": "fine"})', "retryable_failure", True),
        ("cancels[m['id']].wait()", "cancelled", True),
    ],
)
def test_how_a_delivery_ends_says_whether_it_is_worth_another(
    run: Run, tmp_path: Path, ending: str, status: str, retryable: bool
) -> None:
    root = write_vai_plugin(tmp_path, f"def hook(body, m): {ending}", [export("h", "hook")])

    async def main(host: Host) -> None:
        result = await host.invoke("h", {"type": "run.completed"}, timeout=1 if status == "cancelled" else None)
        assert [record.status for record in result.invocations] == [status]
        assert (result.failure is not None and result.failure.retryable) is retryable

    with_host(run, host_of(root), main)


# Compactors.


def block(text: str, kind: str = "input") -> dict[str, Any]:
    return {"kind": kind, "content": [{"type": "text", "text": text}]}


def compaction(blocks: list[Any], pinned: list[Any] | None = None, limit: int = 100_000_000) -> dict[str, Any]:
    projection = {"blocks": blocks, "pinned_items": pinned or []}
    policy = {"retain_system": True}
    return {
        "source": {"chain_id": "ch_1", "projection": projection},
        "target": {"max_input_tokens": limit},
        "policy": policy,
    }


READS = """
import hashlib

def compactor(body, m):
    projection = body["source"]["projection"]
    event(m, transport=projection["transport"], estimate=projection["token_estimate"])
    if projection["transport"] == "artifact":
        ref = projection["artifact"]
        data = open(os.path.join(body["context"]["scratch_dir"], ref["path"]), "rb").read()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (ref["size_bytes"], ref["sha256"])
        projection = json.loads(data)
    succeed(m, {"seed_blocks": projection["blocks"][:1], "summary": {"text": body["compaction_id"]}})
"""


@requirement("vai:host-compactor-projection")
def test_a_large_conversation_goes_through_the_room_with_the_same_result(run: Run, tmp_path: Path) -> None:
    own = {"supports_pinned_items": False}
    exports = [export("c", "compactor", permissions=SCRATCH, own=own), export("d", "compactor", own=own)]
    root = write_vai_plugin(tmp_path, READS, exports)
    small = [block("first"), block("x")]
    large = [block("first"), block("x" * MAX_INLINE)]
    pinned = [block("keep me")]

    async def main(host: Host) -> None:
        heard: list[Any] = []
        results = [
            (await host.invoke(name, compaction(blocks, pinned), on_progress=heard.append)).value_or_raise()
            for name, blocks in (("c", small), ("c", large), ("d", large))
        ]
        assert [event["transport"] for event in heard] == ["inline", "artifact", "inline"]
        assert heard[1]["estimate"] == heard[2]["estimate"] > MAX_INLINE // 4
        assert [result["seed_blocks"] for result in results] == [[block("first"), block("keep me")]] * 3
        assert all(result["summary"]["text"].startswith("cmp_") for result in results)
        assert {record.chain_id for record in records(host)} == {"ch_1"}
        await until(lambda: not rooms(root))

    with_host(run, host_of(root), main)


@requirement("vai:host-seed")
def test_a_seed_that_breaks_a_rule_is_a_failure_and_not_tried_again(run: Run, tmp_path: Path) -> None:
    body = """
    def compactor(body, m):
        diagnostics = {"output_tokens_estimate": 1}
        succeed(m, {"seed_blocks": body["source"]["projection"]["blocks"], "diagnostics": diagnostics})
    """
    root = write_vai_plugin(tmp_path, body, [export("c", "compactor")])

    async def main(host: Host) -> None:
        too_long = await host.invoke("c", compaction([block("x" * 1000)], limit=100))
        unpaired = await host.invoke("c", compaction([{"kind": "tool_call", "tool_call_id": "c1", "name": "t"}]))
        for result, why in ((too_long, "host's estimate"), (unpaired, "has no result")):
            assert result.failure is not None and why in result.failure.message
            assert [(record.status, record.error_code) for record in result.invocations] == [
                ("failed", "compactor.invalid_seed")
            ]
        good = await host.invoke("c", compaction([block("x" * 1000)], limit=1000))
        assert good.value()["token_estimate"] <= 1000

    with_host(run, host_of(root), main)


def test_a_compactor_that_crashes_is_tried_again_under_the_same_id(run: Run, tmp_path: Path) -> None:
    body = (
        COUNTS
        + """
def compactor(body, m):
    if count() < 2:
        os._exit(3)
    succeed(m, {"seed_blocks": [{"kind": "input", "content": []}], "summary": {"text": body["compaction_id"]}})
"""
    )
    root = write_vai_plugin(tmp_path, body, [export("c", "compactor")])

    async def main(host: Host) -> None:
        result = await host.invoke("c", {**compaction([block("x")]), "compaction_id": "cmp_1"})
        assert result.value_or_raise()["summary"]["text"] == "cmp_1"
        assert [record.status for record in result.invocations] == ["retryable_failure", "succeeded"]

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-compactor-pinned")
def test_pinned_items_are_kept_by_a_compactor_that_supports_them_and_appended_for_any_other(
    run: Run, tmp_path: Path
) -> None:
    body = """
    def compactor(body, m):
        projection = body["source"]["projection"]
        kept = projection["pinned_items"] if "keeps" in body["config"] else []
        succeed(m, {"seed_blocks": [{"kind": "input", "content": []}, *kept]})
    """
    exports = [
        export("yes", "compactor", config_schema="schemas/any.json"),
        export("no", "compactor", own={"supports_pinned_items": False}),
    ]
    root = write_vai_plugin(tmp_path, body, exports)
    request = compaction([block("first")], [block("keep me")])

    async def main(host: Host) -> None:
        keeps = ExportBinding(config={"keeps": True})
        kept = await host.invoke("yes", request, binding=keeps)
        assert kept.value_or_raise()["seed_blocks"][1:] == [block("keep me")]
        lost = await host.invoke("yes", request)
        assert lost.failure is not None and "supports_pinned_items" in lost.failure.message
        assert lost.failure.detail["plugin_code"] == "compactor.invalid_seed"
        appended = await host.invoke("no", request)
        assert appended.value_or_raise()["seed_blocks"][1:] == [block("keep me")]

    with_host(run, host_of(root), main)


@requirement("vai:host-compactor-context")
def test_the_context_of_a_compactor_reaches_it_and_another_one_is_refused(run: Run, tmp_path: Path) -> None:
    body = """
    def compactor(body, m):
        succeed(m, {"seed_blocks": body["source"]["projection"]["blocks"], "target": body["target"]})
    """
    exports = [
        export("coding", "compactor"),
        export("general", "compactor", own={"target_context": "general"}),
        export("silent", "compactor", own={"target_context": ""}),
    ]
    root = write_vai_plugin(tmp_path, body, exports)
    request = compaction([block("first")])

    async def main(host: Host) -> None:
        async def target_of(name: str, **wanted: str) -> Any:
            asked = {**request, "target": {**request["target"], **wanted}}
            return (await host.invoke(name, asked)).value_or_raise()["target"].get("target_context")

        assert await target_of("coding") == await target_of("coding", target_context="coding") == "coding"
        assert await target_of("general", target_context="coding") == "coding"
        assert await target_of("general") == "general"
        assert (await target_of("silent"), await target_of("silent", target_context="tea")) == (None, "tea")
        refused = await host.invoke("coding", {**request, "target": {"max_input_tokens": 9, "target_context": "tea"}})
        assert refused.failure is not None and refused.failure.code == Code.INVALID_INPUT
        assert refused.failure.detail["plugin_code"] == "compactor.other_context"
        assert "'tea'" in refused.failure.message and "'coding'" in refused.failure.message

    with_host(run, host_of(root), main)


# Harnesses.

CHECKPOINT = {"kind": "checkpoint", "data": {"cursor": 12}}

SAYS = """
def harness(body, m):
    said = {name: body.get(name) for name in ("mode", "target", "trigger", "policy", "checkpoint")}
    result = {"checkpoint": {"kind": "checkpoint", "data": {"cursor": 12}}, "summary": {"text": "all done"}}
    succeed(m, {**result, "artifacts": [], "said": said})
"""


@requirement("vai:host-harness-modes")
def test_a_harness_is_started_with_its_target_and_its_trigger(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, SAYS, [export("x", "harness")])
    trigger = {"type": "user_request", "input": [{"type": "text", "text": "fix it"}]}
    policy = {"max_depth": 4, "max_child_runs": 12, "allow_compaction": True}

    async def main(host: Host) -> None:
        target = {"session_id": "sess_1", "chain_id": "ch_1", "execution_id": "exec_1"}
        result = await host.invoke("x", {"target": target, "trigger": trigger, "policy": policy})
        said = result.value_or_raise()["said"]
        assert said == {"mode": "start", "target": target, "trigger": trigger, "policy": policy, "checkpoint": None}
        (record,) = result.invocations
        assert (record.execution_id, record.session_id, record.chain_id) == ("exec_1", "sess_1", "ch_1")
        assert await host.invocations.checkpoints.load("exec_1") == ResumeState(trigger, CHECKPOINT, "all done", 1)

    with_host(run, host_of(root), main)


@requirement("vai:host-harness-resume")
@pytest.mark.parametrize(
    ("fidelity", "left", "expected"),
    [
        ("checkpoint", ResumeState({"type": "a"}, CHECKPOINT), {"trigger": {"type": "a"}, "checkpoint": CHECKPOINT}),
        ("lossless", ResumeState({"type": "a"}, CHECKPOINT), {"trigger": {"type": "a"}, "checkpoint": CHECKPOINT}),
        ("checkpoint", ResumeState({"type": "a"}), None),
        ("lossless", None, None),
        ("prompt_replay", ResumeState({"type": "a"}), {"trigger": {"type": "a"}, "checkpoint": None}),
        (
            "prompt_replay",
            ResumeState({"type": "a"}, CHECKPOINT, "so far"),
            {"trigger": {"type": "a"}, "checkpoint": None},
        ),
        ("prompt_replay", None, None),
        (
            "summary_reseed",
            ResumeState({"type": "a"}, CHECKPOINT, "so far"),
            {
                "trigger": {"type": "summary_reseed", "input": [{"type": "text", "text": "so far"}]},
                "checkpoint": None,
            },
        ),
        ("summary_reseed", ResumeState({"type": "a"}, CHECKPOINT), None),
    ],
)
def test_what_a_harness_goes_on_from_is_a_matter_of_its_fidelity(
    run: Run, tmp_path: Path, fidelity: str, left: ResumeState | None, expected: dict[str, Any] | None
) -> None:
    root = write_vai_plugin(tmp_path, SAYS, [export("x", "harness", own={"fidelity": fidelity})])
    checkpoints = MemoryCheckpoints()

    async def main(host: Host) -> None:
        if left is not None:
            await checkpoints.save("exec_1", left)
        result = await host.invoke("x", {"mode": "resume", "target": {"execution_id": "exec_1"}})
        if expected is None:
            assert result.failure is not None and result.failure.code == Code.NOT_FOUND
            assert [record.error_code for record in result.invocations] == ["harness.nothing_to_resume"]
        else:
            said = result.value_or_raise()["said"]
            assert said["mode"] == "resume" and {name: said[name] for name in expected} == expected

    with_host(run, host_of(root, checkpoints=checkpoints), main)


@requirement("vai:host-harness-resume")
def test_a_prompt_replay_repeats_the_recorded_input_and_no_other(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, SAYS, [export("x", "harness", own={"fidelity": "prompt_replay"})])
    first = {"type": "user_request", "input": [{"type": "text", "text": "fix it"}]}

    async def main(host: Host) -> None:
        await host.invoke("x", {"trigger": first}, execution_id="exec_1")
        again = {"mode": "resume", "target": {"execution_id": "exec_1"}, "trigger": {"type": "another"}}
        said = (await host.invoke("x", again)).value_or_raise()["said"]
        assert (said["mode"], said["trigger"], said["checkpoint"]) == ("resume", first, None)

    with_host(run, host_of(root), main)


@requirement("vai:host-harness-resume")
def test_the_summary_of_a_failed_harness_is_kept_for_its_reseed(run: Run, tmp_path: Path) -> None:
    body = """
    def harness(body, m):
        if body["mode"] == "resume":
            return succeed(m, {"said": body["trigger"], "artifacts": []})
        respond(m, status="failed", error={"code": "x", "message": "y"}, result={"summary": {"text": "half done"}})
    """
    root = write_vai_plugin(tmp_path, body, [export("x", "harness", own={"fidelity": "summary_reseed"})])

    async def main(host: Host) -> None:
        assert (await host.invoke("x", {}, execution_id="exec_1")).status == "failed"
        resumed = await host.invoke("x", {"mode": "resume", "target": {"execution_id": "exec_1"}})
        text = {"type": "text", "text": "half done"}
        assert resumed.value_or_raise()["said"] == {"type": "summary_reseed", "input": [text]}

    with_host(run, host_of(root), main)


@requirement("vai:host-harness-supports")
def test_a_harness_is_held_to_what_its_manifest_supports(run: Run, tmp_path: Path) -> None:
    body = """
    def harness(body, m):
        if body["config"]:
            send(type="event", request_id=m["id"], event={"type": "checkpoint", "checkpoint": {"kind": "k", "data": 1}})
            os._exit(3)
        succeed(m, {"checkpoint": {"kind": "k", "data": 1}, "policy": body["policy"], "artifacts": []})
    """
    scopes = {"network": "egress", "gateway_api_scopes": ["chains:write"]}
    exports = [
        export("tools", "harness", own={"supports": ["tool"]}, permissions=scopes, config_schema="schemas/any.json"),
        export("all", "harness", own={"supports": []}, permissions=scopes),
    ]
    root = write_vai_plugin(tmp_path, body, exports)
    tokens = MemoryTokens()
    policy = {"max_depth": 4, "max_child_runs": 12, "allow_compaction": True}

    async def main(host: Host) -> None:
        host.invocations.gateway = Gateway("http://127.0.0.1:1", tokens)
        done = await host.invoke("tools", {"policy": policy}, execution_id="exec_1")
        assert done.value_or_raise()["policy"] == {**policy, "allow_compaction": False}
        free = await host.invoke("all", {"policy": policy}, execution_id="exec_2")
        assert free.value_or_raise()["policy"] == policy
        resumed = await host.invoke("tools", {"mode": "resume", "target": {"execution_id": "exec_1"}})
        assert resumed.failure is not None and resumed.failure.detail["plugin_code"] == "harness.not_supported"
        assert "continue" in resumed.failure.message
        assert (await host.invoke("all", {"mode": "resume", "target": {"execution_id": "exec_2"}})).failure is None
        # A crash goes on from the checkpoint by a resume, so it ends here.
        crashed = await host.invoke("tools", {}, binding=ExportBinding(config={"crash": True}))
        assert len(crashed.invocations) == 1

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-harness-mode")
def test_a_harness_of_a_mode_that_the_host_does_not_have_is_not_started(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, SAYS, [export("x", "harness", own={"mode": "swarm"})])

    async def main(host: Host) -> None:
        refused = await host.invoke("x", {})
        assert refused.failure is not None and refused.failure.code == Code.UNAVAILABLE
        assert refused.failure.detail["plugin_code"] == "harness.unsupported_mode"
        assert "'swarm'" in refused.failure.message and "composite" in refused.failure.message
        assert refused.invocation is not None and refused.invocation.status == "failed"

    with_host(run, host_of(root), main)


@requirement("vai:host-harness-checkpoint")
def test_a_checkpoint_is_kept_while_the_harness_runs_and_a_crash_goes_on_from_it(run: Run, tmp_path: Path) -> None:
    body = (
        COUNTS
        + """
def harness(body, m):
    if count() == 1:
        send(type="event", request_id=m["id"], event={"type": "checkpoint", "checkpoint": {"kind": "k", "data": 7}})
        while not os.path.exists("go"):
            time.sleep(0.005)
        os._exit(3)
    succeed(m, {"said": [body["mode"], body["checkpoint"]], "artifacts": []})
"""
    )
    root = write_vai_plugin(tmp_path, body, [export("x", "harness")])

    async def main(host: Host) -> None:
        task = asyncio.ensure_future(host.invoke("x", {}, execution_id="exec_1"))
        kept = host.invocations.checkpoints._states  # type: ignore[attr-defined]
        await until(lambda: kept.get("exec_1", ResumeState()).checkpoint is not None)
        assert not task.done()
        (root / "go").touch()
        result = await task
        assert result.value_or_raise()["said"] == ["resume", {"kind": "k", "data": 7}]
        assert [record.status for record in result.invocations] == ["retryable_failure", "succeeded"]

    with_host(run, raw_host_of(root), main)


@pytest.mark.parametrize("status", ["retryable_failure", "cancelled"])
def test_a_checkpoint_that_comes_with_a_failure_is_kept_too(run: Run, tmp_path: Path, status: str) -> None:
    body = (
        COUNTS
        + f"""
def harness(body, m):
    if count() == 1:
        end(m, {status!r}, result={{"checkpoint": {{"kind": "k", "data": 7}}}})
    else:
        succeed(m, {{"said": body.get("checkpoint"), "artifacts": []}})
"""
    )
    root = write_vai_plugin(tmp_path, body, [export("x", "harness")])

    async def main(host: Host) -> None:
        result = await host.invoke("x", {}, execution_id="exec_1")
        assert len(result.invocations) == (2 if status == "retryable_failure" else 1)
        state = await host.invocations.checkpoints.load("exec_1")
        assert state is not None and state.checkpoint == {"kind": "k", "data": 7}

    with_host(run, raw_host_of(root), main)


def test_a_harness_without_a_checkpoint_is_never_started_again(run: Run, tmp_path: Path) -> None:
    body = COUNTS + "\ndef harness(body, m):\n    count()\n    os._exit(3)\n"
    root = write_vai_plugin(tmp_path, body, [export("x", "harness")])

    async def main(host: Host) -> None:
        result = await host.invoke("x", {})
        assert result.status == "failed" and len(result.invocations) == 1 and (root / "count").read_text() == "x"

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-harness-checkpoint")
def test_a_checkpoint_that_is_none_or_too_large_is_not_kept(run: Run, tmp_path: Path) -> None:
    body = f"""
    LARGE = {{"kind": "k", "data": "x" * {MAX_CHECKPOINT}}}

    def harness(body, m):
        for checkpoint in (LARGE, "text", {{"data": 1}}):
            send(type="event", request_id=m["id"], event={{"type": "checkpoint", "checkpoint": checkpoint}})
        succeed(m, {{"checkpoint": LARGE if body["trigger"]["type"] == "large" else None, "artifacts": []}})
    """
    root = write_vai_plugin(tmp_path, body, [export("x", "harness")])

    async def main(host: Host) -> None:
        assert (await host.invoke("x", {}, execution_id="exec_1")).status == "succeeded"
        state = await host.invocations.checkpoints.load("exec_1")
        assert state is not None and state.checkpoint is None
        assert host.journal.counts("acme/p")["event_refused"] == 3
        result = await host.invoke("x", {"trigger": {"type": "large"}})
        assert [record.error_code for record in result.invocations] == ["harness.invalid_checkpoint"]

    with_host(run, host_of(root), main)


def test_no_org_goes_on_from_what_another_one_left_under_the_same_id(run: Run, tmp_path: Path) -> None:
    body = """
    def harness(body, m):
        mine = {"kind": "k", "data": body["context"]["org_id"]}
        succeed(m, {"checkpoint": body.get("checkpoint") or mine, "artifacts": []})
    """
    root = write_vai_plugin(tmp_path, body, [export("x", "harness")])
    resume = {"mode": "resume", "target": {"execution_id": "exec_1"}}

    async def main(host: Host) -> None:
        await host.invoke("x", {"target": {"execution_id": "exec_1"}}, org_id="org_1")
        others: tuple[dict[str, Any], ...] = ({"org_id": "org_2"}, {}, {"binding": ExportBinding(org_id="org_2")})
        own: tuple[dict[str, Any], ...] = ({"org_id": "org_1"}, {"binding": ExportBinding(org_id="org_1")})
        for fields in others:
            refused = await host.invoke("x", resume, **fields)
            assert refused.invocation is not None and refused.invocation.error_code == "harness.nothing_to_resume"
        for fields in own:
            resumed = await host.invoke("x", resume, **fields)
            assert resumed.value_or_raise()["checkpoint"] == {"kind": "k", "data": "org_1"}

    with_host(run, host_of(root), main)


@requirement("vai:host-harness-policy")
def test_the_limits_of_a_harness_are_in_the_claims_of_its_token(run: Run, tmp_path: Path) -> None:
    body = "def harness(body, m):\n    event(m)\n    succeed(m, {'artifacts': []})\n"
    asked = {"network": "egress", "gateway_api_scopes": ["runs:write"]}
    root = write_vai_plugin(tmp_path, body, [export("x", "harness", permissions=asked)])
    policy = {"max_depth": 4, "max_child_runs": 12, "allow_compaction": False}
    tokens = MemoryTokens()
    seen: list[Any] = []

    async def main(host: Host) -> None:
        host.invocations.gateway = Gateway("https://gateway.example", tokens)
        await host.invoke(
            "x", {"policy": policy}, execution_id="exec_1", on_progress=lambda _: seen.extend(tokens._claims.values())
        )
        assert [(claims["policy"], claims["execution_id"]) for claims in seen] == [(policy, "exec_1")]

    with_host(run, host_of(root), main)


@requirement("vai:host-harness-artifacts")
def test_what_a_harness_leaves_is_picked_up_before_its_room_is_gone(run: Run, tmp_path: Path) -> None:
    body = """
    import hashlib

    def harness(body, m):
        path = os.path.join(body["context"]["scratch_dir"], "report.md")
        with open(path, "wb") as file:
            file.write(b"# Done")
        digest = hashlib.sha256(b"# Done").hexdigest() if body["trigger"]["type"] == "good" else "0" * 64
        ref = {"path": "report.md", "media_type": "text/markdown", "size_bytes": 6, "sha256": digest}
        succeed(m, {"artifacts": [ref]})
    """
    exports = [export("x", "harness", permissions=SCRATCH), export("y", "harness")]
    root = write_vai_plugin(tmp_path, body, exports)

    async def main(host: Host) -> None:
        result = await host.invoke("x", {"trigger": {"type": "good"}})
        (ref,) = result.value_or_raise()["artifacts"]
        assert ref["asset_id"] == f"asset_{hashlib.sha256(b'# Done').hexdigest()}"
        await until(lambda: not rooms(root))
        assert host.invocations.artifacts.path(ref["asset_id"]).read_bytes() == b"# Done"
        bad = await host.invoke("x", {"trigger": {"type": "bad"}})
        assert [record.error_code for record in bad.invocations] == ["harness.invalid_artifact"]

    with_host(run, host_of(root), main)


def test_a_harness_without_a_room_leaves_no_artifacts(run: Run, tmp_path: Path) -> None:
    body = "def harness(body, m): succeed(m, {'artifacts': [{'path': '/etc/hostname'}]})"
    root = write_vai_plugin(tmp_path, body, [export("x", "harness")])

    async def main(host: Host) -> None:
        result = await host.invoke("x", {})
        assert [record.error_code for record in result.invocations] == ["harness.invalid_artifact"]

    with_host(run, host_of(root), main)


def test_the_id_of_work_can_be_an_id(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, SAYS, [export("x", "harness")])

    async def main(host: Host) -> None:
        result = await host.invoke("x", {"target": {"execution_id": "../../etc"}})
        assert result.failure is not None and result.failure.code == Code.INVALID_INPUT

    with_host(run, host_of(root), main)
