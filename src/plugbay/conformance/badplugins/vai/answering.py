"""Answers otherwise than it should, as KIND says."""

from __future__ import annotations

import base64

import child
from child import KIND, SERVES, Message, respond, say, serve, tell, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

GOOD: Message = {"content": [{"type": "text", "text": "hello"}]}
FINE: Message = {"status": "succeeded", "result": GOOD}


def raw(request: Message, text: str) -> None:
    write(child.framed(text.replace("ID", request["id"])))


def then(request: Message, *acts: Callable[[], None]) -> None:
    for act in acts:
        act()
    respond(request, **FINE)


def answer(request: Message, **frame: Any) -> None:
    say(type="response", id=request["id"], **frame)


def error(code: str, message: str = "no", **more: Any) -> Message:
    return {"error": {"code": code, "message": message, **more}}


def secret(request: Message) -> str:
    return str(request["body"]["secrets"]["token"])


KINDS: dict[str, Callable[[Message], Any]] = {
    # Which frame.
    "second_hello": lambda m: then(m, lambda: child.hello(m)),
    "unknown_type": lambda m: then(m, lambda: say(type="log", message="hello")),
    "type_number": lambda m: then(m, lambda: say(type=1)),
    "asks_the_host": lambda m: then(m, lambda: say(type="request", id="req_1", op="tool.invoke", body={})),
    "cancels_itself": lambda m: then(m, lambda: say(type="cancel", request_id=m["id"], reason="x")),
    "other_protocol": lambda m: answer(m, protocol="vai.rpc.v2", ok=True, body=FINE),
    "no_protocol": lambda m: raw(m, '{"type":"response","id":"ID","ok":true,"body":{"status":"succeeded"}}'),
    # Whose.
    "twice": lambda m: (respond(m, **FINE), respond(m, **FINE)),
    "event_after": lambda m: (respond(m, **FINE), tell(m, type="progress")),
    "unknown_id": lambda m: then(m, lambda: respond({"id": "req_999"}, **FINE)),
    "event_of_nobody": lambda m: then(m, lambda: tell({"id": "req_999"}, type="progress")),
    "event_no_type": lambda m: then(m, lambda: tell(m, message="x")),
    "event_text": lambda m: then(m, lambda: say(type="event", request_id=m["id"], event="x")),
    "id_number": lambda m: then(m, lambda: respond({"id": 1}, **FINE)),
    "no_id": lambda m: say(type="response", ok=True, body=FINE),
    "request_id_for_id": lambda m: say(type="response", request_id=m["id"], ok=True, body=FINE),
    # What.
    "no_status": lambda m: answer(m, ok=True, body={"result": GOOD}),
    "own_status": lambda m: respond(m, status="done", result=GOOD),
    "timed_out": lambda m: respond(m, status="timed_out"),
    "status_number": lambda m: respond(m, status=1),
    "acknowledged": lambda m: respond(m, status="ack"),
    "no_ok": lambda m: answer(m, body=FINE),
    "ok_text": lambda m: answer(m, ok="true", body=FINE),
    "no_body": lambda m: answer(m, ok=True),
    "body_text": lambda m: answer(m, ok=True, body="hello"),
    "no_result": lambda m: respond(m, status="succeeded"),
    "result_text": lambda m: respond(m, status="succeeded", result="hello"),
    "content_text": lambda m: respond(m, status="succeeded", result={"content": "hello"}),
    "is_error_text": lambda m: respond(m, status="succeeded", result={**GOOD, "is_error": "no"}),
    "no_error": lambda m: answer(m, ok=False),
    "refuses_export": lambda m: answer(m, ok=False, **error("protocol.unknown_export")),
    "refuses_op": lambda m: answer(m, ok=False, **error("protocol.unknown_op")),
    "overloaded": lambda m: answer(m, ok=False, **error("protocol.overloaded")),
    "own_refusal": lambda m: answer(m, ok=False, **error("canary.refused")),
    "failed": lambda m: respond(m, status="failed", **error("canary.broken", "the canary is broken")),
    "failed_silently": lambda m: respond(m, status="failed"),
    "retryable": lambda m: respond(m, status="retryable_failure", **error("canary.busy", "busy", retry_after_ms=10)),
    "cancelled_unasked": lambda m: respond(m, status="cancelled"),
    "reports_an_error": lambda m: respond(m, status="succeeded", result={**GOOD, "is_error": True, "retryable": True}),
    # How it is written.
    "not_json": lambda m: raw(m, "hello"),
    "not_json_with_id": lambda m: raw(m, '{"protocol":"vai.rpc.v1","type":"response","id":"ID","ok":tru'),
    "array": lambda m: raw(m, "[]"),
    "nan": lambda m: raw(m, '{"protocol":"vai.rpc.v1","type":"response","id":"ID","ok":true,"body":NaN}'),
    "deep": lambda m: raw(
        m, '{"protocol":"vai.rpc.v1","type":"response","id":"ID","ok":true,"body":' + "[" * 999 + "]" * 999 + "}"
    ),
    "of_7_mib": lambda m: respond(m, **FINE, pad="x" * (7 << 20)),
    "of_9_mib": lambda m: respond(m, **FINE, pad="x" * (9 << 20)),
    "many_events": lambda m: then(m, *[lambda: tell(m, type="progress", message="x")] * 5000),
    # Secrets.
    "secret_result": lambda m: respond(
        m, status="succeeded", result={"content": [{"type": "text", "text": f"key {secret(m)}"}]}
    ),
    "secret_base64": lambda m: respond(
        m,
        status="succeeded",
        result={"content": [{"type": "text", "text": base64.b64encode(secret(m).encode()).decode()}]},
    ),
    "secret_error": lambda m: respond(m, status="failed", **error("canary.broken", f"bad key {secret(m)}")),
    "secret_code": lambda m: answer(m, ok=False, **error(secret(m), "no")),
    "secret_event": lambda m: then(m, lambda: tell(m, type="progress", message=secret(m))),
    "secret_noise": lambda m: then(m, lambda: respond({"id": secret(m)}, **FINE)),
    "secret_fault": lambda m: say(type=secret(m)),
    "secret_stderr": lambda m: then(m, lambda: print(secret(m), file=child.sys.stderr, flush=True)),
}


def begin(message: Message) -> None:
    """Handlers here write their own answers."""
    KINDS[KIND](message)


child.begin = begin
SERVES |= dict.fromkeys(child.OPS, child.tool)
serve()
