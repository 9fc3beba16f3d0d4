"""Conversation records for tests."""

from __future__ import annotations

from typing import Any

from plugbay.store.chains import Chain, StoredBlock
from plugbay.store.compactions import Compaction
from plugbay.store.deliveries import Delivery
from plugbay.store.events import Event
from plugbay.store.harnesses import HarnessExecution
from plugbay.store.runs import Run
from plugbay.store.sessions import Session

TENANT: dict[str, Any] = {"org_id": "org_1", "project_id": "proj_1"}


def session(id: str, **fields: Any) -> Session:
    usual = {
        **TENANT,
        "external_session_id": None,
        "metadata": {},
        "latest_chain_id": None,
        "parent_session_id": None,
        "created_at": 1.0,
        "updated_at": 1.0,
    }
    return Session(id=id, **{**usual, **fields})


def chain(id: str, **fields: Any) -> Chain:
    usual = {
        **TENANT,
        "session_id": "sess_1",
        "status": "idle",
        "chain_version": 1,
        "block_count": 0,
        "token_estimate": 0,
        "digest": "0" * 64,
        "parent_chain_id": None,
        "forked_from_run_id": None,
        "created_by_compaction_id": None,
        "defaults": {},
        "metadata": {},
        "created_at": 1.0,
        "updated_at": 1.0,
    }
    return Chain(id=id, **{**usual, **fields})


def block(sequence: int, chain_id: str = "ch_1") -> StoredBlock:
    return StoredBlock(
        chain_id=chain_id,
        sequence=sequence,
        id=f"blk_{sequence}",
        kind="input",
        run_id=None,
        body=b'{"text": "\\u0000 \xc3\xa9"}',
        digest="1" * 64,
        created_at=1.0,
    )


def run_row(id: str, **fields: Any) -> Run:
    usual = {
        **TENANT,
        "session_id": "sess_1",
        "chain_id": "ch_1",
        "parent_run_id": None,
        "rerun_of_run_id": None,
        "execution_id": None,
        "invocation_id": None,
        "model": "p/m",
        "status": "queued",
        "stop_reason": None,
        "error": None,
        "turn_count": 0,
        "tool_count": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "request": {},
        "input_through": 0,
        "depth": 0,
        "cause_depth": 0,
        "trace_id": "tr_1",
        "cancel_requested": False,
        "metadata": {},
        "created_at": 1.0,
        "started_at": None,
        "completed_at": None,
    }
    return Run(id=id, **{**usual, **fields})


def compaction(id: str, **fields: Any) -> Compaction:
    usual = {
        **TENANT,
        "session_id": "sess_1",
        "chain_id": "ch_1",
        "new_chain_id": None,
        "binding_id": "bind_1",
        "status": "queued",
        "target": {},
        "policy": {},
        "pinned_items": [],
        "source_digest": "0" * 64,
        "source_blocks": 1,
        "summary": None,
        "diagnostics": None,
        "error": None,
        "created_by_run_id": None,
        "invocation_id": None,
        "attempts": 0,
        "cause_depth": 0,
        "trace_id": "tr_1",
        "created_at": 1.0,
        "started_at": None,
        "completed_at": None,
    }
    return Compaction(id=id, **{**usual, **fields})


def execution(id: str, **fields: Any) -> HarnessExecution:
    usual = {
        **TENANT,
        "session_id": "sess_1",
        "chain_id": "ch_1",
        "binding_id": "bind_1",
        "status": "queued",
        "mode": "start",
        "trigger": {},
        "policy": {},
        "summary": None,
        "artifacts": [],
        "error": None,
        "resumes": 0,
        "depth": 0,
        "cause_depth": 0,
        "trace_id": "tr_1",
        "cancel_requested": False,
        "created_at": 1.0,
        "started_at": None,
        "completed_at": None,
    }
    return HarnessExecution(id=id, **{**usual, **fields})


def event(id: str, **fields: Any) -> Event:
    usual = {
        **TENANT,
        "type": "run.completed",
        "subject_kind": "run",
        "subject_id": "run_1",
        "cause_id": id,
        "session_id": "sess_1",
        "chain_id": "ch_1",
        "run_id": "run_1",
        "summary": {"task": "t"},
        "trace_id": "tr_1",
        "cause_depth": 1,
        "occurred_at": 1.0,
    }
    return Event(id=id, **{**usual, **fields})


def delivery(id: str, **fields: Any) -> Delivery:
    usual = {
        **TENANT,
        "event_id": "evt_1",
        "binding_id": id,
        "status": "pending",
        "reason": None,
        "attempts": 0,
        "attempt_limit": 8,
        "due_at": 1.0,
        "lease_owner": None,
        "lease_until": None,
        "error_code": None,
        "invocation_id": None,
        "created_at": 1.0,
        "completed_at": None,
    }
    return Delivery(id=id, **{**usual, **fields})
