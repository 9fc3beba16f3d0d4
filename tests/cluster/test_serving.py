"""A call on a node is refused before a plugin has received it, or done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plugbay.cluster.hosts import NodeHosts
from plugbay.cluster.serving import Outcome, ServedCall, frame_of, refuse
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import InvokeTool
from tests.cluster.test_envelope import ID, call
from tests.support.loops import Run, run  # noqa: F401
from tests.support.patience import until
from tests.support.requirements import requirement


class Pulling(NodeHosts):
    """A node that is busy with pulling a package."""

    def __init__(self) -> None:
        self.begun = False

    @asynccontextmanager
    async def host(self, package: Any, access: Any, settings: bytes = b"", **options: Any) -> AsyncIterator[Any]:
        self.begun = True
        await asyncio.Event().wait()
        yield None


def served() -> ServedCall:
    return ServedCall(call(), "n1", lambda served, item: None, lambda: False)


@requirement("host:nodes-failures")
@pytest.mark.parametrize("waits", ["for a package", "for a turn"])
def test_a_node_that_stood_still_refuses_what_no_plugin_has_received(waits: str, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        made, hosts, turns = served(), Pulling(), asyncio.Semaphore(1 if waits == "for a package" else 0)
        task = asyncio.create_task(made.run(InvokeTool("t", {}, {}), hosts, turns))
        if waits == "for a package":
            await until(lambda: hosts.begun)
        else:
            await asyncio.sleep(0)
        made.refuse_unreceived()
        outcome = await task
        assert outcome.refused and outcome.elsewhere
        assert outcome.failure is not None and outcome.failure.detail["reason"] == "stalled"

    run(main)


def test_a_call_that_is_cancelled_before_its_plugin_has_it_is_done(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        made, hosts = served(), Pulling()
        task = asyncio.create_task(made.run(InvokeTool("t", {}, {}), hosts, asyncio.Semaphore()))
        await until(lambda: hosts.begun)
        made.cancel("user_cancelled")
        made.cancel("again")
        outcome = await task
        assert not outcome.refused and outcome.failure is not None
        assert outcome.failure.code == Code.CANCELLED and "user_cancelled" in outcome.failure.message
        assert outcome.failure.detail["asked"] is False

    run(main)


def test_the_last_frame_says_refused_or_done() -> None:
    gone = Failure(Code.UNAVAILABLE, "draining")
    frame, body = frame_of(call(), "n1", 3, refuse(gone, elsewhere=True))
    assert (frame.kind, frame.elsewhere, frame.seq, frame.call, body) == ("refused", True, 3, ID, b"")
    frame, body = frame_of(call(), "n1", 0, Outcome(b"1"))
    assert (frame.kind, frame.failure, body) == ("done", None, b"1")


def test_scratch_folder_and_deadline_are_those_of_the_node(run: Run) -> None:  # noqa: F811
    from pathlib import Path

    from plugbay.cluster.files import context_of
    from plugbay.cluster.serving import _prepare, _secrets

    async def main() -> None:
        inner = {"scratch_dir": None, "deadline_at": "", "gateway": {"delegation_token": "tok"}}
        op = InvokeTool("t", {}, {"context": inner, "secrets": {"key": "hunter2"}})
        _prepare(context_of(op), Path("/scratch/1"), Deadline(60))
        assert inner["scratch_dir"] == "/scratch/1" and str(inner["deadline_at"]).endswith("Z")
        assert _secrets(op) == ({"key": "hunter2"}, "tok")
        plain = InvokeTool("t", {}, {})
        _prepare(context_of(plain), None, Deadline(60))
        assert plain == InvokeTool("t", {}, {}) and _secrets(plain) == ({}, None)

    run(main)
