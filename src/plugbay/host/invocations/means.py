"""`Means`: what all invocations of a host are done with, and the two things they all need of it: turns and tokens.

Owns whether a binding gives a plugin what it can take. Decides nothing about an invocation's course.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plugbay.host.confinement.scratch import Scratch
from plugbay.host.invocations.context import ExportBinding
from plugbay.host.invocations.kinds import Kit
from plugbay.host.invocations.lines import Lines
from plugbay.host.journal import Journal
from plugbay.host.limits import ConcurrencyLimit
from plugbay.host.ports import InvocationLog, TokenIssuer
from plugbay.host.recording.redaction import SHORTEST
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Export


@dataclass(slots=True)
class Gateway:
    """The API that plugins may come back to with the rights of their invocation."""

    base_url: str
    tokens: TokenIssuer


@dataclass(slots=True)
class Means:
    """What all invocations of a host are done with."""

    kit: Kit
    log: InvocationLog
    scratch: Scratch
    journal: Journal
    gateway: Gateway | None = None
    lines: Lines = field(default_factory=Lines)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """What goes on after its caller was told the outcome."""

    def afterwards(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that nobody has to wait for; the host does, when it stops."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def turns(
        self, limits: Mapping[tuple[str, ...], int | None], deadline: Deadline
    ) -> list[ConcurrencyLimit] | Failure:
        """A turn in each of these lines, or none at all; where there is no limit, there is no line."""
        taken: list[ConcurrencyLimit] = []
        turn: ConcurrencyLimit | Failure | None = None
        try:
            for key, limit in limits.items():
                turn = None if limit is None else await self.lines.enter(key, limit, deadline.left())
                if isinstance(turn, Failure):
                    break
                taken += [] if turn is None else [turn]
        except BaseException:
            give_all(taken)
            raise
        if isinstance(turn, Failure):
            give_all(taken)
            return turn
        return taken

    def binding_problem(self, name: str, export: Export, binding: ExportBinding) -> Failure | None:
        """Why what the binding gives cannot be given to the plugin."""
        schema, config = export.facts.get("config_schema"), dict(binding.config)
        if schema is None:
            errors = [{"path": key, "rule": "the export has no such setting"} for key in config]
        else:
            errors = self.kit.errors(f"{name}.config", schema, config)
        if errors:
            first = errors[0]
            text = f"its config cannot be used: {first['path'] or 'config'}: {first['rule']}"
            return _unbindable("binding.invalid_config", text, errors=errors)
        for slot, value in binding.secrets.items():
            if not isinstance(value, str):
                return _unbindable("binding.invalid_secret", f"the secret {slot} is no text")
            if len(value) < SHORTEST:
                text = f"the secret {slot} has fewer than {SHORTEST} characters: too few to keep it out of what is said"
                return _unbindable("binding.secret_too_short", text)
        return None


def give_all(turns: Iterable[ConcurrencyLimit]) -> None:
    """Whoever had these turns is done."""
    for line in turns:
        line.release()


def _unbindable(code: str, text: str, **detail: Any) -> Failure:
    return Failure(Code.LAUNCH_FAILED, text, detail={"plugin_code": code, **detail})
