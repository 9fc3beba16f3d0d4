"""`Resources`: what all invocations of a host share: logs, scratch folders, concurrency limits, schemas, the gateway.

It also checks whether a plugin can take what a binding gives it. The course of an attempt is in `attempt`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any

import msgspec

from plugbay.contracts.schemas import compile_schema
from plugbay.host.catalog.catalog import MAX_LISTED
from plugbay.host.confinement.scratch import Scratch
from plugbay.host.invocations.artifacts import Artifacts
from plugbay.host.journal import Journal
from plugbay.host.limits import QUEUE_SECONDS, ConcurrencyLimit
from plugbay.host.ports import Checkpoints, InvocationLog, TokenIssuer
from plugbay.host.recording.org_logs import OrgLogs
from plugbay.host.recording.redaction import SHORTEST
from plugbay.host.request import ExportBinding
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Export
from plugbay.wire.fast_json import MsgspecCodec

MAX_KEPT_LIMITS = 1_024
"""Limits kept in memory; beyond that, those without a running or waiting invocation are dropped."""

Limit = tuple[tuple[str, ...], int | None]
"""A key, and how many invocations of it may run at once; None: any number."""


class Gateway(msgspec.Struct):
    """The API that plugins may call back, with the rights of their invocation."""

    base_url: str
    tokens: TokenIssuer


class Resources(msgspec.Struct):
    """What all invocations of a host share."""

    codec: MsgspecCodec
    journal: Journal
    scratch: Scratch
    artifacts: Artifacts
    log: InvocationLog
    checkpoints: Checkpoints
    make_id: Callable[[str], str]
    gateway: Gateway | None = None
    org_logs: OrgLogs | None = None
    """The output of plugins, apart for each org; None: it is not kept apart."""
    now: Callable[[], float] = time.time
    """The clock of records and tokens: several gateways share one. Deadlines are by the clock of the machine."""
    tasks: set[asyncio.Task[Any]] = msgspec.field(default_factory=set)
    """Clean-up that runs on after the caller has its result."""
    _limits: dict[tuple[str, ...], ConcurrencyLimit] = msgspec.field(default_factory=dict)
    """How many invocations may run at once, for each key."""
    _validators: dict[str, tuple[Any, Any]] = msgspec.field(default_factory=dict)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` without making the caller wait; the host waits for it when it stops."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def acquire_turns(self, limits: Iterable[Limit], deadline: Deadline) -> list[ConcurrencyLimit] | Failure:
        """A turn for each of these keys, or none at all; a key whose limit is None needs no turn."""
        taken: list[ConcurrencyLimit] = []
        done = False
        try:
            for key, most in limits:
                if most is None:
                    continue
                limit = self._limit(key, most)
                refusal = await limit.acquire(deadline.left(), deadline.patience())
                if refusal is not None and QUEUE_SECONDS in refusal.detail:
                    return refusal
                if refusal is not None:
                    text = f"{limit.limit} invocations of it are running, which is its limit, and none ended in time"
                    return Failure(Code.OVERLOADED, text, retryable=True)
                taken.append(limit)
            done = True
        finally:
            if not done:
                release_turns(taken)
        return taken

    def queue_refusal(self, limits: Iterable[Limit], patience: float) -> Failure | None:
        """Why a further invocation would get no turn for one of these keys within `patience` seconds."""
        known = ((self._limits.get(key), most) for key, most in limits)
        refusals = (limit.queue_refusal(patience) for limit, most in known if limit is not None and most is not None)
        return next(filter(None, refusals), None)

    def _limit(self, key: tuple[str, ...], most: int) -> ConcurrencyLimit:
        """The concurrency limit of a key. While it is in use, it does not change."""
        limit = self._limits.get(key)
        if limit is None or (limit.limit != most and not limit.in_use):
            if len(self._limits) >= MAX_KEPT_LIMITS:
                self._limits = {known: limit for known, limit in self._limits.items() if limit.in_use}
            limit = self._limits[key] = ConcurrencyLimit(most)
        return limit

    def schema_errors(self, name: str, schema: Any, value: Any) -> list[dict[str, str]]:
        """Where and how `value` breaks a schema. The schema is compiled once for each `name`."""
        known = self._validators.get(name)
        if known is None or known[0] is not schema:
            known = self._validators[name] = (schema, compile_schema(schema))
        if known[1].is_valid(value):
            return []
        return [
            {"path": "/".join(map(str, error.instance_path)), "rule": error.message}
            for error in islice(known[1].iter_errors(value), MAX_LISTED)
        ]

    def binding_problem(self, name: str, export: Export, binding: ExportBinding) -> Failure | None:
        """Why the config or the secrets of a binding cannot be given to the plugin."""
        schema, config = export.facts.get("config_schema"), dict(binding.config)
        if schema is None and not config:
            errors = []
        elif schema is None:
            errors = [{"path": key, "rule": "the export has no such setting"} for key in config]
        else:
            errors = self.schema_errors(f"{name}.config", schema, config)
        if errors:
            first = errors[0]
            text = f"its config cannot be used: {first['path'] or 'config'}: {first['rule']}"
            return _unusable_binding("binding.invalid_config", text, errors=errors)
        for slot, value in binding.secrets.items():
            if not isinstance(value, str):
                return _unusable_binding("binding.invalid_secret", f"the secret {slot} is not text")
            if len(value) < SHORTEST:
                text = f"the secret {slot} has fewer than {SHORTEST} characters, too few to redact it from output"
                return _unusable_binding("binding.secret_too_short", text)
        return None


def release_turns(taken: Iterable[ConcurrencyLimit]) -> None:
    """Give back every turn of an attempt that has ended."""
    for turns in taken:
        turns.release()


def _unusable_binding(code: str, text: str, **detail: Any) -> Failure:
    return Failure(Code.LAUNCH_FAILED, text, detail={"plugin_code": code, **detail})
