"""`plugbay call ID EXPORT` on the running server: asked there, shown here as a call on a host of our own would be.

Owns how the server's answer becomes the ending of the command, and whether the server has the plugin at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugbay.cli.call_view import Ending, Question
from plugbay.model.errors import Code, Failure

if TYPE_CHECKING:
    from plugbay.cli.remote import Remote


def run(there: Remote, question: Question) -> Ending:
    """Call, and wait for the end."""
    name, value, context, timeout, on_progress = question
    body = {"export": name, "input": value, "context": context}
    if timeout is not None:
        body["timeout_ms"] = max(1, round(timeout * 1000))
    if on_progress is None:
        return _ending(name, there.post("/api/v1/calls", body))
    answer: Any = {}
    for kind, said in there.events("POST", "/api/v1/calls", body, stream="true"):
        if kind == "progress":
            on_progress(said)
        else:
            answer = said
    return _ending(name, answer)


def is_unknown(there: Remote, plugin_id: str, ending: Ending) -> bool:
    """Whether a call ended because the server has no plugin of this id, and not for want of an export."""
    from plugbay.cli.remote import RemoteRefused, plugin_path

    failure = ending.record.failure if ending.record else None
    if failure is None or failure.code != Code.NOT_FOUND:
        return False
    try:
        there.get(plugin_path(plugin_id))
    except RemoteRefused as refused:
        return refused.status == 404
    return False


def _ending(name: str, answer: dict[str, Any]) -> Ending:
    import msgspec

    from plugbay.host.ports import CallRecord

    plugin = answer.get("plugin") or {}
    record = CallRecord(
        call_id=answer.get("call_id") or "",
        plugin=plugin.get("id") or "",
        version=plugin.get("version") or "",
        contract=plugin.get("contract") or "",
        export=name.removeprefix(f"{plugin.get('id')}/"),
        started_at=0.0,
        duration_ms=answer.get("duration_ms") or 0.0,
        failure=_failure(answer),
    )
    output = None if record.failure else msgspec.Raw(msgspec.json.encode(answer.get("output")))
    return Ending(name, record, output)


def _failure(answer: dict[str, Any]) -> Failure | None:
    told = answer.get("failure")
    if told is None:
        return None
    return Failure(
        told["code"],
        told["message"],
        origin=told["origin"],
        plugin=(answer.get("plugin") or {}).get("id") or "",
        detail=told["detail"],
        retryable=answer.get("status") == "retryable_failure",
        retry_after_ms=told["retry_after_ms"],
    )
