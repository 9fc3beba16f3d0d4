"""Sessions, chains, runs, harnesses and compactions on pages: rows of lists, messages, budgets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from plugbay.server.dashboard.tables import Cell
from plugbay.server.dashboard.text import as_json, duration
from plugbay.server.dashboard.views.work import Span, tone_of, words
from plugbay.store.chains import Chain
from plugbay.store.compactions import Compaction
from plugbay.store.harnesses import HarnessExecution
from plugbay.store.runs import Run, RunEvent, ToolExecution
from plugbay.store.sessions import Session

MAX_TEXT = 8_000
"""Characters of one message on a page."""

SPEAKERS = {
    "input": "user",
    "response": "model",
    "system": "system",
    "thinking": "model, thinking",
    "tool_call": "tool call",
    "tool_result": "tool result",
}
"""The speaker of each kind of block."""

CHAIN_TONES = {"idle": "calm", "running": "good", "closed": "off"}


class Message(msgspec.Struct, frozen=True):
    """One block of a chain, as a message of its speaker."""

    kind: str
    speaker: str
    text: str
    about: str
    """The tool of a call, or that a result is an error."""
    bad: bool
    run_id: str


def message_of(block: Mapping[str, Any]) -> Message:
    """A block as a message; whatever is not text is named, and tools have their data as JSON."""
    kind = str(block.get("kind", ""))
    content = block.get("content")
    parts = [_part(item) for item in content] if isinstance(content, list) else []
    bad, about = False, ""
    if kind == "tool_call":
        about = str(block.get("name", ""))
        parts.append(as_json(block.get("input"), most=MAX_TEXT))
    if kind == "tool_result":
        bad = block.get("is_error") is True
        about = "failed" if bad else ""
        if block.get("structured_output") is not None:
            parts.append(as_json(block["structured_output"], most=MAX_TEXT))
    text = "\n".join(part for part in parts if part)
    return Message(kind, SPEAKERS.get(kind, kind), text, about, bad, str(block.get("run_id") or ""))


def _part(item: Any) -> str:
    if not isinstance(item, Mapping):
        return ""
    if item.get("type") == "text":
        return str(item.get("text", ""))
    return f"({item.get('type', 'content')})"


# Rows.

SESSION_COLUMNS = ("Session", "Where", "Changed", "Since")
CHAIN_COLUMNS = ("Chain", "Status", "Blocks", "Tokens", "Since")
RUN_COLUMNS = ("Run", "Status", "Model", "Chain", "Tokens", "Took", "When")
HARNESS_COLUMNS = ("Execution", "Status", "Binding", "Where", "Resumed", "When")
COMPACTION_COLUMNS = ("Compaction", "Status", "Chain", "New chain", "Took", "When")


def session_row(session: Session) -> tuple[Cell, ...]:
    return (
        Cell(session.external_session_id or session.id, session.id, f"/sessions/{session.id}"),
        Cell(session.org_id, session.project_id or ""),
        Cell(at=session.updated_at),
        Cell(at=session.created_at),
    )


def chain_row(chain: Chain) -> tuple[Cell, ...]:
    came = "compacted" if chain.created_by_compaction_id else "forked" if chain.parent_chain_id else ""
    return (
        Cell(chain.id, came, f"/chains/{chain.id}", mono=True),
        Cell(words(chain.status), tone=CHAIN_TONES.get(chain.status, "calm")),
        Cell(f"{chain.block_count:,}", number=True),
        Cell(f"{chain.token_estimate:,}", number=True),
        Cell(at=chain.created_at),
    )


def run_row(run: Run) -> tuple[Cell, ...]:
    return (
        Cell(run.id, link=f"/runs/{run.id}", mono=True),
        Cell(words(run.status), str((run.error or {}).get("code", "")), tone=tone_of(run.status)),
        Cell(run.model),
        Cell(run.chain_id, link=f"/chains/{run.chain_id}", mono=True),
        Cell(f"{run.input_tokens + run.output_tokens:,}", number=True),
        Cell(took(run.started_at, run.completed_at), number=True),
        Cell(at=run.created_at),
    )


def harness_row(execution: HarnessExecution) -> tuple[Cell, ...]:
    return (
        Cell(execution.id, link=f"/harnesses/{execution.id}", mono=True),
        Cell(words(execution.status), str((execution.error or {}).get("code", "")), tone=tone_of(execution.status)),
        Cell(execution.binding_id, link=f"/bindings/{execution.binding_id}", mono=True),
        Cell(execution.org_id, execution.project_id or ""),
        Cell(str(execution.resumes), number=True),
        Cell(at=execution.created_at),
    )


def compaction_row(compaction: Compaction) -> tuple[Cell, ...]:
    new = compaction.new_chain_id
    return (
        Cell(compaction.id, link=f"/compactions/{compaction.id}", mono=True),
        Cell(words(compaction.status), str((compaction.error or {}).get("code", "")), tone=tone_of(compaction.status)),
        Cell(compaction.chain_id, link=f"/chains/{compaction.chain_id}", mono=True),
        Cell(new or "", link=f"/chains/{new}" if new else "", mono=bool(new)),
        Cell(took(compaction.started_at, compaction.completed_at), number=True),
        Cell(at=compaction.created_at),
    )


def took(begin: float | None, end: float | None) -> str:
    return "" if begin is None or end is None else duration((end - begin) * 1000)


# Runs.


def run_spans(run: Run, tools: Sequence[ToolExecution]) -> list[Span]:
    """The run itself, and its tool calls."""
    code = str((run.error or {}).get("code", "")) or (run.stop_reason or "")
    spans = [] if run.started_at is None else [Span("run started", run.started_at, run.completed_at, _end(run), code)]
    for each in tools:
        about = " ".join(
            text for text in (each.error_code or "", f"{each.attempts} attempts" if each.attempts > 1 else "") if text
        )
        spans.append(Span(f"tool {each.name}", each.started_at, each.ended_at, each.status, about))
    return spans


def _end(run: Run) -> str | None:
    return run.status if run.completed_at is not None else None


def event_rows(events: Sequence[RunEvent]) -> list[tuple[str, float, str]]:
    """Type, time and data of the entries of a run."""
    return [(each.type, each.created_at, as_json(each.data, spread=False, most=2_000)) for each in events]


# Budgets.


class Budget(msgspec.Struct, frozen=True):
    """One limit of an execution, and what it has spent of it."""

    name: str
    spent: int | None
    """None: it is a limit without a count."""
    limit: str
    most: int | None = None


def budgets_of(policy: Mapping[str, Any], spent: Mapping[str, int]) -> tuple[Budget, ...]:
    runs, compactions = policy.get("max_child_runs"), policy.get("max_compactions")
    compacts = policy.get("allow_compaction") is not False
    found = [
        Budget("runs", spent.get("child_run", 0), _limit(runs), _count(runs)),
        Budget("depth", None, _limit(policy.get("max_depth"))),
        Budget(
            "compactions", spent.get("compaction", 0), _limit(compactions) if compacts else "none", _count(compactions)
        ),
    ]
    if policy.get("tools") is not None:
        found.append(Budget("tools", None, ", ".join(map(str, policy["tools"])) or "none"))
    return tuple(found)


def _limit(value: Any) -> str:
    return f"{value:,}" if _count(value) is not None else "no limit"


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
