"""Nodes take calls of gateways over a real NATS server, and carry them out in real processes."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import signal
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.cluster import chunks
from plugbay.cluster import node as module
from plugbay.cluster.calling import Cluster
from plugbay.cluster.chunks import Sending
from plugbay.cluster.serving import ServedCall
from plugbay.cluster.times import USUAL
from plugbay.host.invocations.kinds import MAX_INLINE
from plugbay.model.errors import CallFailed, Code, Origin
from tests.cluster.test_envelope import call
from tests.host.invocations.test_invocations import WRITES
from tests.host.invocations.test_kinds import READS, block, compaction
from tests.support.loops import Run, run  # noqa: F401
from tests.support.nodes import PATIENT, Cell, NodeProcess, cell, remote_host
from tests.support.packaged import Publisher
from tests.support.patience import until, until_blocking
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.support.vai import export

NON_IDEMPOTENT = export("once", own={"effect_class": "non_idempotent_write"})

SLOW = """
def tool(body, m):
    path = body["input"].get("path")
    if path:
        with open(path, "a") as file:
            file.write("begun\\n")
    if "until" in body["input"]:
        while not os.path.exists(body["input"]["until"]):
            if cancels[m["id"]].wait(0.01):
                return
    succeed(m, output({"pid": os.getpid(), "context": body["context"], "secrets": body["secrets"]}))
"""

TELLING = """
def tool(body, m):
    for number in range(body["input"]["count"]):
        event(m, message=str(number))
    succeed(m, output({}))
"""


ECHO = """
def tool(body, m):
    succeed(m, output({"text": body["input"]["text"]}))
"""


def up(cluster: Cluster) -> set[str]:
    return {node.name for node, state in cluster.nodes() if state == "up"}


def test_progress_is_dropped_while_the_server_reads_nothing(
    shared_cell: Cell,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,  # noqa: F811
) -> None:
    async def main() -> None:
        async with shared_cell.node("n1") as node:
            served = ServedCall(call(), "n1", node._on_progress, lambda: False)
            node._on_progress(served, b"1")
            unsent = node.wire.unsent
            assert served.seq == 1 and unsent > 0
            monkeypatch.setattr(module, "MAX_UNSENT", 0)
            node._on_progress(served, b"2")
            assert node.wire.unsent == unsent
            assert served.seq == 2, "the gateway notices the gap"

    run(main)


@requirement("host:nodes-call")
def test_a_plugin_on_a_node_is_called_as_if_it_were_here(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    package = shared_cell.push(shared_cell.publisher.pack())

    async def main() -> None:
        async with (
            shared_cell.node("n1") as node,
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package) as host,
        ):
            result = await host.invoke("t", {"city": "Lima"})
            assert result.failure is None, result.failure
            assert result.value()["structured_output"]["input"] == {"city": "Lima"}
            assert result.invocation is not None and result.invocation.status == "succeeded"
            assert node.busy == 0 and host.plugins()[0].state == "idle"
            await until(lambda: cluster.roster.nodes["n1"].beat.plugins == ("acme/p 1.0.0",))

    run(main)


@requirement("host:nodes-call")
def test_progress_arrives_in_order_and_before_the_result(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    package = shared_cell.push(shared_cell.publisher.pack(TELLING))
    seen: list[Any] = []

    async def main() -> None:
        async with (
            shared_cell.node("n1"),
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package) as host,
        ):
            result = await host.invoke("t", {"count": 100}, on_progress=seen.append)
            assert result.failure is None, result.failure
            assert [item["message"] for item in seen] == [str(number) for number in range(100)]

    run(main)


@requirement("host:nodes-large")
@pytest.mark.parametrize(("size", "count"), [(2 << 20, 1), pytest.param(7 << 20, 6, marks=exhaustive)])
def test_large_inputs_and_results_are_carried_both_ways(
    shared_cell: Cell,
    size: int,
    count: int,
    run: Run,  # noqa: F811
) -> None:
    package = shared_cell.push(shared_cell.publisher.pack(ECHO))

    async def main() -> None:
        async with (
            shared_cell.node("n1") as node,
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package) as host,
        ):
            texts = [letter * size for letter in "abcdef"[:count]]
            results = await asyncio.gather(*(host.invoke("t", {"text": text}) for text in texts))
            for text, result in zip(texts, results, strict=True):
                assert result.failure is None, result.failure
                assert result.value()["structured_output"]["text"] == text
            assert not node._assemblies and not node._expected and not cluster._assemblies

    run(main)


@requirement("host:nodes-large")
@pytest.mark.parametrize(
    "why",
    [
        "a part is missing",
        *(pytest.param(why, marks=exhaustive) for why in ("the hash is wrong", "it is cancelled", "the link was lost")),
    ],
)
def test_a_large_input_that_does_not_come_as_a_whole_reaches_no_plugin(
    shared_cell: Cell,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
    run: Run,  # noqa: F811
) -> None:
    package = shared_cell.push(shared_cell.publisher.pack(ECHO))
    due = Sending.due

    def cut(sending: Sending) -> Any:
        for number, data, digest in due(sending):
            if why == "the hash is wrong" or not digest:
                yield number, data, "0" * 64 if digest else ""

    monkeypatch.setattr(Sending, "due", cut)

    async def main() -> None:
        async with (
            shared_cell.node("n1") as node,
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package) as host,
        ):
            calling = asyncio.create_task(host.call("t", {"text": "x" * (2 << 20)}))
            if why != "the hash is wrong":
                await until(lambda: any(each.parts == 8 for each in node._assemblies._open.values()))
            if why == "a part is missing":
                monkeypatch.setattr(chunks, "STALLED_SECONDS", 0.0)
            if why == "the link was lost":
                monkeypatch.setattr(Sending, "due", due)
                cluster._ask_about()
                assert (await calling)["structured_output"] == {"text": "x" * (2 << 20)}, (
                    "it was refused and given again"
                )
            elif why == "it is cancelled":
                calling.cancel()
                await until(lambda: not node._expected)
            else:
                with pytest.raises(CallFailed) as failed:
                    await calling
                assert failed.value.failure.code == Code.MALFORMED_RESPONSE
                assert failed.value.failure.detail["asked"] is False
            assert not node._assemblies and not node._expected and node.busy == 0

    run(main)


def test_secrets_and_scratch_folders_reach_the_plugin_and_not_the_disk_of_the_gateway(
    shared_cell: Cell,
    tmp_path: Path,
    run: Run,  # noqa: F811
) -> None:
    asked = {"filesystem": "scratch", "network": "none", "secret_slots": ["key"]}
    packed = shared_cell.publisher.pack(SLOW, [export(permissions=asked)])
    package = shared_cell.push(packed)
    from plugbay.host.request import ExportBinding

    async def main() -> None:
        async with (
            shared_cell.node("n1"),
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package, state_dir=tmp_path / "gateway") as host,
        ):
            binding = ExportBinding(secrets={"key": "hunter2-hunter2"})
            result = await host.invoke("t", {}, binding=binding)
            assert result.failure is None, result.failure
            seen = result.value()["structured_output"]
            assert seen["secrets"] == {"key": "[redacted]"} or "hunter2" not in str(seen)
            folder = Path(seen["context"]["scratch_dir"])
            assert folder.is_relative_to(shared_cell.folder / "n1" / "state")
            await until(lambda: not folder.exists())

    run(main)


SCRATCH = {"filesystem": "scratch", "network": "none"}

FILES = WRITES + READS


def below(folder: Path, pattern: str) -> list[str]:
    """Files and folders with such names; what is removed meanwhile is none."""
    return [name for _, *names in os.walk(folder) for name in fnmatch.filter(chain(*names), pattern)]


@requirement("host:nodes-large")
@pytest.mark.parametrize("size", [9, 2 << 20])
@pytest.mark.parametrize("how", ["succeed", "fail"])
def test_artifacts_of_a_result_and_of_a_failure_come_from_the_node(
    shared_cell: Cell,
    tmp_path: Path,
    run: Run,  # noqa: F811
    how: str,
    size: int,
) -> None:
    package = shared_cell.push(shared_cell.publisher.pack(FILES, [export(permissions=SCRATCH)]))

    async def main() -> None:
        async with (
            shared_cell.node("n1"),
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package, state_dir=tmp_path / "gateway") as host,
        ):
            done = await host.invoke("t", {"how": how, "text": "x" * size})
            assert done.status == ("succeeded" if how == "succeed" else "failed"), done.failure
            (kept,) = done.value()["artifacts"]
            assert host.invocations.artifacts.path(kept["asset_id"]).read_text() == "x" * size
            lies = await host.invoke("t", {"how": "lies", "text": "x" * size})
            assert lies.failure is not None and lies.failure.detail["plugin_code"] == "acme.half"
            assert lies.failure.detail["artifacts_refused"] == "log.txt has 2 bytes, not 1"
            places = {tmp_path / "gateway": "inv_*", shared_cell.folder / "n1" / "state": "log.txt"}
            await until(lambda: not any(below(folder, pattern) for folder, pattern in places.items()))

    run(main)


@requirement("host:nodes-large")
def test_a_large_conversation_reaches_the_scratch_folder_of_the_node(
    shared_cell: Cell,
    tmp_path: Path,
    run: Run,  # noqa: F811
) -> None:
    compactor = export("c", "compactor", permissions=SCRATCH, own={"supports_pinned_items": False})
    package = shared_cell.push(shared_cell.publisher.pack(FILES, [compactor]))
    large = [block("first"), block("x" * MAX_INLINE)]

    async def main() -> None:
        async with (
            shared_cell.node("n1"),
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package, state_dir=tmp_path / "gateway") as host,
        ):
            heard: list[Any] = []
            done = await host.invoke("c", compaction(large), on_progress=heard.append)
            assert done.failure is None, done.failure
            assert done.value()["seed_blocks"] == [block("first")]
            assert [event["transport"] for event in heard] == ["artifact"]

    run(main)


@requirement("host:nodes-call")
def test_a_cancelled_call_is_cancelled_on_the_node(shared_cell: Cell, tmp_path: Path, run: Run) -> None:  # noqa: F811
    package = shared_cell.push(shared_cell.publisher.pack(SLOW))

    async def main() -> None:
        async with (
            shared_cell.node("n1") as node,
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package) as host,
        ):
            path = tmp_path / "begun"
            asked = host.invoke("t", {"path": str(path), "until": str(tmp_path / "never")}, stays=True)
            task = asyncio.create_task(asked)
            await until(path.exists)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: node.busy == 0)
            record = host.invocations.log.records[-1]  # type: ignore[attr-defined]
            assert record.status == "cancelled" and record.status_reason == "user_cancelled"

    run(main)


def test_a_deadline_ends_the_call_on_the_node(shared_cell: Cell, tmp_path: Path, run: Run) -> None:  # noqa: F811
    package = shared_cell.push(shared_cell.publisher.pack(SLOW))

    async def main() -> None:
        async with (
            shared_cell.node("n1") as node,
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package) as host,
        ):
            assert (await host.invoke("t", {})).failure is None
            result = await host.invoke("t", {"until": str(tmp_path / "never")}, timeout=0.5)
            assert result.failure is not None and result.failure.code == Code.TIMEOUT
            await until(lambda: node.busy == 0)

    run(main)


@requirement("host:nodes-placement")
def test_a_node_that_joins_later_gets_calls_and_labels_decide(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    package = shared_cell.push(shared_cell.publisher.pack())

    async def main() -> None:
        async with (
            shared_cell.cluster() as cluster,
            remote_host(cluster, package, {"zone": "b"}) as host,
            shared_cell.node("n1", labels={"zone": "a"}),
        ):
            await until(lambda: up(cluster) == {"n1"})
            refused = (await host.invoke("t", {}, timeout=0.1)).failure
            assert refused is not None and refused.code == Code.UNAVAILABLE and refused.retryable
            assert "zone = b" in refused.detail["hint"]
            async with shared_cell.node("n2", labels={"zone": "b"}) as second:
                await until(lambda: up(cluster) == {"n1", "n2"})
                assert (await host.invoke("t", {})).failure is None
                assert len(second._ended) == 1

    run(main)


@requirement("host:nodes-packages")
def test_a_package_that_the_node_does_not_trust_is_refused_there(
    shared_cell: Cell,
    tmp_path: Path,
    run: Run,  # noqa: F811
) -> None:
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    Publisher(stranger, tmp_path)
    package = shared_cell.push(shared_cell.publisher.pack())

    async def main() -> None:
        async with (
            shared_cell.node("n1", trust=stranger / "trust.json"),
            shared_cell.cluster(PATIENT, "n1") as cluster,
            remote_host(cluster, package) as host,
        ):
            failure = (await host.invoke("t", {})).failure
            assert failure is not None and failure.code == Code.LAUNCH_FAILED
            assert failure.origin == Origin.SYSTEM and failure.detail["reason"] == "key_unknown"
            assert failure.detail["asked"] is False and "execution_outcome" not in failure.detail
            async with shared_cell.node("n2"):
                await until(lambda: up(cluster) == {"n1", "n2"})
                assert (await host.invoke("t", {})).failure is None

    run(main)


@requirement("host:nodes-packages")
def test_a_signature_of_other_files_is_refused_by_the_node(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    good, other = shared_cell.publisher.pack(), shared_cell.publisher.pack("# other\n")
    package = shared_cell.push(other, shared_cell.publisher.sign(good))

    async def main() -> None:
        async with (
            shared_cell.node("n1"),
            shared_cell.node("n2") as second,
            shared_cell.cluster(PATIENT, "n1", "n2") as cluster,
            remote_host(cluster, package) as host,
        ):
            failure = (await host.invoke("t", {})).failure
            assert failure is not None and failure.code == Code.LAUNCH_FAILED
            assert failure.detail["reason"] == "tampered"
            assert len(second._ended) <= 1, "every node would refuse it, so one is enough"

    run(main)


@requirement("host:nodes-drain")
def test_a_node_drains_under_load_without_a_failed_call(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    package = shared_cell.push(shared_cell.publisher.pack(exports=[export(execution_class="worker")]))

    async def main() -> None:
        async with shared_cell.node("n2"), shared_cell.cluster(PATIENT, "n2") as cluster, AsyncExitStack() as stack:
            first = await stack.enter_async_context(shared_cell.node("n1"))
            await until(lambda: up(cluster) == {"n1", "n2"})
            host = await stack.enter_async_context(remote_host(cluster, package))
            draining, results = asyncio.Event(), []

            async def load(org: str) -> None:
                after = 0
                while after < 5:
                    results.append(await host.invoke("t", {}, org_id=org))
                    after += draining.is_set()

            async with asyncio.TaskGroup() as group:
                for number in range(8):
                    group.create_task(load(f"org_{number}"))
                await until(lambda: len(first._ended) > 3 or len(results) > 40)
                assert await cluster.order("n1", "drain")
                await until(lambda: first.draining)
                draining.set()
            assert [result.failure for result in results if result.failure is not None] == []
            assert first.busy == 0 and up(cluster) == {"n2"}
            assert await cluster.order("n1", "undrain")
            await until(lambda: up(cluster) == {"n1", "n2"})

    run(main)


@exhaustive
@requirement("host:nodes-failures")
def test_a_killed_node_leaves_repeatable_calls_to_others_and_unknown_outcomes_for_the_rest(
    tmp_path: Path,
) -> None:
    from tests.support.loops import run_on

    with cell(tmp_path) as made, made.process("n1") as first:
        package = made.push(made.publisher.pack(SLOW, [export(), NON_IDEMPOTENT]))
        times = replace(PATIENT, beat=USUAL.beat, silent=USUAL.silent, lost=6.0)
        go, again, once = (tmp_path / name for name in ("go", "again", "once"))

        async def main() -> None:
            async with made.cluster(times, "n1") as cluster, remote_host(cluster, package) as host:
                repeated = asyncio.create_task(host.invoke("t", {"path": str(again), "until": str(go)}))
                single = asyncio.create_task(host.invoke("once", {"path": str(once), "until": str(go)}))
                await until(lambda: again.exists() and once.exists())
                async with made.node("n2", PATIENT):
                    await until(lambda: "n2" in up(cluster))
                    first.send(signal.SIGKILL)
                    await until(lambda: again.read_text().count("begun") == 2)
                    go.touch()
                    result = await repeated
                    assert result.failure is None and len(result.invocations) == 2
                    failure = (await single).failure
                    assert failure is not None and failure.code == Code.CRASHED
                    assert failure.detail["cause"] == "node_lost"
                    assert failure.detail["execution_outcome"] == "unknown"
                    assert once.read_text().count("begun") == 1

        run_on("asyncio")(main)


@exhaustive
@requirement("host:nodes-failures")
def test_a_node_that_was_stopped_refuses_the_calls_of_that_time(tmp_path: Path) -> None:
    from tests.support.loops import run_on

    with cell(tmp_path) as made, made.process("n1") as first:
        package = made.push(made.publisher.pack(SLOW, [NON_IDEMPOTENT]))
        path = tmp_path / "begun"

        async def main() -> None:
            async with made.cluster(PATIENT, "n1") as cluster, remote_host(cluster, package) as host:
                assert (await host.invoke("once", {})).failure is None
                first.send(signal.SIGSTOP)
                call = asyncio.create_task(host.invoke("once", {"path": str(path)}))
                await asyncio.sleep(USUAL.stalled + 1)
                first.send(signal.SIGCONT)
                result = await call
                assert "stood still" in first.log.read_text()
                assert result.failure is None, result.failure
                assert path.read_text().count("begun") == 1

        run_on("asyncio")(main)


@exhaustive
def test_nats_may_be_started_again_while_calls_run(tmp_path: Path) -> None:
    from tests.support.loops import run_on

    with cell(tmp_path) as made:
        package = made.push(made.publisher.pack(SLOW, [NON_IDEMPOTENT]))
        begun, go = tmp_path / "begun", tmp_path / "go"

        async def main() -> None:
            async with (
                made.node("n1"),
                made.cluster(PATIENT, "n1") as cluster,
                remote_host(cluster, package) as host,
            ):
                task = asyncio.create_task(host.invoke("once", {"path": str(begun), "until": str(go)}))
                await until(begun.exists)
                made.nats.kill()
                go.touch()
                await until(lambda: not cluster.wire.is_up)
                await asyncio.to_thread(made.nats.start)
                result = await task
                assert result.failure is None, result.failure
                assert begun.read_text().count("begun") == 1

        run_on("asyncio")(main)


@requirement("host:nodes-join")
def test_wrong_credentials_keep_a_node_out(shared_cell: Cell) -> None:
    with NodeProcess(shared_cell, "n1", (), {"CELL_PASSWORD": "wrong-password"}) as process:
        until_blocking(lambda: "authorization violation" in process.log.read_text().lower())
        process.send(signal.SIGTERM)
        assert process.wait() == 0


@exhaustive
@requirement("host:nodes-drain")
def test_sigterm_drains_the_process_of_a_node(shared_cell: Cell, tmp_path: Path) -> None:
    from tests.support.loops import run_on

    package = shared_cell.push(shared_cell.publisher.pack(SLOW, [NON_IDEMPOTENT]))
    begun, go = tmp_path / "begun", tmp_path / "go"
    with shared_cell.process("n3") as process:

        async def main() -> None:
            async with shared_cell.cluster(PATIENT, "n3") as cluster, remote_host(cluster, package) as host:
                task = asyncio.create_task(host.invoke("once", {"path": str(begun), "until": str(go)}))
                await until(begun.exists)
                process.send(signal.SIGTERM)
                await until(lambda: cluster.roster.nodes["n3"].beat.state == "draining")
                go.touch()
                assert (await task).failure is None

        run_on("asyncio")(main)
        assert process.wait() == 0
