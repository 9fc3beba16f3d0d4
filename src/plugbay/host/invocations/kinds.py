"""`Work`: what one of the four kinds of exports is asked, and what becomes of it over all its attempts.

Owns what differs between tools, hooks, compactors and harnesses: the body of the request, what an event means, when a
result counts, whether there may be another attempt. Knows nothing of processes, deadlines and records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from plugbay.contracts.schemas import compile_schema
from plugbay.host.catalog.catalog import MAX_LISTED, Entry
from plugbay.host.invocations import artifacts, compaction_result, retry
from plugbay.host.invocations.context import Order, id_problem
from plugbay.host.ports import DEFAULT_ORG, Checkpoints, Journey
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import Compact, InvokeTool, RunHarness, RunHook
from plugbay.wire.fast_json import MsgspecCodec

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

MAX_INLINE = 1 << 20
"""Bytes of a projection that go into the request itself; a larger one goes through the scratch directory."""

PROJECTION_FILE = "projection.json"
PROJECTION_TYPE = "application/vnd.vai.projection.v1+json"

MAX_CHECKPOINT = 256 << 10
"""Bytes of a checkpoint as JSON: a place to go on from, not a store."""

_EXACT = frozenset({"lossless", "checkpoint"})
"""Fidelities of harnesses that go on from their checkpoint."""


@dataclass(slots=True)
class Kit:
    """What work is done with."""

    codec: MsgspecCodec
    checkpoints: Checkpoints
    artifacts: artifacts.Artifacts
    make_id: Callable[[str], str]
    _validators: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def errors(self, name: str, schema: Any, value: Any) -> list[dict[str, str]]:
        """Where and how `value` breaks a schema, which is compiled once for each `name`."""
        known = self._validators.get(name)
        if known is None or known[0] is not schema:
            known = self._validators[name] = (schema, compile_schema(schema))
        if known[1].is_valid(value):
            return []
        return [
            {"path": "/".join(map(str, error.instance_path)), "rule": error.message}
            for error in islice(known[1].iter_errors(value), MAX_LISTED)
        ]


class Work:
    """One piece of work. Its `execution_id` is the same for every attempt at it."""

    PREFIX: ClassVar[str] = ""

    def __init__(self, entry: Entry, op: Any, order: Order, kit: Kit) -> None:
        self.entry = entry
        self.order = order
        self._name = entry.export.name
        self._op = op
        self._kit = kit
        self.size = _size(self.payload, kit.codec)
        """Bytes of what the caller gave, as JSON."""
        self.execution_id = self._named() or order.execution_id or kit.make_id(self.PREFIX)

    @property
    def payload(self) -> Any:
        """What the caller gave, as JSON or as Python values."""
        raise NotImplementedError

    @property
    def repeatable(self) -> bool:
        """Whether there may be another attempt, as things are now."""
        return retry.repeatable(self.entry.export.kind, self.entry.export.facts.get("effect_class"))

    def place(self) -> dict[str, Any]:
        """Where the work belongs, as far as its input says so: a session, a chain."""
        return {}

    def limits(self) -> dict[str, Any]:
        """What the work's own policy allows, for the claims of its token."""
        return {}

    def problem(self) -> Failure | None:
        """Why it cannot be begun."""
        why = id_problem(self.execution_id)
        return None if why is None else Failure(Code.INVALID_INPUT, f"the id of the work {why}")

    async def operation(self, beside: Mapping[str, Any], room: Path | None) -> PluginOp:
        """What to ask in the next attempt."""
        raise NotImplementedError

    def heard(self, event: Any) -> str | None:
        """The plugin says something before its answer; what is wrong with that, if anything is."""
        return None

    async def begin(self) -> None:
        """Find out what is known of it from before; called once, before anything else."""

    async def left(self, failure: Failure) -> None:
        """The attempt has failed; it may have left something of use."""

    async def judge(self, result: Any, room: Path | None) -> Any:
        """The result as the caller gets it, or the `Failure` that it really is."""
        return result

    def says_retryable(self, result: Any) -> bool:
        """Whether a result says that another attempt may do better."""
        return False

    def _named(self) -> str | None:
        """The id of the work where the caller's own input has it."""
        return None

    def _invalid(self, code: str, why: str, **detail: Any) -> Failure:
        text = f"what {self._name} gave back cannot be used: {why}"
        return Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN, detail={"plugin_code": code, **detail})


class ToolWork(Work):
    """A function with a result. The output is held to its schema; an error that the tool itself reports is a result."""

    PREFIX = "toolx"

    @property
    def payload(self) -> Any:
        return self._op.input

    async def operation(self, beside: Mapping[str, Any], room: Path | None) -> PluginOp:
        return InvokeTool(self._name, self._op.input, {**beside, "tool_execution_id": self.execution_id})

    async def judge(self, result: Any, room: Path | None) -> Any:
        code = "tool.invalid_output"
        if not isinstance(result, dict):
            return self._invalid(code, "it is no object")
        whole = {"content": [], "structured_output": None, "is_error": False, "retryable": False, **result}
        if not isinstance(whole["content"], list):
            return self._invalid(code, "content must be a list")
        if type(whole["is_error"]) is not bool or type(whole["retryable"]) is not bool:
            return self._invalid(code, "is_error and retryable must be true or false")
        schema = self.entry.export.output_schema
        if schema is None or (whole["is_error"] and whole["structured_output"] is None):
            return whole
        errors = self._kit.errors(f"{self.entry.full_name}.output", schema, whole["structured_output"])
        if errors:
            first = errors[0]
            where = f"structured_output{'/' if first['path'] else ''}{first['path']}"
            return self._invalid(code, f"{where}: {first['rule']}", errors=errors)
        return whole

    def says_retryable(self, result: Any) -> bool:
        return bool(result["is_error"] and result["retryable"])


class HookWork(Work):
    """An event to be told of. Whoever delivers it says which delivery and which attempt this is."""

    PREFIX = "del"

    @property
    def payload(self) -> Any:
        return self._op.event

    async def operation(self, beside: Mapping[str, Any], room: Path | None) -> PluginOp:
        delivery = {"delivery_id": self.execution_id, "attempt": self.order.attempt}
        return RunHook(self._name, self._op.event, {**beside, **delivery})


class CompactorWork(Work):
    """A conversation to be made shorter: what comes back is a proposal, and the host judges it."""

    PREFIX = "cmp"

    @property
    def payload(self) -> Any:
        return self._op.request

    def _named(self) -> str | None:
        given: str | None = self._op.request.get("compaction_id")
        return given

    def place(self) -> dict[str, Any]:
        return {"chain_id": self._op.request["source"].get("chain_id")}

    @property
    def _projection(self) -> dict[str, Any]:
        projection: dict[str, Any] = self._op.request["source"]["projection"]
        return {"blocks": projection["blocks"], "pinned_items": projection.get("pinned_items", [])}

    async def operation(self, beside: Mapping[str, Any], room: Path | None) -> PluginOp:
        request = self._op.request
        whole = self._projection
        estimate = request["source"]["projection"].get("token_estimate")
        if estimate is None:
            estimate = compaction_result.token_estimate([*whole["blocks"], *whole["pinned_items"]])
        data = self._kit.codec.encode(whole)
        if room is not None and len(data) > MAX_INLINE:
            ref = await asyncio.to_thread(artifacts.write, room, PROJECTION_FILE, data, PROJECTION_TYPE)
            projection = {"transport": "artifact", "artifact": ref, "token_estimate": estimate}
        else:
            projection = {"transport": "inline", **whole, "token_estimate": estimate}
        chain_id = self.place()["chain_id"] or self.order.chain_id
        parts = {
            "compaction_id": self.execution_id,
            "source": {"chain_id": chain_id, "projection": projection},
            "target": request["target"],
            "policy": request.get("policy", {}),
        }
        return Compact(self._name, parts, beside)

    async def judge(self, result: Any, room: Path | None) -> Any:
        whole = self._projection
        said = result.get("seed_blocks") if isinstance(result, dict) else None
        blocks = compaction_result.with_pinned(said if isinstance(said, list) else [], whole["pinned_items"])
        breaches = compaction_result.breaches(
            result, self._op.request, blocks, [*whole["blocks"], *whole["pinned_items"]]
        )
        if breaches:
            return self._invalid("compactor.invalid_seed", "; ".join(breaches), breaches=breaches)
        return {**result, "seed_blocks": blocks, "token_estimate": compaction_result.token_estimate(blocks)}


class HarnessWork(Work):
    """A program of many steps, which can be gone on with: how exactly is a matter of its fidelity."""

    PREFIX = "exec"

    def __init__(self, entry: Entry, op: Any, order: Order, kit: Kit) -> None:
        super().__init__(entry, op, order, kit)
        self._resuming = op.request.get("mode", "start") == "resume"
        self._fidelity = entry.export.facts.get("fidelity", "checkpoint")
        self._key = journey_key(order.org_id, self.execution_id)
        self._known = False
        self._journey = Journey(op.request.get("trigger"))
        self._keeping: asyncio.Task[None] | None = None
        """Writes the journey down while the plugin goes on: what it says comes in a callback."""
        self._unkept: Exception | None = None
        """Why that did not work."""

    async def begin(self) -> None:
        known = await self._kit.checkpoints.load(self._key) if self._resuming else None
        self._known = known is not None
        if known is not None:
            trigger = known.trigger if self._journey.trigger is None else self._journey.trigger
            self._journey = msgspec.structs.replace(known, trigger=trigger)

    @property
    def payload(self) -> Any:
        return self._op.request

    def _named(self) -> str | None:
        given: str | None = (self._op.request.get("target") or {}).get("execution_id")
        return given

    def place(self) -> dict[str, Any]:
        target = self._op.request.get("target") or {}
        return {"session_id": target.get("session_id"), "chain_id": target.get("chain_id")}

    @property
    def repeatable(self) -> bool:
        has_checkpoint = self._fidelity in _EXACT and self._journey.checkpoint is not None
        return retry.repeatable("harness", None, has_checkpoint=has_checkpoint)

    def limits(self) -> dict[str, Any]:
        return dict(self._op.request.get("policy") or {})

    def problem(self) -> Failure | None:
        if not self._resuming:
            return super().problem()
        have = {"prompt_replay": self._journey.trigger, "summary_reseed": self._journey.summary}
        if self._known and have.get(self._fidelity, self._journey.checkpoint) is not None:
            return None
        text = f"{self.execution_id} left nothing that {self._name} could go on from ({self._fidelity})"
        return Failure(Code.NOT_FOUND, text, detail={"plugin_code": "harness.nothing_to_resume"})

    async def operation(self, beside: Mapping[str, Any], room: Path | None) -> PluginOp:
        request, journey = self._op.request, self._journey
        ids = {"session_id": self.order.session_id, "chain_id": self.order.chain_id}
        target = {**ids, **(request.get("target") or {}), "execution_id": self.execution_id}
        # Once it has a checkpoint, every further attempt goes on from there: its steps have had effects.
        onward = self._resuming or self.repeatable
        parts = {
            "mode": "resume" if onward else "start",
            "target": target,
            "trigger": self._trigger(onward),
            "policy": self.limits(),
        }
        if onward and journey.checkpoint is not None:
            parts["checkpoint"] = journey.checkpoint
        await self._kit.checkpoints.save(self._key, journey)
        return RunHarness(self._name, parts, beside)

    def _trigger(self, onward: bool) -> Any:
        if onward and self._fidelity == "summary_reseed" and self._journey.summary is not None:
            return {"type": "summary_reseed", "input": [{"type": "text", "text": self._journey.summary}]}
        return self._journey.trigger or {"type": "user_request", "input": []}

    def heard(self, event: Any) -> str | None:
        is_checkpoint = isinstance(event, dict) and event.get("type") == "checkpoint"
        return self._reached(event.get("checkpoint")) if is_checkpoint else None

    async def left(self, failure: Failure) -> None:
        result = failure.detail.get("result")
        if isinstance(result, dict) and result.get("checkpoint") is not None:
            self._reached(result["checkpoint"])
        await self._kept()

    async def judge(self, result: Any, room: Path | None) -> Any:
        if not isinstance(result, dict):
            return self._invalid("harness.invalid_result", "it is no object")
        why = None if result.get("checkpoint") is None else self._reached(result["checkpoint"])
        if why is not None:
            return self._invalid("harness.invalid_checkpoint", why)
        summary = result.get("summary")
        text = summary.get("text") if isinstance(summary, dict) else None
        if isinstance(text, str):
            self._save(msgspec.structs.replace(self._journey, summary=text))
        await self._kept()
        found = result.get("artifacts") or []
        if not found:
            return {**result, "artifacts": []}
        if room is None:
            return self._invalid("harness.invalid_artifact", "it has no scratch directory to leave artifacts in")
        try:
            kept = await asyncio.to_thread(self._kit.artifacts.pick_up, room, found)
        except (artifacts.BadArtifact, OSError) as error:
            return self._invalid("harness.invalid_artifact", str(error))
        return {**result, "artifacts": kept}

    def _reached(self, checkpoint: Any) -> str | None:
        """It has come as far as this; the reason why that cannot be kept."""
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("kind"), str):
            return "a checkpoint must be an object with a kind and data"
        size = len(self._kit.codec.encode(checkpoint))
        if size > MAX_CHECKPOINT:
            return f"a checkpoint has {size:,} bytes; at most {MAX_CHECKPOINT:,}"
        self._save(msgspec.structs.replace(self._journey, checkpoint=checkpoint))
        return None

    def _save(self, journey: Journey) -> None:
        self._journey = journey
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        """Write down how far it has come, until that is as far as it has come: of many steps only the last counts."""
        kept = self._unkept = None
        try:
            while kept is not self._journey:
                kept = self._journey
                await self._kit.checkpoints.save(self._key, kept)
        except Exception as error:
            self._unkept = error

    async def _kept(self) -> None:
        """Everything is written down; raises what prevented it."""
        if self._keeping is not None:
            await self._keeping
        if self._unkept is not None:
            raise self._unkept


def journey_key(org: str | None, execution_id: str) -> str:
    """Callers name their own executions, and no org may go on from another's. No id has a colon."""
    return execution_id if org in (None, DEFAULT_ORG) else f"{org}:{execution_id}"


def _size(payload: Any, codec: MsgspecCodec) -> int:
    return memoryview(payload).nbytes if isinstance(payload, msgspec.Raw) else len(codec.encode(payload))


WORKS: dict[type, type[Work]] = {
    InvokeTool: ToolWork,
    RunHook: HookWork,
    Compact: CompactorWork,
    RunHarness: HarnessWork,
}
"""By the operation that asks for it."""
