"""Invocations in real processes that speak plain Content-Length frames."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plugbay import CallFailed, Host
from plugbay.host.limits import QUEUE_SECONDS
from plugbay.host.ports import InvocationRecord
from plugbay.host.request import CallRequest, ExportBinding, Policy
from plugbay.model.errors import Code, Failure
from tests.support.invoking import COUNTS, SCRATCH, alive, host_of, raw_host_of, records, rooms, with_host
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.vai import FAILS, LEFT, export, write_vai_plugin

IGNORES = """
def cancelled(m):
    with open("cancels", "a") as file:
        file.write(m["reason"] + "\\n")

def tool(body, m):
    sleepers = [subprocess.Popen(["sleep", "600"], start_new_session=away) for away in (False, True)]
    pids = [os.getpid(), *(sleeper.pid for sleeper in sleepers)]
    with open("pids.part", "w") as file:
        file.write(" ".join(map(str, pids)))
    os.rename("pids.part", "pids")
"""
"""A handler that forks, once even out of its group, and does not listen."""


@requirement("vai:host-context")
def test_the_plugin_is_told_who_asks_what_it_may_do_and_until_when(run: Run, tmp_path: Path) -> None:
    body = "def tool(body, m): succeed(m, output(body))"
    root = write_vai_plugin(tmp_path, body, [export(permissions=SCRATCH, default_timeout_ms=9_000)])

    async def main(host: Host) -> None:
        ids: dict[str, Any] = {
            "session_id": "sess_1",
            "chain_id": "ch_1",
            "run_id": "run_1",
            "org_id": "org_1",
            "project_id": "proj_1",
        }
        result = await host.invoke("t", {"q": "ü"}, trace_id="tr_1", execution_id="toolx_1", **ids)
        said = result.value_or_raise()["structured_output"]
        record = result.invocation
        assert record is not None and said["input"] == {"q": "ü"} and said["export_id"] == "t"
        assert said["tool_execution_id"] == "toolx_1" and said["config"] == {} and said["secrets"] == {}
        context = said["context"]
        assert context["invocation_id"] == record.invocation_id and record.invocation_id.startswith("inv_")
        assert {name: context[name] for name in ids} == ids and context["trace_id"] == "tr_1"
        assert record.started_at < context["deadline_at"] and context["deadline_at"].endswith("Z")
        assert Path(context["scratch_dir"]).name == record.invocation_id
        assert context["gateway"] == {"base_url": None, "delegation_token": None, "scopes": []}
        assert context["permissions"] == {"network": "none", "filesystem": "scratch"}

    with_host(run, raw_host_of(root), main)


WAITS = """
def tool(body, m):
    while not os.path.exists(body["input"]["go"]):
        time.sleep(0.005)
    succeed(m, output({}))
"""
"""A handler that runs until its test lets it go."""


def test_an_invocation_that_would_queue_for_too_long_is_refused_and_a_patient_one_waits(
    run: Run, tmp_path: Path
) -> None:
    root = write_vai_plugin(tmp_path, WAITS, [export(execution_class="worker", max_concurrency=1)])
    first, rest = {"go": str(tmp_path / "first")}, {"go": str(tmp_path / "rest")}

    async def main(host: Host) -> None:
        running = asyncio.ensure_future(host.invoke("t", first))
        queued = [asyncio.ensure_future(host.invoke("t", rest)) for _ in range(3)]
        await until(lambda: len(records(host)) == 4)
        waited = await host.invoke("t", rest, queue_seconds=0.01)
        assert waited.failure is not None and QUEUE_SECONDS in waited.failure.detail
        assert (waited.failure.code, waited.status) == (Code.OVERLOADED, "retryable_failure")
        assert len(waited.invocations) == 1, "the pace of the queue was unknown, so it waited; it was not tried again"

        (tmp_path / "first").touch()
        assert (await running).status == "succeeded"
        refused = await host.invoke("t", rest, queue_seconds=1e-9)
        assert refused.failure is not None and QUEUE_SECONDS in refused.failure.detail
        assert refused.failure.plugin == "acme/p" and refused.failure.retry_after_ms
        assert refused.invocations == () and len(records(host)) == 5, "refused at once, without a record"

        patient = asyncio.ensure_future(host.invoke("t", rest, queue_seconds=600))
        await until(lambda: len(records(host)) == 6)
        (tmp_path / "rest").touch()
        assert {result.status for result in await asyncio.gather(patient, *queued)} == {"succeeded"}

    with_host(run, raw_host_of(root), main)


def test_a_plain_call_has_defaults_for_everything(run: Run, tmp_path: Path) -> None:
    body = "def tool(body, m): succeed(m, output(body['context']))"
    root = write_vai_plugin(tmp_path, body)

    async def main(host: Host) -> None:
        said = (await host.call("acme/p/t", {}, context={"run_id": "run_1"}))["structured_output"]
        assert (said["org_id"], said["project_id"], said["run_id"]) == ("default", "default", "run_1")
        assert said["session_id"] is said["chain_id"] is said["scratch_dir"] is None
        with pytest.raises(CallFailed, match="invocation_id is not one of"):
            await host.call("t", {}, context={"invocation_id": "inv_mine"})
        with pytest.raises(CallFailed, match="org_id must have no slash"):
            await host.call("t", {}, context={"org_id": "../other"})

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-record")
def test_the_record_says_what_was_done_for_whom_and_how_it_ended(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        event(m, message="one")
        event(m, message="two")
        succeed(m, output({}))
    """
    root = write_vai_plugin(tmp_path, body, [export(execution_class="worker")], version="2.1.0")

    async def main(host: Host) -> None:
        binding = ExportBinding("bind_1", org_id="org_1", project_id="proj_1")
        result = await host.invoke("t", {}, binding=binding, session_id="sess_1", chain_id="ch_1", run_id="run_1")
        (record,) = records(host)
        assert result.invocations == (record,) and result.status == "succeeded"
        told = record.to_json()
        assert {name: told[name] for name in told if name.endswith("_id") and name != "invocation_id"} == {
            "trace_id": record.trace_id,
            "export_id": "t",
            "package_id": "acme/p",
            "binding_id": "bind_1",
            "org_id": "org_1",
            "project_id": "proj_1",
            "session_id": "sess_1",
            "chain_id": "ch_1",
            "run_id": "run_1",
            "execution_id": record.execution_id,
        }
        assert record.trace_id.startswith("tr_") and record.execution_id.startswith("toolx_")
        assert (record.export_kind, record.package_version, record.execution_class) == ("tool", "2.1.0", "worker")
        assert (record.status, record.status_reason, record.error_code) == ("succeeded", None, None)
        assert (record.retry_count, record.event_count, record.request_bytes) == (0, 2, 2)
        assert record.ended_at is not None and record.started_at <= record.ended_at

    with_host(run, raw_host_of(root), main)


# Deadlines and cancelling.


@requirement("vai:host-deadline-kill")
@pytest.mark.parametrize("execution_class", ["isolated", "inline"])
def test_a_handler_that_ignores_its_deadline_leaves_no_process_and_no_scratch(
    run: Run, tmp_path: Path, execution_class: str
) -> None:
    root = write_vai_plugin(tmp_path, IGNORES, [export(permissions=SCRATCH, execution_class=execution_class)])
    pids: list[int] = []

    async def main(host: Host) -> None:
        await until(lambda: host.plugins()[0].ready >= 1)
        result = await host.invoke("t", {}, timeout=3)
        assert result.failure is not None and result.failure.code == Code.TIMEOUT
        (record,) = result.invocations
        assert (record.status, record.status_reason) == ("cancelled", "deadline_exceeded")
        assert (root / "cancels").read_text() == "deadline_exceeded\n"
        pids.extend(map(int, (root / "pids").read_text().split()))
        await until(lambda: not any(map(alive, pids)))
        await until(lambda: not rooms(root))

    # The plugin notes its pids within the timeout and the cancel within the grace, however busy the machine is.
    with_host(run, raw_host_of(root, "pool = 1\ntimeouts = { grace = 3, teardown = 0.1 }"), main)
    assert len(pids) == 3 and not rooms(root)


def test_a_plugin_whose_own_clock_is_early_has_met_the_same_deadline(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        end(m, "cancelled", "deadline_exceeded")
    """
    root = write_vai_plugin(tmp_path, body)

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        (record,) = result.invocations
        assert result.failure is not None and result.failure.code == Code.TIMEOUT
        assert (record.status, record.status_reason) == ("cancelled", "deadline_exceeded")

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-grace-succeeded")
@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        ("succeed(m, output({}))", "succeeded", None),
        ('end(m, "cancelled")', "cancelled", Code.TIMEOUT),
        ('end(m, "failed", "acme.broken")', "failed", Code.PLUGIN_ERROR),
        ("os._exit(1)", "cancelled", Code.CRASHED),
    ],
)
def test_what_a_plugin_makes_of_its_grace_counts(
    run: Run, tmp_path: Path, answer: str, status: str, code: str | None
) -> None:
    body = f"""
    def tool(body, m):
        cancels[m["id"]].wait()

    def cancelled(m):
        {answer}
    """
    root = write_vai_plugin(tmp_path, body)

    async def main(host: Host) -> None:
        await until(lambda: host.plugins()[0].ready == 1)
        result = await host.invoke("t", {}, timeout=0.5)
        (record,) = result.invocations
        assert (result.status, record.status) == (status, status)
        assert record.status_reason == ("deadline_exceeded" if status == "cancelled" else None)
        assert (None if result.failure is None else result.failure.code) == code

    with_host(run, raw_host_of(root, "pool = 1"), main)


@requirement("vai:host-cancel")
def test_an_invocation_is_cancelled_by_its_id(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        event(m, message="begun")

    def cancelled(m):
        end(m, "cancelled", message=m["reason"])
    """
    root = write_vai_plugin(tmp_path, body)

    async def main(host: Host) -> None:
        begun = asyncio.Event()
        task = asyncio.ensure_future(host.invoke("t", {}, on_progress=lambda _: begun.set()))
        await begun.wait()
        (record,) = records(host)
        assert host.invocations.cancel(record.invocation_id, "run_cancelled")
        assert not host.invocations.cancel(record.invocation_id)
        result = await task
        assert result.failure is not None and result.failure.code == Code.CANCELLED
        assert result.failure.message == "run_cancelled"
        assert result.invocation is not None
        assert (result.invocation.status, result.invocation.status_reason) == ("cancelled", "run_cancelled")
        assert not host.invocations.cancel(record.invocation_id)
        assert not host.invocations.cancel("inv_unknown")

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-record-closed")
def test_a_caller_that_goes_away_cancels_its_invocation_which_still_has_its_grace(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        event(m, message="begun")

    def cancelled(m):
        open("cancelled", "w").close()
        end(m, "cancelled")
    """
    root = write_vai_plugin(tmp_path, body, [export(permissions=SCRATCH)])

    async def main(host: Host) -> None:
        begun = asyncio.Event()
        task = asyncio.ensure_future(host.attempt("t", {}, on_progress=lambda _: begun.set()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: records(host)[0].status is not None)
        (record,) = records(host)
        assert (record.status, record.status_reason) == ("cancelled", "user_cancelled")
        assert (root / "cancelled").exists()
        await until(lambda: not rooms(root))

    with_host(run, raw_host_of(root), main)


def test_an_invocation_that_is_cancelled_while_it_waits_for_its_turn_never_reaches_the_plugin(
    run: Run, tmp_path: Path
) -> None:
    body = COUNTS + "\ndef tool(body, m):\n    count()\n    event(m)\n    cancels[m['id']].wait()\n"
    root = write_vai_plugin(tmp_path, body, [export(execution_class="worker", max_concurrency=1)])

    async def main(host: Host) -> None:
        begun = asyncio.Event()
        first = asyncio.ensure_future(host.invoke("t", {}, on_progress=lambda _: begun.set()))
        await begun.wait()
        second = asyncio.ensure_future(host.invoke("t", {}))
        await until(lambda: len(records(host)) == 2)
        await asyncio.sleep(0)
        waiting = records(host)[1].invocation_id
        assert host.invocations.cancel(waiting)
        result = await second
        assert result.invocation is not None and result.invocation.status_reason == "user_cancelled"
        assert host.invocations.cancel(records(host)[0].invocation_id)
        await first
        assert (root / "count").read_text() == "x"

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-record-closed")
def test_what_runs_when_the_host_stops_is_cancelled_and_its_record_is_closed(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        event(m, message="begun")
    """
    root = write_vai_plugin(tmp_path, body, [export(permissions=SCRATCH)])

    async def main() -> None:
        host = raw_host_of(root)
        await host.start()
        begun = asyncio.Event()
        task = asyncio.ensure_future(host.invoke("t", {}, on_progress=lambda _: begun.set()))
        await begun.wait()
        await host.stop()
        result = await task
        (record,) = records(host)
        assert result.invocations == (record,)
        assert (record.status, record.status_reason) == ("cancelled", "host_shutdown")
        assert not rooms(root)
        late = await host.invoke("t", {})
        assert late.failure is not None and late.failure.code == Code.UNAVAILABLE and late.invocations == ()

    run(main)


# Beginnings that fail.


@requirement("vai:host-record-closed")
def test_a_program_that_cannot_be_started_leaves_a_record(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path)

    async def main(host: Host) -> None:
        (root / "bin" / "plugin").unlink()
        result = await host.invoke("t", {})
        (record,) = records(host)
        assert result.invocations == (record,)
        assert (record.status, record.error_code) == ("failed", Code.LAUNCH_FAILED)

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-identity")
@pytest.mark.parametrize("execution_class", ["isolated", "worker"])
@pytest.mark.parametrize("said", ['"acme/other", "version": VERSION', 'PACKAGE, "version": "1.0.1"'])
def test_a_plugin_that_says_it_is_another_is_killed_before_it_is_asked_anything(
    run: Run, tmp_path: Path, execution_class: str, said: str
) -> None:
    body = f"""
    def hello(m):
        send(type="hello", role="plugin", plugin={{"package_id": {said}}})

    def tool(body, m):
        open("asked", "w").close()
        succeed(m, output({{}}))
    """
    root = write_vai_plugin(tmp_path, body, [export(execution_class=execution_class)])

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        assert result.failure is not None and result.failure.code == Code.HANDSHAKE_FAILED
        (record,) = records(host)
        assert (record.status, record.error_code) == ("failed", "plugin.identity_mismatch")
        assert host.journal.counts("acme/p")["greeting_refused"] == 1

    with_host(run, raw_host_of(root), main)
    assert not (root / "asked").exists()


def test_a_plugin_that_never_says_hello_leaves_a_record(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, "def hello(m): pass")

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        (record,) = records(host)
        assert result.failure is not None and (record.status, record.error_code) == ("failed", Code.TIMEOUT)

    with_host(run, raw_host_of(root, "timeouts = { handshake = 0.3 }"), main)


@requirement("vai:host-tool-input")
def test_an_input_that_does_not_fit_never_becomes_an_invocation(run: Run, tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["q"]}
    root = write_vai_plugin(tmp_path, exports=[export(own={"input_schema": "schemas/q.json"})], schemas={"q": schema})

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        assert result.failure is not None and result.failure.code == Code.INVALID_INPUT
        assert result.invocation is None and result.status == "failed" and records(host) == []
        assert (await host.invoke("t", {"q": 1})).status == "succeeded"

    with_host(run, raw_host_of(root), main)


def test_a_plugin_that_nobody_granted_anything_is_pending(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(permissions=SCRATCH)])

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        assert result.failure is not None and result.failure.code == Code.CAPABILITY_NOT_ALLOWED
        assert records(host) == []

    with_host(run, raw_host_of(root, grant_all=False), main)


# ConcurrencyLimit.


@requirement("vai:host-max-concurrency")
def test_no_child_is_asked_more_at_once_than_it_can_do_and_answers_come_in_any_order(run: Run, tmp_path: Path) -> None:
    body = """
    running = most = 0
    gate, full, others = threading.Lock(), threading.Event(), threading.Semaphore(0)

    def tool(body, m):
        global running, most
        n = body["input"]["n"]
        with gate:
            running += 1
            most = max(most, running)
            full.set() if running == 4 else None
        full.wait()
        for _ in range(3 if n == 0 else 0):
            others.acquire()
        with gate:
            running -= 1
            succeed(m, output({"n": n, "most": most, "pid": os.getpid()}))
        others.release()
    """
    root = write_vai_plugin(tmp_path, body, [export(execution_class="worker", max_concurrency=4)])

    async def main(host: Host) -> None:
        said = await asyncio.gather(*(host.call("t", {"n": number}) for number in range(10)))
        values = [item["structured_output"] for item in said]
        assert [value["n"] for value in values] == list(range(10))
        assert max(value["most"] for value in values) == 4 and len({value["pid"] for value in values}) == 1

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-max-concurrency")
def test_a_binding_narrows_how_much_runs_at_once_and_the_wait_counts_against_the_deadline(
    run: Run, tmp_path: Path
) -> None:
    body = "def tool(body, m):\n    event(m)\n    cancels[m['id']].wait()\n"
    root = write_vai_plugin(tmp_path, body, [export(execution_class="worker", max_concurrency=4)])

    async def main(host: Host) -> None:
        binding = ExportBinding("bind_1", policy=Policy(max_concurrency=1))
        begun = asyncio.Event()
        first = asyncio.ensure_future(host.invoke("t", {}, binding=binding, on_progress=lambda _: begun.set()))
        await begun.wait()
        second = await host.invoke("t", {}, binding=binding, timeout=0.2)
        assert second.failure is not None and second.failure.code == Code.OVERLOADED
        assert second.invocation is not None
        assert (second.invocation.status, second.invocation.status_reason) == ("cancelled", "deadline_exceeded")
        free = asyncio.Event()
        other = asyncio.ensure_future(host.invoke("t", {}, on_progress=lambda _: free.set()))
        await free.wait()
        for record in records(host):
            host.invocations.cancel(record.invocation_id)
        await asyncio.gather(first, other)

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-max-concurrency")
def test_who_waits_for_its_own_binding_takes_no_turn_from_the_orgs_other_bindings(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        event(m)
        if body["input"].get("long"):
            cancels[m["id"]].wait()
        succeed(m, output({}))

    def cancelled(m): pass
    """
    root = write_vai_plugin(tmp_path, body, [export(execution_class="worker", max_concurrency=2)])

    async def main(host: Host) -> None:
        narrow = ExportBinding("bind_1", policy=Policy(max_concurrency=1))
        begun = asyncio.Event()
        first = asyncio.ensure_future(
            host.invoke("t", {"long": True}, binding=narrow, on_progress=lambda _: begun.set())
        )
        await begun.wait()
        waiting = asyncio.ensure_future(host.invoke("t", {}, binding=narrow))
        await until(lambda: len(records(host)) == 2)
        assert (await host.invoke("t", {}, binding=ExportBinding("bind_2"))).status == "succeeded"
        host.invocations.cancel(records(host)[0].invocation_id)
        assert [(await first).status, (await waiting).status] == ["succeeded", "succeeded"]

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-deadline-min")
def test_work_whose_time_is_over_never_reaches_a_plugin_that_is_ready_for_it(run: Run, tmp_path: Path) -> None:
    body = COUNTS + "\ndef tool(body, m):\n    count()\n    succeed(m, output({}))\n"
    root = write_vai_plugin(tmp_path, body, [export(execution_class="worker", own={"effect_class": "unknown"})])

    async def main(host: Host) -> None:
        assert (await host.invoke("t", {})).status == "succeeded"
        late = await host.invoke("t", {}, timeout=0)
        assert late.failure is not None and late.failure.code == Code.TIMEOUT
        assert "execution_outcome" not in late.failure.detail
        assert late.invocation is not None
        assert (late.invocation.status, late.invocation.status_reason) == ("cancelled", "deadline_exceeded")
        assert (await host.invoke("t", {})).status == "succeeded"
        assert (root / "count").read_text() == "xx"

    with_host(run, raw_host_of(root), main)


# What a plugin says too much.


@requirement("vai:host-late-frames")
def test_a_second_response_and_an_event_after_it_are_dropped_counted_and_survived(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        succeed(m, output(1))
        succeed(m, output(2))
        event(m, message="late")
        send(type="event", request_id="req_999", event={"type": "progress"})
    """
    root = write_vai_plugin(tmp_path, body, [export(execution_class="worker")])

    async def main(host: Host) -> None:
        heard: list[Any] = []
        for _ in range(2):
            result = await host.invoke("t", {}, on_progress=heard.append)
            assert result.value()["structured_output"] == 1
        await until(lambda: host.journal.counts("acme/p").get("noise", 0) >= 6)
        assert heard == [] and host.plugins()[0].generation == 1

    with_host(run, raw_host_of(root), main)


def test_events_reach_the_caller_before_the_answer(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        for n in range(3):
            event(m, type="output_delta", content=[{"type": "text", "text": str(n)}])
        succeed(m, output({}))
    """
    root = write_vai_plugin(tmp_path, body, [export(own={"streaming": True})])

    async def main(host: Host) -> None:
        async with host.stream("t", {}) as stream:
            pieces = [piece["content"][0]["text"] async for piece in stream]
            assert pieces == ["0", "1", "2"] and stream.result["is_error"] is False

    with_host(run, raw_host_of(root), main)


def test_a_caller_whose_callback_fails_ends_its_own_call_only(run: Run, tmp_path: Path) -> None:
    body = (
        "def tool(body, m):\n    event(m)\n    cancels[m['id']].wait() if body['input'] else succeed(m, output({}))\n"
    )
    root = write_vai_plugin(tmp_path, body, [export(execution_class="worker")])

    def fails(event: Any) -> None:
        raise RuntimeError("a bug of the caller's")

    async def main(host: Host) -> None:
        result = await host.invoke("t", {"hang": True}, on_progress=fails)
        assert result.failure is not None and result.failure.code == Code.INTERNAL
        assert "a bug of the caller's" in result.failure.message
        assert (await host.invoke("t", {})).status == "succeeded" and host.plugins()[0].generation == 1

    with_host(run, raw_host_of(root), main)


# Attempts.


@requirement("vai:host-tool-retry")
@pytest.mark.parametrize("execution_class", ["isolated", "worker"])
@pytest.mark.parametrize("effect_class", ["read_only", "idempotent_write"])
@pytest.mark.parametrize(
    "failing",
    ["os._exit(3)", 'end(m, "retryable_failure")', "succeed(m, output(None, is_error=True, retryable=True))"],
)
def test_work_that_may_be_repeated_is_tried_again_under_the_same_execution_id(
    run: Run, tmp_path: Path, execution_class: str, effect_class: str, failing: str
) -> None:
    body = (
        COUNTS
        + f"""
def tool(body, m):
    if count() < 3:
        {failing}
    else:
        succeed(m, output([body["tool_execution_id"], body["context"]["trace_id"]]))
"""
    )
    own = {"effect_class": effect_class}
    root = write_vai_plugin(tmp_path, body, [export(execution_class=execution_class, own=own)])

    async def main(host: Host) -> None:
        result = await host.invoke("t", {}, execution_id="toolx_1")
        attempts = result.invocations
        assert result.value_or_raise()["structured_output"] == ["toolx_1", attempts[0].trace_id]
        assert [record.retry_count for record in attempts] == [0, 1, 2]
        assert len({record.invocation_id for record in attempts}) == 3
        assert {(record.trace_id, record.execution_id) for record in attempts} == {(attempts[0].trace_id, "toolx_1")}
        assert records(host) == list(attempts) and attempts[-1].status == "succeeded"

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-tool-retry")
@pytest.mark.parametrize("effect_class", ["non_idempotent_write", "unknown"])
@pytest.mark.parametrize(
    ("failing", "status"), [("os._exit(3)", "failed"), ('end(m, "retryable_failure")', "retryable_failure")]
)
def test_work_that_must_not_be_repeated_is_done_once_whatever_the_plugin_says(
    run: Run, tmp_path: Path, effect_class: str, failing: str, status: str
) -> None:
    body = COUNTS + f"\ndef tool(body, m):\n    count()\n    {failing}\n"
    root = write_vai_plugin(tmp_path, body, [export(own={"effect_class": effect_class})])

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        assert result.status == status and len(result.invocations) == 1
        assert result.failure is not None
        assert result.failure.detail.get("execution_outcome") == ("unknown" if status == "failed" else None)
        assert (root / "count").read_text() == "x"

    with_host(run, raw_host_of(root), main)


def test_the_last_attempt_is_the_outcome(run: Run, tmp_path: Path) -> None:
    body = COUNTS + "\ndef tool(body, m):\n    succeed(m, output({'n': count()}, is_error=True, retryable=True))\n"
    root = write_vai_plugin(tmp_path, body)

    async def main(host: Host) -> None:
        result = await host.invoke("t", {})
        assert result.value()["structured_output"] == {"n": 3} and result.value()["is_error"]
        assert [record.status for record in result.invocations] == ["succeeded"] * 3

    with_host(run, raw_host_of(root), main)


LATER = """
def tool(body, m):
    error = {"code": "a.b", "message": "", "retry_after_ms": 60000}
    respond(m, status="retryable_failure", error=error)
"""


def test_there_is_no_attempt_that_would_begin_after_the_deadline(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, LATER)

    async def main(host: Host) -> None:
        result = await host.invoke("t", {}, timeout=55)
        assert result.status == "retryable_failure" and len(result.invocations) == 1
        assert result.failure is not None and result.failure.retry_after_ms == 60000

    with_host(run, raw_host_of(root), main)


def test_an_errand_between_two_attempts_can_be_cancelled(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, LATER.replace("60000", "9000"))

    async def main(host: Host) -> None:
        task = asyncio.ensure_future(host.invoke("t", {}))
        await until(lambda: bool(records(host)) and records(host)[0].status is not None)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(records(host)) == 1

    with_host(run, raw_host_of(root), main)


def test_children_of_earlier_hosts_leave_no_scratch(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(permissions=SCRATCH)])
    left = tmp_path / "state" / "scratch" / "host_dead" / "inv_1"
    left.mkdir(parents=True)

    async def main(host: Host) -> None:
        assert not left.exists() and host.journal.counts("host")["scratch_swept"] == 1
        await host.call("t", {})

    with_host(run, raw_host_of(root), main)
    assert os.listdir(tmp_path / "state" / "scratch") == []


@requirement("vai:host-failed-result")
def test_a_failure_keeps_the_result_that_the_plugin_answered_with(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, FAILS)

    async def main(host: Host) -> None:
        done = await host.invoke("t", {})
        assert (done.status, done.value()) == ("failed", LEFT)
        assert done.failure is not None and done.failure.message == "the disk is full"
        attempted = await host.attempt("t", {})
        assert attempted.failure is not None and attempted.value() == LEFT

    with_host(run, host_of(root), main)


@requirement("vai:host-failed-result")
def test_a_caller_is_given_the_outcome_of_each_attempt_before_its_record_is_closed(run: Run, tmp_path: Path) -> None:
    body = """
    def tool(body, m):
        if body["input"].get("well"):
            return succeed(m, output({"a": 1}))
        end(m, "retryable_failure", "acme.later", "later", result={"content": []})
    """
    root = write_vai_plugin(tmp_path, body)
    ended: list[tuple[Any, ...]] = []

    async def main(host: Host) -> None:
        def on_ended(record: InvocationRecord, result: Any, failure: Failure | None) -> None:
            assert next(each for each in records(host) if each.invocation_id == record.invocation_id).status is None
            value = None if result is None else msgspec.json.decode(result)
            ended.append((record.status, record.retry_count, value, failure and failure.message))

        await host.run(CallRequest("t", {}, on_ended=on_ended))
        done = await host.run(CallRequest("t", {"well": True}, on_ended=on_ended))
        assert ended[:3] == [("retryable_failure", count, {"content": []}, "later") for count in range(3)]
        assert ended[3:] == [("succeeded", 0, done.value(), None)]

    with_host(run, host_of(root), main)


WRITES = """
def reference(body, name, text):
    import hashlib
    with open(os.path.join(body["context"]["scratch_dir"], name), "w") as file:
        file.write(text)
    return {"path": name, "media_type": "text/plain", "size_bytes": len(text),
            "sha256": hashlib.sha256(text.encode()).hexdigest()}

def answer(body, m, how, result):
    result["artifacts"] = [reference(body, "log.txt", body.get("input", {}).get("text", "all of it"))]
    if how == "lies":
        result["artifacts"][0]["size_bytes"] = 1
    succeed(m, result) if how == "succeed" else end(m, "failed", "acme.half", "half of it", result=result)

def tool(body, m):
    answer(body, m, body["input"]["how"], output(None))

def harness(body, m):
    answer(body, m, body["trigger"]["input"][0]["text"], {"summary": {"text": "so far"}})
"""


@requirement("vai:host-result-artifacts")
@pytest.mark.parametrize("kind", ["tool", "harness"])
@pytest.mark.parametrize("how", ["succeed", "fail"])
def test_artifacts_of_a_tool_and_of_a_failure_are_kept_as_those_of_a_harness_are(
    run: Run, tmp_path: Path, kind: str, how: str
) -> None:
    root = write_vai_plugin(tmp_path, WRITES, [export("x", kind, permissions=SCRATCH)])

    async def main(host: Host) -> None:
        said: Any = {"how": how} if kind == "tool" else {"trigger": {"type": "t", "input": [{"text": how}]}}
        done = await host.invoke("x", said)
        assert done.status == ("succeeded" if how == "succeed" else "failed"), done.failure
        (kept,) = done.value()["artifacts"]
        assert host.invocations.artifacts.path(kept["asset_id"]).read_text() == "all of it"

    with_host(run, host_of(root), main)


@requirement("vai:host-result-artifacts")
@pytest.mark.parametrize("kind", ["tool", "harness"])
def test_a_failure_with_an_artifact_that_is_not_what_it_says_stays_what_it_was(
    run: Run, tmp_path: Path, kind: str
) -> None:
    root = write_vai_plugin(tmp_path, WRITES, [export("x", kind, permissions=SCRATCH)])

    async def main(host: Host) -> None:
        said: Any = {"how": "lies"} if kind == "tool" else {"trigger": {"type": "t", "input": [{"text": "lies"}]}}
        done = await host.invoke("x", said)
        assert done.failure is not None and done.failure.detail["plugin_code"] == "acme.half"
        assert "asset_id" not in done.value()["artifacts"][0]
        assert done.failure.detail["artifacts_refused"] == "log.txt has 9 bytes, not 1"

    with_host(run, host_of(root), main)


@requirement("vai:host-retry-count")
def test_the_attempts_of_a_delivery_count_its_retries(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, "", [export("h", "hook")])

    async def main(host: Host) -> None:
        for attempt in (1, 2, 3):
            done = await host.invoke("h", {"type": "run.completed"}, execution_id="del_1", attempt=attempt)
            assert done.invocation is not None and done.invocation.retry_count == attempt - 1

    with_host(run, host_of(root), main)


@requirement("vai:host-retry-count")
def test_a_resumed_harness_counts_the_attempts_before_it(run: Run, tmp_path: Path) -> None:
    body = """
    def harness(body, m):
        event(m, type="checkpoint", checkpoint={"kind": "checkpoint", "data": {}})
        end(m, "failed")
    """
    root = write_vai_plugin(tmp_path, body, [export("x", "harness")])

    async def main(host: Host) -> None:
        started: dict[str, Any] = {"target": {"execution_id": "exec_1"}}
        counts = []
        for mode in ("start", "resume", "resume"):
            done = await host.invoke("x", {**started, "mode": mode})
            assert done.invocation is not None
            counts.append(done.invocation.retry_count)
        assert counts == [0, 1, 2]
        again = await host.invoke("x", started)
        assert again.invocation is not None and again.invocation.retry_count == 0, "a new start counts anew"

    with_host(run, host_of(root), main)


@requirement("vai:host-retry-count")
def test_a_resume_whose_process_never_started_counts_too(run: Run, tmp_path: Path) -> None:
    body = """
    def hello(m):
        if os.path.exists("broken"):
            os._exit(3)
        send(type="hello", role="plugin", plugin={"package_id": PACKAGE, "version": VERSION})

    def harness(body, m):
        event(m, type="checkpoint", checkpoint={"kind": "checkpoint", "data": {}})
        end(m, "failed")
    """
    root = write_vai_plugin(tmp_path, body, [export("x", "harness")])

    async def main(host: Host) -> None:
        counts = []
        for mode, broken in (("start", False), ("resume", True), ("resume", False)):
            (root / "broken").touch() if broken else (root / "broken").unlink(missing_ok=True)
            done = await host.invoke("x", {"target": {"execution_id": "exec_1"}, "mode": mode})
            counts.append([each.retry_count for each in done.invocations])
        first, second, third = counts
        assert first == [0] and second[0] == 1 and third == [second[-1] + 1], counts

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-max-concurrency")
@pytest.mark.parametrize("declared", [{}, {"max_concurrency": 1}, {"max_concurrency": 3}])
def test_an_isolated_export_has_as_many_processes_at_once_as_it_declares(
    run: Run, tmp_path: Path, declared: dict[str, Any]
) -> None:
    most = declared.get("max_concurrency", 1)
    body = f"""
    def note(mark):
        with open("running", "a") as file:
            file.write(mark)

    def tool(body, m):
        note("+")
        while open("running").read().count("+") < {most}:
            time.sleep(0.01)
        time.sleep(0.1)  # for one too many to begin
        note("-")
        succeed(m, output(None))
    """
    root = write_vai_plugin(tmp_path, body, [export(**declared)])

    async def main(host: Host) -> None:
        done = await asyncio.gather(*(host.invoke("t", {}) for _ in range(6)))
        assert [each.status for each in done] == ["succeeded"] * 6
        marks = [1 if mark == "+" else -1 for mark in (root / "running").read_text()]
        assert max(itertools.accumulate(marks)) == most

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-record-closed")
def test_a_record_is_closed_though_its_outcome_cannot_be_reported(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path)

    async def main(host: Host) -> None:
        def broken(*outcome: Any) -> None:
            raise RuntimeError("a bug of the caller")

        done = await host.run(CallRequest("t", {}, on_ended=broken))
        assert done.status == "succeeded" and records(host)[0].status == "succeeded"
        assert host.journal.counts("acme/p")["outcome_lost"] == 1

    with_host(run, host_of(root), main)
