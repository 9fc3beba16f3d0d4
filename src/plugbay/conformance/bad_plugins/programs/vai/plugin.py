"""Every bad plugin of vai: the first argument names a case, and each key of a table is one case.

A case does one thing wrong and everything else right: it replaces a handler or a function of `child`. `catalog.json`
says what each case does and what a host must do. Large data is built only when its case runs, because every case loads
this file.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import child
from child import HEARS, IDENTITY, KIND, OPS, SERVES, Message, cancels, json, respond, say, serve, tell, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TEXT = [{"type": "text", "text": "hello"}]
GOOD: Message = {"content": TEXT}
FINE: Message = {"status": "succeeded", "result": GOOD}


# Greetings.

PLUGIN: Message = {"type": "hello", "role": "plugin", "plugin": IDENTITY}

HELLOS: dict[str, Message] = {
    "hello_other_package": {**PLUGIN, "plugin": {**IDENTITY, "package_id": "somebody/else"}},
    "hello_other_case": {**PLUGIN, "plugin": {**IDENTITY, "package_id": IDENTITY["package_id"].upper()}},
    "hello_other_version": {**PLUGIN, "plugin": {**IDENTITY, "version": "1.0.1"}},
    "hello_version_number": {**PLUGIN, "plugin": {**IDENTITY, "version": 1}},
    "hello_no_version": {**PLUGIN, "plugin": {"package_id": IDENTITY["package_id"]}},
    "hello_nobody": {"type": "hello", "role": "plugin"},
    "hello_other_protocol": {**PLUGIN, "protocol": "vai.rpc.v2"},
    "hello_host_role": {**PLUGIN, "role": "host"},
    "hello_no_role": {"type": "hello", "plugin": IDENTITY},
    "hello_no_type": {"role": "plugin", "plugin": IDENTITY},
    "hello_request_first": {"type": "request", "id": "req_1", "op": "tool.invoke", "body": {}},
    "hello_shutdown_first": {"type": "shutdown"},
}

GREETINGS: dict[str, Callable[[], Any]] = {
    "hello_response_first": lambda: respond({"id": "req_1"}, status="succeeded", result={}),
    "hello_event_first": lambda: tell({"id": "req_1"}, type="progress"),
    "hello_text_first": lambda: write(b"Listening on port 8080\n"),
    "hello_not_json": lambda: write(child.framed("hello")),
    "hello_exits": lambda: os._exit(3),
    "hello_never": lambda: time.sleep(60),
    "hello_ends_in_hello": lambda: (write(b'Content-Length: 200\r\n\r\n{"protocol"'), os._exit(0)),
    "hello_more_fields": lambda: say(**PLUGIN, exports=["bad_tool"], plugin_url="x"),
}


def _greet(message: Message) -> None:
    if KIND in GREETINGS:
        GREETINGS[KIND]()
    else:
        say(**HELLOS[KIND])


# Answers to a request, of any kind of export.


def _raw(request: Message, text: str) -> None:
    write(child.framed(text.replace("ID", request["id"])))


def _answer_after(request: Message, *acts: Callable[[], None]) -> None:
    for act in acts:
        act()
    respond(request, **FINE)


def _answer(request: Message, **frame: Any) -> None:
    say(type="response", id=request["id"], **frame)


def _error(code: str, message: str = "no", **more: Any) -> Message:
    return {"error": {"code": code, "message": message, **more}}


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(text.encode()).decode()


def _secret(request: Message) -> str:
    return str(request["body"]["secrets"]["token"])


ANSWERS: dict[str, Callable[[Message], Any]] = {
    # Which frame.
    "second_hello": lambda m: _answer_after(m, lambda: child.hello(m)),
    "unknown_type": lambda m: _answer_after(m, lambda: say(type="log", message="hello")),
    "type_number": lambda m: _answer_after(m, lambda: say(type=1)),
    "asks_the_host": lambda m: _answer_after(m, lambda: say(type="request", id="req_1", op="tool.invoke", body={})),
    "cancels_itself": lambda m: _answer_after(m, lambda: say(type="cancel", request_id=m["id"], reason="x")),
    "other_protocol": lambda m: _answer(m, protocol="vai.rpc.v2", ok=True, body=FINE),
    "no_protocol": lambda m: _raw(m, '{"type":"response","id":"ID","ok":true,"body":{"status":"succeeded"}}'),
    # Whose.
    "twice": lambda m: (respond(m, **FINE), respond(m, **FINE)),
    "event_after": lambda m: (respond(m, **FINE), tell(m, type="progress")),
    "unknown_id": lambda m: _answer_after(m, lambda: respond({"id": "req_999"}, **FINE)),
    "event_of_nobody": lambda m: _answer_after(m, lambda: tell({"id": "req_999"}, type="progress")),
    "event_no_type": lambda m: _answer_after(m, lambda: tell(m, message="x")),
    "event_text": lambda m: _answer_after(m, lambda: say(type="event", request_id=m["id"], event="x")),
    "id_number": lambda m: _answer_after(m, lambda: respond({"id": 1}, **FINE)),
    "no_id": lambda m: say(type="response", ok=True, body=FINE),
    "request_id_for_id": lambda m: say(type="response", request_id=m["id"], ok=True, body=FINE),
    # What.
    "no_status": lambda m: _answer(m, ok=True, body={"result": GOOD}),
    "own_status": lambda m: respond(m, status="done", result=GOOD),
    "timed_out": lambda m: respond(m, status="timed_out"),
    "status_number": lambda m: respond(m, status=1),
    "acknowledged": lambda m: respond(m, status="ack"),
    "no_ok": lambda m: _answer(m, body=FINE),
    "ok_text": lambda m: _answer(m, ok="true", body=FINE),
    "no_body": lambda m: _answer(m, ok=True),
    "body_text": lambda m: _answer(m, ok=True, body="hello"),
    "no_result": lambda m: respond(m, status="succeeded"),
    "tool_result_text": lambda m: respond(m, status="succeeded", result="hello"),
    "tool_content_text": lambda m: respond(m, status="succeeded", result={"content": "hello"}),
    "tool_is_error_text": lambda m: respond(m, status="succeeded", result={**GOOD, "is_error": "no"}),
    "no_error": lambda m: _answer(m, ok=False),
    "refuses_export": lambda m: _answer(m, ok=False, **_error("protocol.unknown_export")),
    "refuses_op": lambda m: _answer(m, ok=False, **_error("protocol.unknown_op")),
    "overloaded": lambda m: _answer(m, ok=False, **_error("protocol.overloaded")),
    "own_refusal": lambda m: _answer(m, ok=False, **_error("canary.refused")),
    "failed": lambda m: respond(m, status="failed", **_error("canary.broken", "the canary is broken")),
    "failed_silently": lambda m: respond(m, status="failed"),
    "retryable": lambda m: respond(m, status="retryable_failure", **_error("canary.busy", "busy", retry_after_ms=10)),
    "cancelled_unasked": lambda m: respond(m, status="cancelled"),
    "tool_reports_an_error": lambda m: respond(
        m, status="succeeded", result={**GOOD, "is_error": True, "retryable": True}
    ),
    # How it is written.
    "not_json": lambda m: _raw(m, "hello"),
    "not_json_with_id": lambda m: _raw(m, '{"protocol":"vai.rpc.v1","type":"response","id":"ID","ok":tru'),
    "array": lambda m: _raw(m, "[]"),
    "nan": lambda m: _raw(m, '{"protocol":"vai.rpc.v1","type":"response","id":"ID","ok":true,"body":NaN}'),
    "deep": lambda m: _raw(
        m, '{"protocol":"vai.rpc.v1","type":"response","id":"ID","ok":true,"body":' + "[" * 999 + "]" * 999 + "}"
    ),
    "of_7_mib": lambda m: respond(m, **FINE, pad="x" * (7 << 20)),
    "of_9_mib": lambda m: respond(m, **FINE, pad="x" * (9 << 20)),
    "many_events": lambda m: _answer_after(m, *[lambda: tell(m, type="progress", message="x")] * 5000),
    # Secrets.
    "secret_result": lambda m: respond(
        m, status="succeeded", result={"content": [{"type": "text", "text": f"key {_secret(m)}"}]}
    ),
    "secret_base64": lambda m: respond(
        m,
        status="succeeded",
        result={"content": [{"type": "text", "text": _base64(_secret(m))}]},
    ),
    "secret_error": lambda m: respond(m, status="failed", **_error("canary.broken", f"bad key {_secret(m)}")),
    "secret_code": lambda m: _answer(m, ok=False, **_error(_secret(m), "no")),
    "secret_event": lambda m: _answer_after(m, lambda: tell(m, type="progress", message=_secret(m))),
    "secret_noise": lambda m: _answer_after(m, lambda: respond({"id": _secret(m)}, **FINE)),
    "secret_fault": lambda m: say(type=_secret(m)),
    "secret_stderr": lambda m: _answer_after(m, lambda: print(_secret(m), file=sys.stderr, flush=True)),
}


# Frames that break the rules, in place of an answer.

HEADERS: dict[str, bytes] = {
    "header_text": b"Listening on port 8080\n",
    "header_binary": bytes(range(256)),
    "header_bare_newlines": b"Content-Length: 2\n\n{}",
    "header_no_colon": b"Content-Length 2\r\n\r\n{}",
    "header_no_length": b"Content-Type: application/json\r\n\r\n{}",
    "header_length_twice": b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "header_negative": b"Content-Length: -1\r\n\r\n",
    "header_plus": b"Content-Length: +2\r\n\r\n{}",
    "header_hex": b"Content-Length: 0x10\r\n\r\n",
    "header_no_number": b"Content-Length: \r\n\r\n",
    "header_1_gib": b"Content-Length: 1073741824\r\n\r\n",
    "header_one_byte_too_large": b"Content-Length: 8388609\r\n\r\n",
    "header_huge": b"Content-Length: 99999999999999999999999999\r\n\r\n",
    "header_endless_header": b"X-Pad: " + b"0" * 20_000,
    "ends_in_header": b"Content-Length: 2\r\n",
    "ends_in_body": b"Content-Length: 200\r\n\r\n{}",
}

SPELLINGS: dict[str, bytes] = {
    "header_other_headers": b"X-Trace: 1\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n",
    "header_small_letters": b"content-length:%d\r\n\r\n",
}
"""Frames that are rare and right."""


def _write_broken_header(request: Message) -> None:
    write(HEADERS[KIND])
    if KIND.startswith("ends_in"):
        os._exit(0)


def _spell_header(request: Message) -> None:
    frame = {"protocol": child.PROTOCOL, "type": "response", "id": request["id"], "ok": True, "body": FINE}
    data = json.dumps(frame).encode()
    write(SPELLINGS[KIND] % len(data) + data)


# Calls of the tool that end the process, hang or do not let go.


def _spawn(away: bool) -> None:
    """A process that stays and holds our pipes."""
    from subprocess import Popen  # loading it takes as long as starting the interpreter

    Popen(["sleep", "600"], start_new_session=away)


def _await_cancel(request: Message, status: str) -> None:
    cancels[request["id"]].wait(60)
    respond(request, status=status, **({"result": GOOD} if status == "succeeded" else {}))


def _fork(request: Message, then: str = "") -> None:
    _spawn(away=False)
    _spawn(away=True)
    if then:
        respond(request, status=then, result=GOOD)


TOOLS: dict[str, Callable[[Message], Any]] = {
    "exits": lambda m: os._exit(3),
    "killed": lambda m: os.kill(os.getpid(), 9),
    "closes_stdout": lambda m: os.close(1),
    "never_answers": lambda m: None,
    "ignores_cancel_and_forks": _fork,
    "done_within_grace": lambda m: _await_cancel(m, "succeeded"),
    "cancelled_within_grace": lambda m: _await_cancel(m, "cancelled"),
    "forks_and_answers": lambda m: _fork(m, then="succeeded"),
    "floods_stderr": lambda m: (
        [print("x" * 1000, file=sys.stderr) for _ in range(5000)],
        respond(m, **FINE),
    ),
    "ignores_shutdown": lambda m: respond(m, **FINE),
}


def _run_tool(message: Message) -> None:
    if message["op"] != "tool.invoke":
        begin_well(message)
        return
    cancels[message["id"]] = threading.Event()
    threading.Thread(target=TOOLS[KIND], args=(message,), daemon=True).start()


def _ignore_leaving() -> None:
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    HEARS["shutdown"] = lambda message: time.sleep(60)


# Results of hooks, compactors and harnesses.

SUMMARY = {"text": "short"}


def _seed(*blocks: Any, **more: Any) -> Message:
    return {"seed_blocks": list(blocks), "summary": SUMMARY, **more}


def _block(kind: str, **more: Any) -> Message:
    return {"kind": kind, "content": TEXT, **more}


SYSTEM = {"kind": "system", "content": [{"type": "text", "text": "You write code."}]}
"""The system block of the conversation that it is asked to compact."""

RESULTS: dict[str, Any] = {
    "compactor_good_seed": _seed(SYSTEM, _block("input")),
    "compactor_boasts": _seed(SYSTEM, _block("input"), diagnostics={"output_tokens_estimate": 999_999_999}),
    "compactor_no_seed": {"summary": SUMMARY},
    "compactor_empty_seed": _seed(),
    "compactor_seed_text": {"seed_blocks": "hello", "summary": SUMMARY},
    "compactor_own_kind": _seed(SYSTEM, _block("digest")),
    "compactor_content_text": _seed(SYSTEM, {"kind": "input", "content": "hello"}),
    "compactor_call_without_result": _seed(SYSTEM, _block("tool_call", tool_call_id="a", name="t")),
    "compactor_result_without_call": _seed(SYSTEM, _block("tool_result", tool_call_id="a")),
    "compactor_no_system": _seed(_block("input")),
    "compactor_other_system": _seed(_block("system"), _block("input")),
    "compactor_over_budget": _seed(SYSTEM, _block("input", pad="x" * 100_000)),
    "compactor_says_small": _seed(
        SYSTEM, _block("input", pad="x" * 100_000), diagnostics={"output_tokens_estimate": 1}
    ),
    "harness_good_walk": {
        "checkpoint": {"kind": "checkpoint", "data": {"step": 1}},
        "summary": SUMMARY,
        "artifacts": [],
    },
    "harness_walk_text": "done",
    "harness_bare_checkpoint": {"checkpoint": {"step": 1}, "summary": SUMMARY},
    "harness_large_checkpoint": {"checkpoint": {"kind": "checkpoint", "data": "x" * 300_000}, "summary": SUMMARY},
    "harness_artifact_elsewhere": {
        "summary": SUMMARY,
        "artifacts": [{"path": "../../secret", "media_type": "x/y", "size_bytes": 1, "sha256": "0" * 64}],
    },
    "harness_odd_checkpoint_event": {"summary": SUMMARY, "artifacts": []},
}

STATUSES: dict[str, Message] = {
    "hook_acknowledges": {"status": "ack"},
    "hook_succeeds": {"status": "succeeded", "result": {"veto": True}},
    "hook_fails": {"status": "failed", "error": {"code": "canary.broken", "message": "no"}},
    "hook_says_ok": {"status": "ok"},
}


def _work(message: Message) -> Message:
    if KIND == "harness_odd_checkpoint_event":
        tell(message, type="checkpoint", data=1)
    return STATUSES.get(KIND) or {"status": "succeeded", "result": RESULTS[KIND]}


# Which case replaces what.

begin_well: Any = child.begin

CASES = {"good", "hello_speaks_first", *HELLOS, *GREETINGS, *ANSWERS, *HEADERS, *SPELLINGS, *TOOLS, *RESULTS, *STATUSES}


def main() -> None:
    if KIND not in CASES:
        sys.exit(f"there is no case {KIND!r}")
    if KIND == "hello_speaks_first":
        child.hello({})
        HEARS["hello"] = lambda message: None
    elif KIND in HELLOS or KIND in GREETINGS:
        HEARS["hello"] = _greet
    elif KIND in ANSWERS:
        child.begin = ANSWERS[KIND]
        SERVES.update(dict.fromkeys(OPS, child.tool))
    elif KIND in HEADERS:
        child.begin = _write_broken_header
    elif KIND in SPELLINGS:
        child.begin = _spell_header
    elif KIND in TOOLS:
        child.begin = _run_tool
        if KIND in ("ignores_shutdown", "ignores_cancel_and_forks"):
            _ignore_leaving()
    elif KIND in RESULTS or KIND in STATUSES:
        SERVES.update(dict.fromkeys(OPS, _work))
    serve()


if __name__ == "__main__":
    main()
