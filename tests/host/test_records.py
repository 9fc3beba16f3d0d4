"""The logs, tokens and checkpoints without other services; a full disk costs records, not the host."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from plugbay.host.ports import CallRecord, InvocationRecord, ResumeState
from plugbay.host.records import JsonLinesCallLog, MemoryCallLog, MemoryCheckpoints, MemoryInvocationLog, MemoryTokens
from tests.support.loops import Run
from tests.support.requirements import requirement


def record(number: int) -> CallRecord:
    return CallRecord(f"call_{number}", "p", "1", "rune", "t", 0.0, 1.0)


def test_the_memory_log_keeps_the_last_calls() -> None:
    log = MemoryCallLog(kept=2)
    for number in range(3):
        log.finished(record(number))
    assert [kept.call_id for kept in log.records] == ["call_1", "call_2"]


def test_the_file_log_appends_one_json_line_per_call(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "calls.jsonl"
    for number in range(2):
        JsonLinesCallLog(path).finished(record(number))
    assert [json.loads(line)["call_id"] for line in path.read_text().splitlines()] == ["call_0", "call_1"]


def test_a_full_disk_is_counted_and_never_raised() -> None:
    log = JsonLinesCallLog(Path("/dev/full"))
    log.finished(record(1))
    assert log.lost == 1


def test_a_name_that_is_no_unicode_is_counted_and_never_raised(tmp_path: Path) -> None:
    log = JsonLinesCallLog(tmp_path / "calls.jsonl")
    log.finished(CallRecord("call_1", "", "", "", "\ud800", 0.0, 1.0))
    assert log.lost == 1


def invocation_record(number: int) -> InvocationRecord:
    texts = dict.fromkeys(
        "trace_id export_kind export_id package_id package_version execution_class org_id".split(), ""
    )
    nulls = dict.fromkeys("binding_id project_id session_id chain_id run_id".split())
    rest = {"execution_id": "", "retry_count": 0, "started_at": "", "permissions": {}, "narrowed": False}
    return InvocationRecord(invocation_id=f"inv_{number}", **texts, **nulls, **rest)  # type: ignore[arg-type]


def test_a_record_is_there_while_it_runs_and_as_it_ended(run: Run) -> None:
    async def main() -> None:
        log = MemoryInvocationLog()
        await log.opened(invocation_record(1))
        assert [item.status for item in log.records] == [None]
        await log.closed(replace(invocation_record(1), status="succeeded"))
        assert [item.status for item in log.records] == ["succeeded"]

    run(main)


def test_the_oldest_records_are_forgotten_first_and_stay_forgotten(run: Run) -> None:
    async def main() -> None:
        log = MemoryInvocationLog(kept=2)
        for number in range(3):
            await log.opened(invocation_record(number))
        await log.closed(invocation_record(0))
        assert [item.invocation_id for item in log.records] == ["inv_1", "inv_2"]

    run(main)


@requirement("vai:host-token")
def test_a_token_stands_for_its_claims_until_it_is_revoked_and_is_kept_nowhere(run: Run) -> None:
    async def main() -> None:
        tokens = MemoryTokens()
        token = await tokens.issue({"invocation_id": "inv_1"})
        assert token.startswith("vai_dlg_") and len(token) >= len("vai_dlg_") + 43
        assert tokens.claims(token) == {"invocation_id": "inv_1"} and len(tokens) == 1
        assert token not in repr(vars(tokens)) and token != await tokens.issue({})
        assert tokens.claims("vai_dlg_other") is None
        await tokens.revoke(token)
        await tokens.revoke(token)
        assert tokens.claims(token) is None

    run(main)


def test_unrevoked_tokens_do_not_pile_up(run: Run) -> None:
    async def main() -> None:
        tokens = MemoryTokens(kept=2)
        first, *_ = [await tokens.issue({"number": number}) for number in range(3)]
        assert len(tokens) == 2 and tokens.claims(first) is None

    run(main)


def test_a_journey_is_as_it_was_saved_last(run: Run) -> None:
    async def main() -> None:
        checkpoints = MemoryCheckpoints(kept=2)
        assert await checkpoints.load("exec_1") is None
        await checkpoints.save("exec_1", ResumeState(summary="one"))
        await checkpoints.save("exec_1", ResumeState(summary="two"))
        assert await checkpoints.load("exec_1") == ResumeState(summary="two")
        for number in (2, 3):
            await checkpoints.save(f"exec_{number}", ResumeState())
        assert await checkpoints.load("exec_1") is None

    run(main)
