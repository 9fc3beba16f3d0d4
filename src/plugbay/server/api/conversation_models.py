"""Request and response models of sessions, chains, runs, compactions and harnesses: fields and bounds only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Header
from pydantic import Field, StringConstraints

from plugbay.server.api.models import Answer, Body, ChosenId
from plugbay.server.domain.credentials import LIMITS
from plugbay.server.domain.run_loop import LONGEST_MS, MOST_TOKENS, MOST_TOOL_CALLS, MOST_TURNS
from plugbay.server.domain.sessions import MAX_BLOCKS

MAX_KEYS = 64
"""Keys of metadata: labels, not a database."""

Metadata = Annotated[dict[str, Any], Field(max_length=MAX_KEYS)]
Text = Annotated[str, StringConstraints(max_length=200)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=300)]
ToolName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Tools = Annotated[list[ToolName], Field(max_length=256)]
Temperature = Annotated[float, Field(ge=0, le=2)]
BlockIn = dict[str, Any]
TraceParent = Annotated[str | None, Header(max_length=512, description="W3C trace context.")]


def _one_of(*names: str) -> Any:
    """A string field whose values the database constrains; listed in the OpenAPI document."""
    return Field(json_schema_extra={"enum": list(names)})


ChainStatus = Annotated[str, _one_of("idle", "running", "closed")]
RunStatus = Annotated[str, _one_of("queued", "running", "completed", "cancelled", "failed", "timed_out")]
WorkStatus = Annotated[str, _one_of("queued", "running", "succeeded", "failed", "cancelled", "retryable_failure")]
Mode = Annotated[str, _one_of("start", "resume")]
Blocks = Annotated[list[BlockIn], Field(max_length=MAX_BLOCKS)]


# Sessions.


class SessionIn(Body):
    org_id: ChosenId | None = Field(default=None, description="For an operator of all orgs.")
    project_id: ChosenId | None = None
    external_session_id: Text | None = None
    metadata: Metadata = Field(default_factory=dict)


class SessionPatch(Body):
    external_session_id: Text | None = None
    metadata: Metadata | None = None


class BranchIn(Body):
    chain_id: ChosenId | None = Field(default=None, description="The chain to copy; default: the latest.")
    metadata: Metadata = Field(default_factory=dict)


class SessionOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    external_session_id: str | None
    metadata: dict[str, Any]
    latest_chain_id: str | None
    parent_session_id: str | None
    created_at: str
    updated_at: str


# Chains.


class LimitsIn(Body):
    max_turns: Annotated[int, Field(ge=1, le=MOST_TURNS)] | None = None
    max_tool_calls: Annotated[int, Field(ge=0, le=MOST_TOOL_CALLS)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=LONGEST_MS)] | None = None


class Defaults(Body):
    """Defaults for runs on a chain."""

    model: ModelName | None = None
    tools: Tools | None = None
    limits: LimitsIn | None = None
    temperature: Temperature | None = None


class ChainIn(Body):
    session_id: ChosenId
    blocks: Blocks = Field(default_factory=list)
    defaults: Defaults = Field(default_factory=Defaults)
    metadata: Metadata = Field(default_factory=dict)


class ChainPatch(Body):
    defaults: Defaults | None = None
    metadata: Metadata | None = None
    status: Literal["idle", "closed"] | None = None


class ForkIn(Body):
    sequence: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(default=None, description="The last block.")
    run_id: ChosenId | None = Field(default=None, description="Up to the end of this run.")
    metadata: Metadata | None = None


class ChainOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    session_id: str
    status: ChainStatus
    chain_version: int
    parent_chain_id: str | None
    forked_from_run_id: str | None
    created_by_compaction_id: str | None
    message_count_cached: int
    token_estimate_cached: int
    digest: str = Field(description="Covers every block, in order: equal digests, equal bytes.")
    defaults: dict[str, Any]
    metadata: dict[str, Any]
    created_at: str
    updated_at: str


class BranchOut(Answer):
    session: SessionOut
    chain: ChainOut


class ContextOut(Answer):
    chain: ChainOut
    blocks: list[dict[str, Any]]
    next_sequence: int | None = Field(description="`after` for the next page; null: no more blocks.")


# Runs.


class Routing(Body):
    model: ModelName | None = None


class RunIn(Body):
    blocks: Blocks = Field(default_factory=list, description="The input for the model.")
    model: ModelName | None = Field(default=None, description="`provider/model`.")
    routing: Routing = Field(default_factory=Routing)
    tools: Tools | None = Field(default=None, description="Names of tools; default: all bound tools.")
    limits: LimitsIn = Field(default_factory=LimitsIn)
    temperature: Temperature | None = None
    parent_run_id: ChosenId | None = None
    metadata: Metadata = Field(default_factory=dict)


class RunAnywhereIn(RunIn):
    chain_id: ChosenId | None = None
    session_id: ChosenId | None = Field(default=None, description="Its latest chain, or a new one.")


class RegenerateIn(Body):
    model: ModelName | None = None
    metadata: Metadata = Field(default_factory=dict)


class Usage(Answer):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class Wrong(Answer):
    code: str
    message: str


class RunOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    chain_id: str
    session_id: str
    parent_run_id: str | None
    rerun_of_run_id: str | None
    execution_id: str | None
    model: str
    status: RunStatus
    stop_reason: str | None
    error: Wrong | None
    turn_count: int
    tool_count: int
    usage: Usage
    trace_id: str
    metadata: dict[str, Any]
    created_at: str
    started_at: str | None
    completed_at: str | None


class TimelineEntry(Answer):
    sequence: int
    type: str
    data: dict[str, Any]
    created_at: str


class ToolExecutionOut(Answer):
    id: str
    turn: int
    position: int
    tool_call_id: str
    name: str
    binding_id: str | None
    status: str | None
    execution_outcome: str | None
    error_code: str | None
    attempts: int
    input: Any
    result: Any
    started_at: str
    ended_at: str | None


class TimelineOut(Answer):
    run: RunOut
    events: list[TimelineEntry]
    tool_executions: list[ToolExecutionOut]


# Compactions.


class CompactorRef(Body):
    binding_id: ChosenId | None = None


class Target(Body):
    max_input_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)]
    target_model: ModelName | None = None


class CompactionPolicy(Body):
    retain_system: bool = True
    retain_open_tasks: bool = True


class CompactionIn(Body):
    chain_id: ChosenId
    target: Target
    compactor: CompactorRef = Field(default_factory=CompactorRef)
    policy: CompactionPolicy = Field(default_factory=CompactionPolicy)
    pinned_items: Annotated[list[ChosenId], Field(max_length=200)] = Field(
        default_factory=list, description="Ids of blocks that must be in the new chain."
    )
    compaction_id: ChosenId | None = Field(default=None, description="The same id again is the same compaction.")


class CompactionOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    session_id: str
    chain_id: str
    new_chain_id: str | None
    binding_id: str
    status: WorkStatus
    target: dict[str, Any]
    policy: dict[str, Any]
    source_digest: str
    summary: Any
    diagnostics: Any
    error: dict[str, Any] | None
    created_by_run_id: str | None
    created_at: str
    started_at: str | None
    completed_at: str | None


# Harnesses.


class TriggerIn(Body):
    type: Annotated[str, StringConstraints(min_length=1, max_length=64)] = "user_request"
    input: Annotated[list[dict[str, Any]], Field(max_length=64)] = Field(default_factory=list)


class HarnessPolicy(Body):
    """Limits that the gateway enforces on a harness."""

    max_depth: Annotated[int, Field(ge=0, le=64)] = LIMITS["max_depth"]
    max_child_runs: Annotated[int, Field(ge=0, le=100_000)] = LIMITS["max_child_runs"]
    allow_compaction: bool = LIMITS["allow_compaction"]


class TargetIn(Body):
    session_id: ChosenId | None = None
    chain_id: ChosenId | None = None
    execution_id: ChosenId | None = None


class HarnessInput(Body):
    """The `input` of a harness started as an invocation: same fields and limits as an execution."""

    mode: Literal["start"] = Field(default="start", description="To resume, use `harness-executions/ID:resume`.")
    target: TargetIn = Field(default_factory=TargetIn)
    trigger: TriggerIn = Field(default_factory=TriggerIn)
    policy: HarnessPolicy = Field(default_factory=HarnessPolicy)


class ExecutionIn(Body):
    binding_id: ChosenId
    session_id: ChosenId | None = None
    chain_id: ChosenId | None = None
    org_id: ChosenId | None = Field(default=None, description="For an operator of all orgs.")
    project_id: ChosenId | None = None
    trigger: TriggerIn = Field(default_factory=TriggerIn)
    policy: HarnessPolicy = Field(default_factory=HarnessPolicy)


class ExecutionOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    session_id: str
    chain_id: str
    binding_id: str
    status: WorkStatus
    mode: Mode
    trigger: dict[str, Any]
    policy: dict[str, Any]
    summary: Any
    artifacts: list[Any]
    checkpoint: dict[str, Any] | None
    error: dict[str, Any] | None
    resumes: int
    trace_id: str
    created_at: str
    started_at: str | None
    completed_at: str | None
