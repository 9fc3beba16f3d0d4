"""Every bad plugin of nexo: the first argument names a case, and each entry of a table is one case.

A case does one thing wrong and everything else right, with the help of `child`. `catalog.json` says what each case does
and what a host must do. Large data is built only when its case runs, because every case loads this file.
"""

from __future__ import annotations

import os
import sys
import time

from child import (
    KIND,
    PLUGIN,
    SAID,
    TOOL,
    Message,
    answer,
    await_answer,
    await_request,
    greet,
    hello,
    json,
    publish,
    read,
    say,
    serve,
    write,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Act = Callable[[Message], Any]


# Answers to initialize.


def _without(key: str) -> Message:
    return {name: value for name, value in TOOL.items() if name != key}


GREETINGS: dict[str, Message] = {
    "good": {
        "manifest": {"plugin": {**PLUGIN, "id": "good"}},
        "server_version": "good-1.0.0",
        "tools": [{**TOOL, "name": "good_tool"}],
    },
    "initialize_id_number": {"manifest": {"plugin": {"id": 7}}},
    "initialize_more_keys": {"capabilities": {"x": 1}, "tools": [{**TOOL, "strict": True}]},
    "initialize_no_id": {"manifest": {"plugin": {"version": "1.0.0"}}},
    "initialize_no_manifest": {"manifest": None},
    "initialize_no_version": {"server_version": None},
    "initialize_other_plugin": {"manifest": {"plugin": {**PLUGIN, "id": "slack"}}},
    "tool_drift": {"tools": [TOOL, {**TOOL, "name": "bad_extra"}]},
    "tool_input_refused": {"tools": [{**TOOL, "input_schema": {"type": "object", "required": ["city"]}}]},
    "tool_not_offered": {"tools": []},
    "tool_schema_not_object": {"tools": [{**TOOL, "input_schema": "object"}]},
    "tool_twice": {"tools": [TOOL, TOOL]},
    "tool_without_description": {"tools": [_without("description")]},
    "tool_without_input_schema": {"tools": [_without("input_schema")]},
    "tool_without_name": {"tools": [_without("name")]},
    "tools_null": {"tools": None},
    "tools_object": {"tools": {"bad_tool": TOOL}},
}
"""Laid over a right answer to initialize; everything after it is right."""


def _ask_before_initialize(greeting: Message) -> None:
    say(id=1, method="memory.recall", params={"agent_id": "a", "query": "q"})
    refusal = await_answer()
    answer(greeting, hello())
    answer(await_request(), refusal["error"]["code"])


def _omit_tools(greeting: Message) -> None:
    result = hello()
    del result["tools"]
    answer(greeting, result)


def _answer_initialize_twice(greeting: Message) -> None:
    answer(greeting, hello())
    say(id=1, result=hello(manifest={"plugin": {"id": "other"}}))


ON_INITIALIZE: dict[str, Act] = {
    "asks_before_initialize": _ask_before_initialize,
    "crash_loop_at_start": lambda greeting: sys.exit(7),
    "initialize_both": lambda greeting: say(id=greeting["id"], result=hello(), error={"code": -32603, "message": "no"}),
    "initialize_error": lambda greeting: say(id=greeting["id"], error={"code": -32603, "message": "not today"}),
    "initialize_exit_0": lambda greeting: sys.exit(0),
    "initialize_exit_3": lambda greeting: sys.exit("cannot go on"),
    "initialize_list": lambda greeting: answer(greeting, []),
    "initialize_never": lambda greeting: (read(), sys.exit(0)),
    "initialize_null": lambda greeting: answer(greeting, None),
    "initialize_text": lambda greeting: answer(greeting, "ready"),
    "initialize_text_id": lambda greeting: say(id="1", result=hello()),
    "initialize_twice": _answer_initialize_twice,
    "initialize_wrong_id": lambda greeting: say(id=2, result=hello()),
    "tools_missing": _omit_tools,
}
"""Takes the request `initialize`; everything after it is right."""


# Answers to a call.


def _write(data: bytes) -> Act:
    """Writes these bytes, with the id of the request in place of ID."""
    return lambda request: write(data.replace(b"ID", b"%d" % request["id"]))


def _answer_late(request: Message) -> None:
    time.sleep(1)
    answer(request)


def _answer_twice(request: Message) -> None:
    answer(request)
    answer(request, {"said": "again"})


def _answer_byte_by_byte(request: Message) -> None:
    for byte in json.dumps({"id": request["id"], "result": SAID}).encode() + b"\n":
        write(bytes([byte]))


def _choose_error(value: object) -> Message | None:
    """The error that is written as JSON somewhere in the request."""
    if isinstance(value, str) and value.startswith("{"):
        return dict(json.loads(value))
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for item in items if (found := _choose_error(item)) is not None), None)


def _deep_result(request: Message) -> None:
    write(b'{"jsonrpc":"2.0","id":%d,"result":' % request["id"] + b"[" * 100_000 + b"]" * 100_000 + b"}\n")


def _flood_stderr(request: Message) -> None:
    for number in range(50_000):
        sys.stderr.write(f"{number} " + "x" * 90 + "\n")
    answer(request)


ANSWERS: dict[str, Act] = {
    "answer_bad_bytes": _write(b'{"jsonrpc":"2.0","id":ID,"result":"\xff"}\n'),
    "answer_both": lambda request: say(id=request["id"], result=SAID, error={"code": -33403, "message": "no"}),
    "answer_crlf": _write(b'{"jsonrpc":"2.0","id":ID,"result":{"said":"hello"}}\r\n'),
    "answer_deep": _deep_result,
    "answer_error_code_text": lambda request: say(id=request["id"], error={"code": "-33404", "message": "no"}),
    "answer_error_empty": lambda request: say(id=request["id"], error={}),
    "answer_error_text": lambda request: say(id=request["id"], error="no"),
    "answer_id_boolean": lambda request: say(id=True, result=SAID),
    "answer_id_float": lambda request: say(id=request["id"] + 0.5, result=SAID),
    "answer_id_list": lambda request: say(id=[request["id"]], result=SAID),
    "answer_id_null": lambda request: say(id=None, result=SAID),
    "answer_id_text": lambda request: say(id=str(request["id"]), result=SAID),
    "answer_late": _answer_late,
    "answer_nan": _write(b'{"jsonrpc":"2.0","id":ID,"result":NaN}\n'),
    "answer_neither": lambda request: say(id=request["id"]),
    "answer_null": lambda request: answer(request, None),
    "answer_null_error": lambda request: say(id=request["id"], result=SAID, error=None),
    "answer_of_8_mib": lambda request: answer(request, "x" * (8 << 20)),
    "answer_oversize": lambda request: answer(request, "x" * (17 << 20)),
    "answer_twice": _answer_twice,
    "answer_without_id": lambda request: say(result=SAID),
    "one_byte_at_a_time": _answer_byte_by_byte,
    "stderr_flood": _flood_stderr,
}
"""Each answers the first call, of any method; later calls are answered well."""


# Lines before the answer to a call.

ODD_IDS: tuple[Any, ...] = ([1], {}, True)

NOISE: dict[str, Callable[[], Any]] = {
    "noise_blank": lambda: write(b"\n  \n\r\n"),
    "noise_bytes": lambda: write(b"\xff\xfe\x00\n"),
    "noise_deep": lambda: write(b"[" * 100_000 + b"]" * 100_000 + b"\n"),
    "noise_empty_object": lambda: write(b"{}\n"),
    "noise_flood": lambda: write(b"spam and more spam\n" * 200_000),
    "noise_half_json": lambda: write(b'{"jsonrpc": "2.0", "id":\n'),
    "noise_method_number": lambda: say(method=7, params={}),
    "noise_not_object": lambda: write(b'[1]\n42\nnull\n"text"\ntrue\n'),
    "noise_notification": lambda: (
        say(method="plugin.progress", params={"percent": 50}),
        say(method="broker.subscribe", params={}),
    ),
    "noise_null_id_error": lambda: say(id=None, error={"code": -32700, "message": "parse error"}),
    "noise_oversize": lambda: write(b"x" * (17 << 20) + b"\n"),
    "noise_request_ids": lambda: [say(id=odd, method="memory.recall") for odd in ODD_IDS],
    "noise_text": lambda: write(b"connecting to the service...\n"),
    "noise_two_objects": lambda: write(b"{} {}\n"),
    "noise_unknown_answer": lambda: [say(id=id, result={}) for id in (4711, -1, "x")],
    "noise_wide": lambda: write(b"[" + b"[]," * 3_000_000 + b"[]]\n"),
}


# Events that it publishes before its answer to a call.

INBOUND = "plugin.inbound.pigeon"
EVENT: Message = {"topic": INBOUND, "source": "bad", "payload": 1}


def _publish_nonsense() -> None:
    publish(INBOUND, "text")
    publish(INBOUND, None)
    publish(7, EVENT)
    say(method="broker.publish")
    say(method="broker.publish", params=[])


def _publish_to(*topics: str) -> Callable[[], Any]:
    return lambda: [publish(topic, EVENT) for topic in topics]


PUBLISHES: dict[str, Callable[[], Any]] = {
    "publish_10_mb": lambda: publish(INBOUND, {**EVENT, "payload": "x" * 10_000_000}),
    "publish_allowed": _publish_to(INBOUND, f"{INBOUND}.a.b"),
    "publish_flood": lambda: [publish(f"{INBOUND}.flood", EVENT) for _ in range(20_000)],
    "publish_no_event": _publish_nonsense,
    "publish_odd_subjects": _publish_to(f"{INBOUND}.", f"{INBOUND}..a", f".{INBOUND}"),
    "publish_outside": _publish_to(
        "agent.route.all", "command.stop", "plugin.inbound.other", "plugin.inbound", "plugin.outbound.pigeon"
    ),
    "publish_spoofed": lambda: publish(
        INBOUND, {"topic": "agent.route.all", "source": "agent.coordinator", "payload": 1}
    ),
    "publish_wildcard": _publish_to(f"{INBOUND}.*", f"{INBOUND}.>", "plugin.inbound.*", ">"),
}


# Requests to the host; the answer to the call says what came of them.

RECALL = {"agent_id": "a", "query": "q"}
HI = [{"role": "user", "content": "hi"}]
ODD_RECALLS: tuple[Any, ...] = (
    {},
    {"agent_id": 7, "query": "q"},
    {"agent_id": "a"},
    [],
    None,
    {"agent_id": "a", "query": None},
)
ODD_COMPLETIONS: tuple[Any, ...] = (
    {},
    {"provider": "p", "model": "m", "messages": []},
    {"model": "m", "messages": HI},
)


def _ask(method: str, params: Any, id: Any = 1) -> Message:
    say(id=id, method=method, params=params)
    return await_answer()


def _ask_code(method: str, params: Any) -> Any:
    return _ask(method, params)["error"]["code"]


def _ask_10000_at_once() -> int:
    import threading

    many = range(10_000)
    asks = ({"id": number, "method": "memory.recall", "params": RECALL} for number in many)
    threading.Thread(target=lambda: [say(**message) for message in asks]).start()
    return len({await_answer()["id"] for _ in many})


REQUESTS: dict[str, Callable[[], Any]] = {
    "asks_10000_at_once": _ask_10000_at_once,
    "asks_odd_completion": lambda: [_ask_code("llm.complete", params) for params in ODD_COMPLETIONS],
    "asks_odd_memory": lambda: [_ask_code("memory.recall", params) for params in ODD_RECALLS],
    "asks_unconfigured_memory": lambda: _ask("memory.recall", RECALL).get("result"),
    "asks_ungranted_memory": lambda: _ask_code("memory.recall", RECALL),
    "asks_unknown_method": lambda: _ask_code("tool.dispatch", {}),
    "asks_unknown_provider": lambda: _ask_code("llm.complete", {"provider": "nobody", "model": "m", "messages": HI}),
    "asks_with_null_id": lambda: _ask("tool.dispatch", {}, id=None),
    "asks_with_text_id": lambda: _ask("tool.dispatch", {}, id="a-1")["id"],
    "publish_as_request": lambda: _ask("broker.publish", {"topic": INBOUND, "event": {"payload": 1}})["result"],
}


# Results of calls that have a shape of their own, by method.

CHAT: Message = {
    "content": {"type": "text", "text": "hi"},
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    "finish_reason": {"kind": "stop"},
}

RESULTS: dict[str, dict[str, Any]] = {
    "llm.chat": {
        "chat_odd_content": {**CHAT, "content": {"type": "image"}},
        "chat_odd_finish": {**CHAT, "finish_reason": {"kind": "bored"}},
        "chat_text": "hi",
        "chat_without_usage": {"content": CHAT["content"], "finish_reason": CHAT["finish_reason"]},
    },
    "channel.send_outbound": {
        "send_list": [],
        "send_time_text": {"message_id": "m", "sent_at_unix": "now"},
        "send_without_message_id": {"sent_at_unix": 1741032000},
    },
    "hook.on_hook": {"hook_list": [], "hook_null": None},
    "memory.vector_upsert": {"upsert_count_text": {"count": "one"}},
    "memory.vector_search": {
        "search_matches_text": {"matches": ["r1"]},
        "search_without_matches": {"results": []},
    },
    "memory.vector_delete": {"delete_without_count": {}},
}


# Streams of llm.chat.

TEXT = {"type": "text_delta", "delta": "h"}


def _stream(id: Any, chunk: Any = TEXT) -> None:
    say(method="llm.chat.delta", params={"request_id": id, "chunk": chunk})


def _stream_one(request: Message) -> None:
    _stream(request["id"])
    answer(request, CHAT)


def _stream_after_the_end(request: Message) -> None:
    answer(request, CHAT)
    for _ in range(3):
        _stream(request["id"])


def _stream_nonsense(request: Message) -> None:
    _stream(request["id"], "h")
    say(method="llm.chat.delta", params=[])
    say(method="llm.chat.delta")
    answer(request, CHAT)


def _stream_for_nobody(request: Message) -> None:
    for id in (4711, "x", None):
        _stream(id)
    answer(request, CHAT)


def _exit_in_stream(request: Message) -> None:
    _stream(request["id"])
    sys.exit(3)


def _fail_in_stream(request: Message) -> None:
    _stream(request["id"])
    say(id=request["id"], error={"code": -33101, "message": "gone"})


def _stream_without_end(request: Message) -> None:
    for _ in range(50):
        _stream(request["id"])
        time.sleep(0.05)


STREAMS: dict[str, Act] = {
    "chat_streamed": _stream_one,
    "delta_after_the_end": _stream_after_the_end,
    "delta_odd": _stream_nonsense,
    "delta_unasked": _stream_one,
    "delta_unknown_call": _stream_for_nobody,
    "dies_in_stream": _exit_in_stream,
    "error_in_stream": _fail_in_stream,
    "stream_without_end": _stream_without_end,
}


# Ends of the process in a call.


def _close_stdout(request: Message) -> None:
    os.close(1)
    while True:
        read()


def _write_half_a_line(request: Message) -> None:
    write(b'{"jsonrpc":"2.0","id":')
    sys.exit(3)


def _write_without_end(data: bytes) -> Act:
    def flood(request: Message) -> None:
        while True:
            write(data)

    return flood


def _answer_without_newline(request: Message) -> None:
    write(json.dumps({"id": request["id"], "result": SAID}).encode())
    sys.exit(0)


ENDS: dict[str, Act] = {
    "closes_stdout": _close_stdout,
    "crash_loop": lambda request: sys.exit(7),
    "dies_in_call": lambda request: sys.exit("out of memory"),
    "endless_flood": _write_without_end(b"spam\n" * 1000),
    "endless_line": _write_without_end(b"x" * 65_536),
    "half_line_then_exit": _write_half_a_line,
    "killed_in_call": lambda request: os.kill(os.getpid(), 9),
    "no_newline_at_the_end": _answer_without_newline,
}


# Shutdown. The first call is answered well; the process leaves after this.


def _sleep_forever() -> None:
    while True:
        time.sleep(60)


def _answer_shutdown_and_stay() -> None:
    answer(read(), {"ok": True})
    _sleep_forever()


def _answer_shutdown_and_publish() -> None:
    answer(read(), {"ok": True})
    for _ in range(10):
        publish(INBOUND, {"payload": 1})


PARTINGS: dict[str, Callable[[], Any]] = {
    "exit_0_after_call": lambda: None,
    "shutdown_error": lambda: say(id=read()["id"], error={"code": -32000, "message": "could not flush"}),
    "shutdown_exit_only": read,
    "shutdown_never": lambda: (read(), read()),
    "shutdown_talks_on": _answer_shutdown_and_publish,
    "shutdown_then_stays": _answer_shutdown_and_stay,
}


# Whole lives that are unlike the others.


def _leave_a_process() -> None:
    if os.fork() == 0:
        os.setpgid(0, 0)
        os.execvp("sleep", ["sleep", "600"])
    greet()
    serve()


def _publish_first(times: int) -> Callable[[], None]:
    def live() -> None:
        for _ in range(times):
            publish(INBOUND, {"payload": 1})
        greet()
        serve()

    return live


def _answer_with_the_chosen_error() -> None:
    greet()
    serve(lambda request: say(id=request["id"], error=_choose_error(request["params"])))


def _never_read() -> None:
    greet()
    _sleep_forever()


def _read_slowly() -> None:
    greet()
    time.sleep(0.5)
    serve()


def _ignore_everything() -> None:
    import signal

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    greet()
    answer(await_request())
    _sleep_forever()


LIVES: dict[str, Callable[[], Any]] = {
    "error_of_choice": _answer_with_the_chosen_error,
    "ignores_everything": _ignore_everything,
    "leaves_processes": _leave_a_process,
    "never_reads": _never_read,
    "publish_1000_before_initialize": _publish_first(1000),
    "publish_before_initialize": _publish_first(1),
    "reads_slowly": _read_slowly,
}


CASES = {
    *(LIVES | ON_INITIALIZE | GREETINGS | PARTINGS),
    *(ANSWERS | ENDS | STREAMS | NOISE | PUBLISHES | REQUESTS),
    *(name for results in RESULTS.values() for name in results),
}


def main() -> None:
    if KIND not in CASES:
        sys.exit(f"there is no case {KIND!r}")
    if KIND in LIVES:
        LIVES[KIND]()
    elif KIND in ON_INITIALIZE:
        ON_INITIALIZE[KIND](read())
        serve()
    elif KIND in PARTINGS:
        greet()
        answer(await_request())
        PARTINGS[KIND]()
    else:
        greet(**GREETINGS.get(KIND, {}))
        if KIND not in GREETINGS:
            _answer_first_call()
        serve()


def _answer_first_call() -> None:
    for method, results in RESULTS.items():
        if KIND in results:
            answer(await_request(method), results[KIND])
            return
    request = await_request("llm.chat" if KIND in STREAMS else "")
    if KIND in NOISE or KIND in PUBLISHES:
        (NOISE | PUBLISHES)[KIND]()
        answer(request)
    elif KIND in REQUESTS:
        answer(request, REQUESTS[KIND]())
    else:
        (ANSWERS | ENDS | STREAMS)[KIND](request)


if __name__ == "__main__":
    main()
