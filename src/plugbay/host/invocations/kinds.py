"""`Execution`: one requested execution of a tool, hook, compactor or harness, over all its attempts.

Holds the differences between the four kinds: the body of the request, the meaning of events, the check of results,
whether another attempt is allowed. It has no processes, deadlines or records; those are in `attempt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec.structs import replace

from plugbay.contracts.vai.spec import MODES
from plugbay.host.catalog.catalog import Entry
from plugbay.host.invocations import artifacts, compaction_result, retry
from plugbay.host.invocations.context import narrow_limits
from plugbay.host.invocations.resources import Resources
from plugbay.host.ports import DEFAULT_ORG, ResumeState
from plugbay.host.request import CallRequest, id_problem
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
"""Bytes of a checkpoint as JSON: enough to resume from, too little to store data in."""

GENERAL = "general"
"""The `target_context` of a compactor for conversations of any kind, as is an empty one."""

SUMMARY_RESEED, PROMPT_REPLAY = "summary_reseed", "prompt_replay"

_EXACT = frozenset({"lossless", "checkpoint"})
"""Fidelities of harnesses that resume from their checkpoint."""


class Execution:
    """One execution. Its `execution_id` is the same for every attempt."""

    PREFIX: ClassVar[str] = ""

    def __init__(self, entry: Entry, op: Any, request: CallRequest, resources: Resources) -> None:
        self.entry = entry
        self.request = request
        self._name = entry.export.name
        self._op = op
        self._resources = resources
        self.size = _size(self.payload, resources.codec)
        """Bytes of the caller's input as JSON."""
        self._given = self._given_id()
        self.execution_id = self._given or request.execution_id or resources.make_id(self.PREFIX)
        self._attempts = request.attempt - 1
        """Attempts at this execution so far, earlier requests of the caller included."""

    def next_retry(self) -> int:
        """Begin another attempt; returns the number of attempts before it."""
        self._attempts += 1
        return self._attempts - 1

    @property
    def payload(self) -> Any:
        """The caller's input, as JSON or as Python values."""
        raise NotImplementedError

    @property
    def repeatable(self) -> bool:
        """Whether another attempt is allowed now."""
        return retry.repeatable(self.entry.export.kind, self.entry.export.facts.get("effect_class"))

    def location(self) -> dict[str, Any]:
        """The session and the chain that the input names."""
        return {}

    def token_limits(self) -> dict[str, Any]:
        """The limits of the request and its binding, for the claims of the token."""
        return dict(self._binding_limits)

    @property
    def _binding_limits(self) -> Mapping[str, Any]:
        return {} if self.request.binding is None else self.request.binding.policy.limits

    def problem(self) -> Failure | None:
        """Why it cannot be started."""
        why = None if self._given is None else id_problem(self._given)
        return None if why is None else Failure(Code.INVALID_INPUT, f"the execution id {why}")

    async def operation(self, common: Mapping[str, Any], folder: Path | None) -> PluginOp:
        """The operation of the next attempt; `common` is the part of the body that all kinds share."""
        raise NotImplementedError

    def on_event(self, event: Any) -> str | None:
        """Handle an event that precedes the result; returns why it was refused, if it was."""
        return None

    async def load(self) -> None:
        """Load the stored state of earlier attempts; called once, before anything else."""

    async def on_failure(self, failure: Failure) -> None:
        """Handle a failed attempt: it may have left a checkpoint."""

    async def check_result(self, result: Any, folder: Path | None) -> Any:
        """The result as the caller gets it, or the `Failure` of a result that breaks the contract."""
        return result

    async def store_artifacts(self, failure: Failure, folder: Path | None) -> Failure:
        """Store the artifacts of the result that a plugin answered with its failure; returns the failure with them."""
        result = failure.detail.get("result")
        if folder is None or not isinstance(result, dict) or not result.get("artifacts"):
            return failure
        try:
            kept = await self._collect(folder, result["artifacts"])
        except (artifacts.BadArtifact, OSError) as error:
            return failure.with_detail(artifacts_refused=str(error))
        return failure.replace_detail(result={**result, "artifacts": kept})

    async def _collect(self, folder: Path, references: Any) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self._resources.artifacts.collect, folder, references)

    def is_retryable(self, result: Any) -> bool:
        """Whether a result says that another attempt may succeed."""
        return False

    def _given_id(self) -> str | None:
        """The execution id in the caller's input, if it has one."""
        return None

    def _invalid(self, code: str, why: str, **detail: Any) -> Failure:
        text = f"the result of {self._name} cannot be used: {why}"
        return Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN, detail={"plugin_code": code, **detail})


class ToolExecution(Execution):
    """A tool call. Its output must match its schema; an error that the tool itself reports is a result."""

    PREFIX = "toolx"

    @property
    def payload(self) -> Any:
        return self._op.input

    async def operation(self, common: Mapping[str, Any], folder: Path | None) -> PluginOp:
        return InvokeTool(self._name, self._op.input, {**common, "tool_execution_id": self.execution_id})

    async def check_result(self, result: Any, folder: Path | None) -> Any:
        code = "tool.invalid_output"
        if not isinstance(result, dict):
            return self._invalid(code, "it is not an object")
        whole = {"content": [], "structured_output": None, "is_error": False, "retryable": False, **result}
        if not isinstance(whole["content"], list):
            return self._invalid(code, "content must be a list")
        if type(whole["is_error"]) is not bool or type(whole["retryable"]) is not bool:
            return self._invalid(code, "is_error and retryable must be true or false")
        schema = self.entry.export.output_schema
        if schema is not None and not (whole["is_error"] and whole["structured_output"] is None):
            errors = self._resources.schema_errors(f"{self.entry.full_name}.output", schema, whole["structured_output"])
            if errors:
                first = errors[0]
                where = f"structured_output{'/' if first['path'] else ''}{first['path']}"
                return self._invalid(code, f"{where}: {first['rule']}", errors=errors)
        if folder is None or not whole.get("artifacts"):
            return whole
        try:
            return {**whole, "artifacts": await self._collect(folder, whole["artifacts"])}
        except (artifacts.BadArtifact, OSError) as error:
            return self._invalid("tool.invalid_artifact", str(error))

    def is_retryable(self, result: Any) -> bool:
        return bool(result["is_error"] and result["retryable"])


class HookExecution(Execution):
    """The delivery of an event to a hook. The caller numbers the deliveries and their attempts."""

    PREFIX = "del"

    @property
    def payload(self) -> Any:
        return self._op.event

    async def operation(self, common: Mapping[str, Any], folder: Path | None) -> PluginOp:
        delivery = {"delivery_id": self.execution_id, "attempt": self.request.attempt}
        return RunHook(self._name, self._op.event, {**common, **delivery})


class CompactorExecution(Execution):
    """A compaction. The compactor proposes blocks; the host checks them before anyone uses them."""

    PREFIX = "cmp"

    @property
    def payload(self) -> Any:
        return self._op.request

    def _given_id(self) -> str | None:
        given: str | None = self._op.request.get("compaction_id")
        return given

    def location(self) -> dict[str, Any]:
        return {"chain_id": self._op.request["source"].get("chain_id")}

    @property
    def _projection(self) -> dict[str, Any]:
        projection: dict[str, Any] = self._op.request["source"]["projection"]
        return {"blocks": projection["blocks"], "pinned_items": projection.get("pinned_items", [])}

    def problem(self) -> Failure | None:
        wanted, serves = self._op.request["target"].get("target_context"), self.entry.export.facts.get("target_context")
        if serves_context(serves, wanted):
            return super().problem()
        text = f"{self._name} compacts conversations of the context {serves!r}, not {wanted!r}"
        detail = {"path": "target.target_context", "plugin_code": "compactor.other_context"}
        return Failure(Code.INVALID_INPUT, text, detail=detail)

    async def operation(self, common: Mapping[str, Any], folder: Path | None) -> PluginOp:
        request = self._op.request
        whole = self._projection
        estimate = request["source"]["projection"].get("token_estimate")
        if estimate is None:
            estimate = compaction_result.token_estimate([*whole["blocks"], *whole["pinned_items"]])
        data = self._resources.codec.encode(whole)
        if folder is not None and len(data) > MAX_INLINE:
            ref = await asyncio.to_thread(artifacts.write, folder, PROJECTION_FILE, data, PROJECTION_TYPE)
            projection = {"transport": "artifact", "artifact": ref, "token_estimate": estimate}
        else:
            projection = {"transport": "inline", **whole, "token_estimate": estimate}
        chain_id = self.location()["chain_id"] or self.request.chain_id
        declared = self.entry.export.facts.get("target_context")
        parts = {
            "compaction_id": self.execution_id,
            "source": {"chain_id": chain_id, "projection": projection},
            "target": {**({"target_context": declared} if declared else {}), **request["target"]},
            "policy": request.get("policy", {}),
        }
        return Compact(self._name, parts, common)

    async def check_result(self, result: Any, folder: Path | None) -> Any:
        whole = self._projection
        found = result.get("seed_blocks") if isinstance(result, dict) else None
        seed, pinned = found if isinstance(found, list) else [], whole["pinned_items"]
        blocks = compaction_result.with_pinned(seed, pinned)
        violations = compaction_result.violations(result, self._op.request, blocks, [*whole["blocks"], *pinned])
        if self.entry.export.facts.get("supports_pinned_items"):
            violations += compaction_result.lost_pins(seed, pinned)
        if violations:
            return self._invalid("compactor.invalid_seed", "; ".join(violations), breaches=violations)
        return {**result, "seed_blocks": blocks, "token_estimate": compaction_result.token_estimate(blocks)}


class HarnessExecution(Execution):
    """A run of a harness, which can be resumed; its fidelity says from what."""

    PREFIX = "exec"

    def __init__(self, entry: Entry, op: Any, request: CallRequest, resources: Resources) -> None:
        super().__init__(entry, op, request, resources)
        self._resuming = op.request.get("mode", "start") == "resume"
        self._fidelity = entry.export.facts.get("fidelity", "checkpoint")
        self._supports: Sequence[str] = entry.export.facts.get("supports") or ()
        self._key = resume_key(request.org_id, self.execution_id)
        self._is_known = False
        self._state = ResumeState(op.request.get("trigger"))
        self._saving: asyncio.Task[None] | None = None
        """Saves the state while the plugin runs: events arrive in a callback, which cannot wait."""
        self._save_error: Exception | None = None
        """Why the last save failed."""

    async def load(self) -> None:
        known = await self._resources.checkpoints.load(self._key) if self._resuming else None
        self._is_known = known is not None
        if known is not None:
            # A prompt replay repeats the recorded input; another resume may bring a new trigger.
            replays = self._state.trigger is None or self._fidelity == PROMPT_REPLAY
            trigger = known.trigger if replays else self._state.trigger
            self._state = replace(known, trigger=trigger)
            self._attempts = known.attempts

    @property
    def payload(self) -> Any:
        return self._op.request

    def _given_id(self) -> str | None:
        given: str | None = (self._op.request.get("target") or {}).get("execution_id")
        return given

    def location(self) -> dict[str, Any]:
        target = self._op.request.get("target") or {}
        return {"session_id": target.get("session_id"), "chain_id": target.get("chain_id")}

    @property
    def repeatable(self) -> bool:
        from_checkpoint = self._fidelity in _EXACT and supports(self._supports, "continue")
        has_checkpoint = from_checkpoint and self._state.checkpoint is not None
        return retry.repeatable("harness", None, has_checkpoint=has_checkpoint)

    @property
    def _policy(self) -> dict[str, Any]:
        """The policy of the request, narrowed by the binding and to what the manifest supports."""
        policy = narrow_limits(self._op.request.get("policy") or {}, self._binding_limits)
        return policy if supports(self._supports, "compact") else {**policy, "allow_compaction": False}

    def token_limits(self) -> dict[str, Any]:
        return {**self._policy, **({"supports": list(self._supports)} if self._supports else {})}

    def problem(self) -> Failure | None:
        mode = self.entry.export.facts.get("mode", MODES[0])
        if mode not in MODES:
            text = (
                f"{self._name} cannot run here: its harness mode is {mode!r:.60}; this host supports {', '.join(MODES)}"
            )
            return Failure(Code.UNAVAILABLE, text, detail={"plugin_code": "harness.unsupported_mode"})
        if not self._resuming:
            return super().problem()
        if not supports(self._supports, "continue"):
            text = f"{self._name} cannot be resumed: its manifest supports {', '.join(self._supports)}, not continue"
            return Failure(Code.CAPABILITY_NOT_ALLOWED, text, detail={"plugin_code": "harness.not_supported"})
        if self._is_known and resume_source(self._fidelity, self._state) is not None:
            return None
        text = f"{self.execution_id} has no stored state that {self._name} could resume from ({self._fidelity})"
        return Failure(Code.NOT_FOUND, text, detail={"plugin_code": "harness.nothing_to_resume"})

    async def operation(self, common: Mapping[str, Any], folder: Path | None) -> PluginOp:
        request, state = self._op.request, self._state
        ids = {"session_id": self.request.session_id, "chain_id": self.request.chain_id}
        target = {**ids, **(request.get("target") or {}), "execution_id": self.execution_id}
        # Once there is a checkpoint, further attempts resume from it: the steps before it had effects.
        resuming = self._resuming or self.repeatable
        parts = {
            "mode": "resume" if resuming else "start",
            "target": target,
            "trigger": self._trigger(resuming),
            "policy": self._policy,
        }
        if resuming and self._fidelity in _EXACT and state.checkpoint is not None:
            parts["checkpoint"] = state.checkpoint
        self._state = replace(state, attempts=self._attempts)
        await self._resources.checkpoints.save(self._key, self._state)
        return RunHarness(self._name, parts, common)

    def _trigger(self, resuming: bool) -> Any:
        if resuming and self._fidelity == SUMMARY_RESEED and self._state.summary is not None:
            return {"type": SUMMARY_RESEED, "input": [{"type": "text", "text": self._state.summary}]}
        return self._state.trigger or {"type": "user_request", "input": []}

    def on_event(self, event: Any) -> str | None:
        is_checkpoint = isinstance(event, dict) and event.get("type") == "checkpoint"
        return self._set_checkpoint(event.get("checkpoint")) if is_checkpoint else None

    async def on_failure(self, failure: Failure) -> None:
        result = failure.detail.get("result")
        if isinstance(result, dict):
            if result.get("checkpoint") is not None:
                self._set_checkpoint(result["checkpoint"])
            self._set_summary(result)
        if self._is_known and self._state.attempts != self._attempts:  # its process never started
            self._set_state(replace(self._state, attempts=self._attempts))
        await self._wait_saved()

    async def check_result(self, result: Any, folder: Path | None) -> Any:
        if not isinstance(result, dict):
            return self._invalid("harness.invalid_result", "it is not an object")
        why = None if result.get("checkpoint") is None else self._set_checkpoint(result["checkpoint"])
        if why is not None:
            return self._invalid("harness.invalid_checkpoint", why)
        self._set_summary(result)
        await self._wait_saved()
        found = result.get("artifacts") or []
        if not found:
            return {**result, "artifacts": []}
        if folder is None:
            return self._invalid(
                "harness.invalid_artifact", "artifacts need a scratch directory, and this invocation has none"
            )
        try:
            kept = await self._collect(folder, found)
        except (artifacts.BadArtifact, OSError) as error:
            return self._invalid("harness.invalid_artifact", str(error))
        return {**result, "artifacts": kept}

    def _set_checkpoint(self, checkpoint: Any) -> str | None:
        """Store a checkpoint; returns why it cannot be stored, if so."""
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("kind"), str):
            return "a checkpoint must be an object with a kind and data"
        size = len(self._resources.codec.encode(checkpoint))
        if size > MAX_CHECKPOINT:
            return f"a checkpoint has {size:,} bytes; at most {MAX_CHECKPOINT:,}"
        self._set_state(replace(self._state, checkpoint=checkpoint))
        return None

    def _set_summary(self, result: dict[str, Any]) -> None:
        summary = result.get("summary")
        text = summary.get("text") if isinstance(summary, dict) else None
        if isinstance(text, str):
            self._set_state(replace(self._state, summary=text))

    def _set_state(self, state: ResumeState) -> None:
        self._state = state
        if self._saving is None or self._saving.done():
            self._saving = asyncio.get_running_loop().create_task(self._save_latest())

    async def _save_latest(self) -> None:
        """Save until the latest state is saved; states in between are skipped."""
        kept = self._save_error = None
        try:
            while kept is not self._state:
                kept = self._state
                await self._resources.checkpoints.save(self._key, kept)
        except Exception as error:
            self._save_error = error

    async def _wait_saved(self) -> None:
        """Wait until the latest state is saved; raises the error of a failed save."""
        if self._saving is not None:
            await self._saving
        if self._save_error is not None:
            raise self._save_error


def resume_key(org: str | None, execution_id: str) -> str:
    """The storage key of a resume state. Callers choose execution ids, so the key has the org: no org may resume
    another's state. Ids have no colon."""
    return execution_id if org in (None, DEFAULT_ORG) else f"{org}:{execution_id}"


def resume_source(fidelity: str, state: ResumeState) -> Any:
    """The part of a stored state that a harness of this fidelity resumes from; None: there is nothing to resume."""
    of_fidelity = {PROMPT_REPLAY: state.trigger, SUMMARY_RESEED: state.summary}
    return of_fidelity.get(fidelity, state.checkpoint)


def supports(declared: Sequence[str], feature: str) -> bool:
    """Whether a harness may use a feature: one of those that its manifest lists, or any if it lists none."""
    return not declared or feature in declared


def serves_context(declared: str | None, wanted: str | None) -> bool:
    """Whether a compactor with this `target_context` serves a conversation of the wanted context."""
    return wanted is None or declared in (None, "", GENERAL, wanted)


def _size(payload: Any, codec: MsgspecCodec) -> int:
    return memoryview(payload).nbytes if isinstance(payload, msgspec.Raw) else len(codec.encode(payload))


EXECUTIONS: dict[type, type[Execution]] = {
    InvokeTool: ToolExecution,
    RunHook: HookExecution,
    Compact: CompactorExecution,
    RunHarness: HarnessExecution,
}
"""The class for each type of operation."""
