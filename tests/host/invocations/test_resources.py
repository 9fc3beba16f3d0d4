"""Concurrency limits, background work, and bindings that cannot be used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.confinement.scratch import Scratch
from plugbay.host.invocations import resources
from plugbay.host.invocations.artifacts import Artifacts
from plugbay.host.invocations.resources import Resources, release_turns
from plugbay.host.journal import Journal
from plugbay.host.limits import ConcurrencyLimit
from plugbay.host.records import MemoryCheckpoints, MemoryInvocationLog
from plugbay.host.request import ExportBinding
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Export
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.loops import Run
from tests.support.patience import until


@pytest.fixture
def shared(tmp_path: Path) -> Resources:
    return Resources(
        MsgspecCodec(),
        Journal(),
        Scratch(tmp_path),
        Artifacts(lambda: tmp_path),
        MemoryInvocationLog(),
        MemoryCheckpoints(),
        lambda prefix: f"{prefix}_1",
    )


def test_a_turn_for_one_key_only_is_no_turn(run: Run, shared: Resources) -> None:
    async def main() -> None:
        both: list[tuple[tuple[str, ...], int | None]] = [(("a",), 2), (("b",), 1), (("c",), None)]
        first = await shared.acquire_turns(both, Deadline(5))
        assert isinstance(first, list) and len(first) == 2
        second = await shared.acquire_turns(both, Deadline(0.01))
        assert isinstance(second, Failure) and second.code == Code.OVERLOADED
        waiting = asyncio.ensure_future(shared.acquire_turns(both, Deadline(5)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        spare = await shared.acquire_turns([(("a",), 2)], Deadline(0.01))
        assert isinstance(spare, list)
        release_turns([*first, *spare])
        assert all(line.in_use == 0 for line in first)

    run(main)


def test_background_work_is_tracked_until_it_is_done(run: Run, shared: Resources) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def later() -> None:
            await gate.wait()

        task = shared.run_in_background(later())
        assert shared.tasks == {task}
        gate.set()
        await task
        await asyncio.sleep(0)
        assert shared.tasks == set()

    run(main)


@pytest.mark.parametrize(
    ("schema", "binding", "code"),
    [
        (None, ExportBinding(), None),
        (None, ExportBinding(config={"a": 1}), "binding.invalid_config"),
        ({"type": "object"}, ExportBinding(config={"a": 1}), None),
        ({"type": "object", "required": ["b"]}, ExportBinding(config={"a": 1}), "binding.invalid_config"),
        (None, ExportBinding(secrets={"key": "long enough"}), None),
        (None, ExportBinding(secrets={"key": "short"}), "binding.secret_too_short"),
        (None, ExportBinding(secrets={"key": 1234567}), "binding.invalid_secret"),  # type: ignore[dict-item]
    ],
)
def test_a_binding_must_match_the_export(
    shared: Resources, schema: Any, binding: ExportBinding, code: str | None
) -> None:
    problem = shared.binding_problem("acme/p/t", Export("tool", "t", facts={"config_schema": schema}), binding)
    assert (None if problem is None else problem.detail["plugin_code"]) == code
    assert problem is None or not any(str(value) in problem.message for value in binding.secrets.values())


async def entered(shared: Resources, *key: str, limit: int = 1, seconds: float = 5) -> ConcurrencyLimit:
    turns = await shared.acquire_turns([(key, limit)], Deadline(seconds))
    assert isinstance(turns, list)
    return turns[0]


def test_only_invocations_of_the_same_export_and_org_wait_for_each_other(run: Run, shared: Resources) -> None:
    async def main() -> None:
        first = await entered(shared, "t", "org_1")
        await entered(shared, "t", "org_2")
        await entered(shared, "u", "org_1")
        waiting = asyncio.ensure_future(entered(shared, "t", "org_1"))
        await asyncio.sleep(0)
        assert not waiting.done()
        first.release()
        assert await waiting is first

    run(main)


def test_an_invocation_that_waits_too_long_is_refused(run: Run, shared: Resources) -> None:
    async def main() -> None:
        await entered(shared, "t")
        refused = await shared.acquire_turns([(("t",), 1)], Deadline(0.01))
        assert isinstance(refused, Failure) and refused.code == Code.OVERLOADED

    run(main)


def test_a_limit_changes_when_it_is_not_in_use(run: Run, shared: Resources) -> None:
    async def main() -> None:
        turn = await entered(shared, "t", limit=1)
        assert isinstance(await shared.acquire_turns([(("t",), 2)], Deadline(0.01)), Failure)
        turn.release()
        assert (await entered(shared, "t", limit=2)).limit == 2
        await entered(shared, "t", limit=2)

    run(main)


def test_unused_limits_are_dropped(run: Run, shared: Resources) -> None:
    async def main() -> None:
        busy = await entered(shared, "busy")
        for number in range(2 * resources.MAX_KEPT_LIMITS):
            (await entered(shared, str(number))).release()
        assert len(shared._limits) <= resources.MAX_KEPT_LIMITS
        waiting = asyncio.ensure_future(entered(shared, "busy"))
        await asyncio.sleep(0)
        busy.release()
        await until(waiting.done)

    run(main)
