"""ConcurrencyLimit in several lines at once, and bindings that cannot be used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.confinement.scratch import Scratch
from plugbay.host.invocations.artifacts import Artifacts
from plugbay.host.invocations.context import ExportBinding
from plugbay.host.invocations.kinds import Kit
from plugbay.host.invocations.means import Means, give_all
from plugbay.host.invocations.records import MemoryCheckpoints, MemoryInvocationLog
from plugbay.host.journal import Journal
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Export
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.loops import Run


@pytest.fixture
def means(tmp_path: Path) -> Means:
    kit = Kit(MsgspecCodec(), MemoryCheckpoints(), Artifacts(lambda: tmp_path), lambda prefix: f"{prefix}_1")
    return Means(kit, MemoryInvocationLog(), Scratch(tmp_path), Journal())


def test_who_gets_a_turn_in_one_line_only_gets_none(run: Run, means: Means) -> None:
    async def main() -> None:
        both: dict[tuple[str, ...], int | None] = {("a",): 2, ("b",): 1, ("c",): None}
        first = await means.turns(both, Deadline(5))
        assert isinstance(first, list) and len(first) == 2
        second = await means.turns(both, Deadline(0.01))
        assert isinstance(second, Failure) and second.code == Code.OVERLOADED
        waiting = asyncio.ensure_future(means.turns(both, Deadline(5)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        spare = await means.turns({("a",): 2}, Deadline(0.01))
        assert isinstance(spare, list)
        give_all([*first, *spare])
        assert all(line.in_use == 0 for line in first)

    run(main)


def test_what_is_done_afterwards_is_remembered_until_it_is_done(run: Run, means: Means) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def later() -> None:
            await gate.wait()

        task = means.afterwards(later())
        assert means.tasks == {task}
        gate.set()
        await task
        await asyncio.sleep(0)
        assert means.tasks == set()

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
def test_which_bindings_can_be_used(means: Means, schema: Any, binding: ExportBinding, code: str | None) -> None:
    problem = means.binding_problem("acme/p/t", Export("tool", "t", facts={"config_schema": schema}), binding)
    assert (None if problem is None else problem.detail["plugin_code"]) == code
    assert problem is None or not any(str(value) in problem.message for value in binding.secrets.values())
