"""Every bad plugin of kaged: the first argument names a case, and each key of a table is one case.

A case does one thing wrong and everything else right, with the help of `child`. `catalog.json` says what each case does
and what a host must do. Large data is built only when its case runs, because every case loads this file.
"""

from __future__ import annotations

import os
import sys
import time

from child import (
    IDENTITY,
    KIND,
    SAID,
    WELL,
    Message,
    answer,
    ask,
    await_answer,
    greet,
    json,
    read,
    refuse,
    say,
    serve,
    write,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


# Answers to initialize.

GREETINGS: dict[str, dict[str, Any]] = {
    "good": {"name": "good", "methods": ["good.good_tool"]},
    "initialize_other_name": {"name": "somebody"},
    "initialize_name_number": {"name": 7},
    "initialize_other_api": {"api_version": 2},
    "initialize_api_text": {"api_version": "1"},
    "initialize_api_boolean": {"api_version": True},
    "initialize_version_number": {"version": 1},
    "initialize_other_version": {"version": "9.9.9"},
    "initialize_extra_method": {"methods": ["bad.bad_tool", "bad.look.around", "bad.delete_all"]},
    "initialize_reserved_method": {"methods": ["kaged.storage.get"]},
    "initialize_bare_tool": {"methods": ["bad_tool"]},
    "initialize_methods_null": {"methods": None},
    "initialize_methods_numbers": {"methods": [1]},
    "initialize_no_methods": {"methods": []},
    "initialize_notifications_object": {"notifications": {}},
    "initialize_extra_notification": {"notifications": ["changed", "moved"]},
    "initialize_capabilities_text": {"capabilities_used": "kaged:storage:read"},
    "initialize_extra_capability": {"capabilities_used": ["kaged:storage:read", "net:*"]},
    "initialize_more_keys": {"mood": {"today": ["good"]}},
}
"""Laid over a right answer to initialize."""


def _without(key: str) -> dict[str, Any]:
    return {name: value for name, value in IDENTITY.items() if name != key}


def _identify_twice(request: Message) -> None:
    answer(request, IDENTITY)
    answer(request, IDENTITY)


ON_INITIALIZE: dict[str, Callable[[Message], Any]] = {
    "initialize_null": lambda request: answer(request, None),
    "initialize_list": lambda request: answer(request, [IDENTITY]),
    "initialize_text": lambda request: answer(request, "hello"),
    "initialize_no_api_version": lambda request: answer(request, _without("api_version")),
    "initialize_no_capabilities": lambda request: answer(request, _without("capabilities_used")),
    "initialize_error": lambda request: refuse(request, -32603),
    "initialize_both": lambda request: say(id=request["id"], result=IDENTITY, error={"code": -32603, "message": "no"}),
    "initialize_neither": lambda request: say(id=request["id"]),
    "initialize_twice": _identify_twice,
    "initialize_other_id": lambda request: say(id=2, result=IDENTITY),
    "initialize_text_id": lambda request: say(id="1", result=IDENTITY),
    "initialize_zero_id": lambda request: say(id=0, result=IDENTITY),
    "initialize_never": lambda request: None,
    "initialize_exit_0": lambda request: sys.exit(0),
    "initialize_exit_1": lambda request: sys.exit("cannot go on"),
}


# Answers to a call.


def _raw(text: str) -> Callable[[Message], None]:
    return lambda request: write(text.replace("ID", str(request["id"])).encode() + b"\n")


def _line(request: Message) -> bytes:
    text: str = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": SAID})
    return text.encode()


def _answer_deep(request: Message) -> None:
    _raw('{"jsonrpc":"2.0","id":ID,"result":' + "[" * 100_000 + "]" * 100_000 + "}")(request)


def _answer_twice(request: Message) -> None:
    answer(request)
    answer(request)


def _answer_late(request: Message) -> None:
    time.sleep(0.7)
    answer(request)


def _answer_unknown_first(request: Message) -> None:
    say(id=9999, result="for nobody")
    answer(request)


def _answer_slowly(request: Message) -> None:
    for byte in _line(request) + b"\n":
        write(bytes((byte,)))


def _answer_without_newline(request: Message) -> None:
    write(_line(request))
    sys.exit(0)


def _repeat_input(request: Message) -> None:
    context = request["params"].pop("_context")
    if any(".." in value or "/" in value for key, value in context.items() if key != "project_root"):
        sys.exit("it was told to leave its folder")
    answer(request, request["params"])


ANSWERS: dict[str, Callable[[Message], Any]] = {
    "answer_text_id": lambda request: say(id=str(request["id"]), result=SAID),
    "answer_null_id": lambda request: say(id=None, result=SAID),
    "answer_zero_id": lambda request: say(id=0, result=SAID),
    "answer_float_id": lambda request: say(id=request["id"] + 0.5, result=SAID),
    "answer_boolean_id": lambda request: say(id=True, result=SAID),
    "answer_list_id": lambda request: say(id=[request["id"]], result=SAID),
    "answer_no_id": lambda request: say(result=SAID),
    "answer_both": lambda request: say(id=request["id"], result=SAID, error={"code": -32603, "message": "no"}),
    "answer_neither": lambda request: say(id=request["id"]),
    "answer_null": lambda request: answer(request, None),
    "answer_error_null": lambda request: say(id=request["id"], error=None),
    "answer_error_text": lambda request: say(id=request["id"], error="no"),
    "answer_error_empty": lambda request: say(id=request["id"], error={}),
    "answer_twice": _answer_twice,
    "answer_late": _answer_late,
    "answer_unknown_first": _answer_unknown_first,
    "answer_no_jsonrpc": _raw('{"id":ID,"result":{"said":"hello"}}'),
    "answer_crlf": _raw('{"jsonrpc":"2.0","id":ID,"result":{"said":"hello"}}\r'),
    "answer_slowly": _answer_slowly,
    "answer_without_newline": _answer_without_newline,
    "answer_nan": _raw('{"jsonrpc":"2.0","id":ID,"result":NaN}'),
    "answer_deep": _answer_deep,
    "answer_bad_bytes": lambda request: write(_line(request).replace(b"hello", b"\xff\xfe") + b"\n"),
    "answer_of_3_9_mb": lambda request: answer(request, "x" * 3_900_000),
    "answer_of_5_mb": lambda request: answer(request, "x" * 5_000_000),
    "error_of_choice": lambda request: say(id=request["id"], error=json.loads(os.environ["ERROR"])),
    "repeats_input": _repeat_input,
}


# Lines before the answer to a call.

NOISE: dict[str, Callable[[], bytes]] = {
    "noise_text": lambda: b"Listening on port 8080\n",
    "noise_blank": lambda: b"\n  \n\r\n",
    "noise_half_json": lambda: b'{"jsonrpc":"2.0","id":\n',
    "noise_two_objects": lambda: b'{"jsonrpc":"2.0"} {}\n',
    "noise_array": lambda: b'[{"jsonrpc":"2.0","id":2,"result":1}]\n',
    "noise_not_object": lambda: b'42\n"x"\nnull\n',
    "noise_empty_object": lambda: b"{}\n",
    "noise_method_number": lambda: b'{"jsonrpc":"2.0","method":7}\n',
    "noise_null_id_error": lambda: b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}\n',
    "noise_zero_id_error": lambda: b'{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"no"}}\n',
    "noise_nan": lambda: b'{"jsonrpc":"2.0","method":"changed","params":{"n":NaN}}\n',
    "noise_bytes": lambda: b"\xff\xfe\x00\x80\n",
    "noise_deep": lambda: b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "noise_deep_in_params": lambda: (
        b'{"jsonrpc":"2.0","method":"changed","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n"
    ),
    "noise_of_5_mb": lambda: b'{"jsonrpc":"2.0","method":"changed","params":"' + b"x" * 5_000_000 + b'"}\n',
    "noise_flood": lambda: b"progress\n" * 20_000,
    "noise_request_id_list": lambda: b'{"jsonrpc":"2.0","id":[1],"method":"kaged.storage.get","params":{"key":"k"}}\n',
}


def _write_noise(request: Message) -> None:
    write(NOISE[KIND]())
    answer(request)


# Notifications before the answer to a call.

PARAMS = {"n": 1}


def _notify_undeclared() -> None:
    say(method="moved", params=PARAMS)
    say(method="plugin.bad.changed", params=PARAMS)
    say(method="kaged.storage.set", params={"key": "k", "value": 1})


NOTIFICATIONS: dict[str, Callable[[], Any]] = {
    "notify_declared": lambda: say(method="changed", params=PARAMS),
    "notify_flood": lambda: [say(method="changed", params={"n": number}) for number in range(300)],
    "notify_undeclared": _notify_undeclared,
    "notify_without_params": lambda: say(method="changed"),
}


def _notify(request: Message) -> None:
    NOTIFICATIONS[KIND]()
    answer(request)


# Results of hooks. post_compact is answered with nothing.

HOOK_RESULTS: dict[str, Any] = {
    "hook_injects": {"inject": "remember this"},
    "hook_null": None,
    "hook_empty": {},
    "hook_list": ["remember this"],
    "hook_text": "remember this",
    "hook_inject_number": {"inject": 7},
    "compact_messages": {"messages": [{"role": "system", "content": "it was long"}]},
    "compact_messages_text": {"messages": "all"},
    "compact_messages_numbers": {"messages": [1, 2]},
    "compact_messages_missing": {"kept": []},
}

HOOKS: dict[str, Callable[[Message], Any]] = {
    "hook_hangs": lambda request: time.sleep(3),
    "hook_fails": lambda request: refuse(request, -32000),
    "hook_unknown": lambda request: refuse(request, -32601),
}


def _answer_hook(request: Message) -> None:
    if request["method"] == "kaged.hook.post_compact":
        answer(request, None)
    elif KIND in HOOKS:
        HOOKS[KIND](request)
    else:
        answer(request, HOOK_RESULTS[KIND])


# Requests for storage; the answer to the call says what came of them.

GET, SET, DELETE, LIST = (f"kaged.storage.{name}" for name in ("get", "set", "delete", "list"))
K: dict[str, Any] = {"key": "k"}
V = {"key": "k", "value": [1, {"n": None}]}

MANY = 2000
"""Requests at once; more than any buffer between the two ends holds."""


def _code(method: str, params: Any, id: Any = 7) -> int:
    message = ask(id, method, params)
    return int(message["error"]["code"]) if "error" in message else 0


def _result(method: str, params: Any) -> Any:
    return ask(7, method, params).get("result")


def _flood() -> int:
    for number in range(MANY):
        say(id=number, method=GET, params=K)
    return len({await_answer()["id"] for _ in range(MANY)})


ODD: tuple[tuple[str, Any], ...] = (
    *((GET, params) for params in (None, "k", {"k": 1}, {"key": ""}, {"key": 7}, {"key": "ä" * 257})),
    *((DELETE, params) for params in (["k"], {"k": 1}, {"key": None})),
    *((SET, params) for params in (K, {"value": 1}, {"key": None, "value": 1}, {"key": "k", "value": "x" * 2_000_000})),
    *((LIST, params) for params in (None, {"prefix": 7}, {"limit": 0}, {"limit": True}, {"prefix": "x" * 513})),
)

STORES: dict[str, Callable[[], Any]] = {
    "store_properly": lambda: [_result(SET, V), _result(GET, K), _result(LIST, {"prefix": ""}), _result(DELETE, K)],
    "store_ungranted": lambda: [_code(GET, K), _code(LIST, {}), _code(SET, V), _code(DELETE, K)],
    "store_odd": lambda: sorted({_code(method, params) for method, params in ODD}),
    "store_unknown": lambda: [
        _code("kaged.storage.drop", K),
        _code("kaged.hook.pre_compact", {}),
        _code("system.exit", {}),
    ],
    "store_text_id": lambda: ask("a-1", GET, K)["id"],
    "store_null_id": lambda: ask(None, GET, K)["id"],
    "store_our_id": lambda: ask(2, GET, K)["id"],
    "store_flood": _flood,
}


def _store() -> None:
    greeting = read()
    early = _code(GET, K) if KIND == "store_before_greeting" else 0
    answer(greeting, {**IDENTITY, "capabilities_used": []})
    serve(lambda request: answer(request, early or STORES[KIND]()))


# Ends of the process in a call.


def _exit_0(request: Message) -> None:
    answer(request)
    sys.exit(0)


def _write_half_a_line(request: Message) -> None:
    write(b'{"jsonrpc":"2.0","id":')
    sys.exit(0)


def _close_stdout(request: Message) -> None:
    os.close(1)
    time.sleep(60)


def _leave_processes(request: Message) -> None:
    import subprocess

    idle = "import time; time.sleep(600)"  # its own interpreter is the one program that it may run
    subprocess.Popen([sys.executable, "-c", idle], start_new_session=True)
    answer(request)


def _write_without_end(data: bytes) -> Callable[[Message], None]:
    def flood(request: Message) -> None:
        while True:
            write(data)

    return flood


ENDS: dict[str, Callable[[Message], Any]] = {
    "dies_in_call": lambda request: sys.exit("out of memory"),
    "dies_killed": lambda request: os.kill(os.getpid(), 9),
    "dies_exit_0": _exit_0,
    "dies_half_line": _write_half_a_line,
    "dies_closes_stdout": _close_stdout,
    "dies_leaves_processes": _leave_processes,
    "dies_endless_line": _write_without_end(b"x" * 65_536),
    "dies_endless_flood": _write_without_end(b"progress\n" * 4096),
    "dies_stderr_flood": lambda request: (sys.stderr.write("x" * 5_000_000), answer(request)),
}


# Shutdown. It leaves when its input ends, but for those that stay.


def _talk_on(message: Message) -> None:
    answer(message, WELL)
    say(method="changed", params={})


PARTINGS: dict[str, Callable[[Message], Any]] = {
    "shutdown_error": lambda message: refuse(message, -32603),
    "shutdown_exits": lambda message: sys.exit(0),
    "shutdown_ignores_end_of_input": lambda message: None,
    "shutdown_ignores_everything": lambda message: None,
    "shutdown_never": lambda message: None,
    "shutdown_stays": lambda message: answer(message, WELL),
    "shutdown_talks_on": _talk_on,
}
STAYS = ("shutdown_stays", "shutdown_ignores_end_of_input", "shutdown_ignores_everything")


def _part() -> None:
    greet()
    if KIND == "shutdown_ignores_everything":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            message = read()
        except SystemExit:
            break
        if message.get("method") == "shutdown":
            PARTINGS[KIND](message)
        elif "id" in message:
            answer(message)
    if KIND in STAYS:
        time.sleep(60)


# Health.


def _ignore_health_checks() -> None:
    greet()
    while True:
        message = read()
        if "id" in message and message["method"] != "health.check":
            answer(message, WELL if message["method"] == "shutdown" else SAID)


# Which case does what.

HANDLERS: tuple[tuple[dict[str, Any], Callable[[Message], Any]], ...] = (
    (ANSWERS, lambda request: ANSWERS[KIND](request)),
    (ENDS, lambda request: ENDS[KIND](request)),
    (NOISE, _write_noise),
    (NOTIFICATIONS, _notify),
    ({**HOOK_RESULTS, **HOOKS}, _answer_hook),
)
"""Cases that greet well and differ in how they answer a request."""

OTHERS = ("crash_loop_at_start", "never_well", "notify_before_greeting", "store_before_greeting")

CASES = {*GREETINGS, *ON_INITIALIZE, *STORES, *PARTINGS, *OTHERS, *(name for names, _ in HANDLERS for name in names)}


def main() -> None:
    if KIND not in CASES:
        sys.exit(f"there is no case {KIND!r}")
    if KIND == "crash_loop_at_start":
        sys.exit("cannot go on")
    if KIND == "never_well":
        _ignore_health_checks()
    elif KIND in PARTINGS:
        _part()
    elif KIND in STORES or KIND == "store_before_greeting":
        _store()
    elif KIND in ON_INITIALIZE:
        ON_INITIALIZE[KIND](read())
        serve()
    else:
        if KIND == "notify_before_greeting":
            say(method="changed", params=PARAMS)
        greet(**GREETINGS.get(KIND, {}))
        serve(next((handle for names, handle in HANDLERS if KIND in names), answer))


if __name__ == "__main__":
    main()
