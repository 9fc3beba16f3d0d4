"""Every bad plugin of ainb: the first argument names a case, and each key of a table is one case.

A case does one thing wrong and everything else right: it replaces a handler or a function of `child`. `catalog.json`
says what each case does and what a host must do. Large data is built only when its case runs, because every case loads
this file.
"""

from __future__ import annotations

import os
import sys
import time

import child
from child import KIND, SERVES, Message, ask, b64, framed, publish, read, say, serve, size_of, tell, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


# Frames that break the rules, in place of the answer to a command line.

HEADERS: dict[str, bytes] = {
    "header_text": b"Listening on port 8080\n",
    "header_bare_newlines": b"Content-Length: 2\n\n{}",
    "header_no_colon": b"Content-Length 2\r\n\r\n{}",
    "header_other_header": b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "header_no_ascii": b"Content-Length: 2\xff\r\n\r\n{}",
    "header_negative": b"Content-Length: -1\r\n\r\n",
    "header_hex": b"Content-Length: 0x10\r\n\r\n",
    "header_underscore": b"Content-Length: 1_0\r\n\r\n0123456789",
    "header_no_number": b"Content-Length: \r\n\r\n",
    "header_blank_line_first": b"\r\nContent-Length: 2\r\n\r\n{}",
    "header_17_mib": b"Content-Length: 17825792\r\n\r\n",
    "header_one_byte_too_large": b"Content-Length: 16777217\r\n\r\n",
    "header_huge": b"Content-Length: 99999999999999999999999999\r\n\r\n",
    "header_endless_header": b"Content-Length: " + b"0" * 20_000,
    "header_ends_in_header": b"Content-Length: 2\r\n",
    "header_ends_in_body": b"Content-Length: 200\r\n\r\n{}",
}


def _write_broken_header(params: Message) -> None:
    write(HEADERS[KIND])
    if KIND.startswith("header_ends_in"):
        sys.exit(0)
    while True:
        read()


# Frames that are rare and right.

SPELLINGS: dict[str, str] = {
    "frame_lower_case": "content-length: {}\r\n\r\n",
    "frame_upper_case": "CONTENT-LENGTH:{}\r\n\r\n",
    "frame_blanks": " Content-Length :   {}  \r\n\r\n",
    "frame_zeros": "Content-Length: 000{}\r\n\r\n",
    "frame_plus": "Content-Length: +{}\r\n\r\n",
    "frame_repeated": "Content-Length: 3\r\nContent-Length: {}\r\n\r\n",
    "frame_longest_header": "Content-Length: " + "0" * 8000 + "{}\r\n\r\n",
}


def _spell_header(data: bytes) -> bytes:
    return SPELLINGS[KIND].format(len(data)).encode() + data


def _write_byte_by_byte(data: bytes) -> None:
    for at in range(len(data)):
        write(data[at : at + 1])
        time.sleep(0.0005)


# Frames that are no message, before the answer to a command line.

PUBLISH = b'{"jsonrpc":"2.0","method":"host/snapshot/publish","params":{"topic":"bad.out","payload":"%b"}}'

BODIES: dict[str, bytes] = {
    "body_empty": b"",
    "body_half_json": b'{"jsonrpc":"2.0","id":',
    "body_text": b"hello",
    "body_array": b'[{"jsonrpc":"2.0","id":99,"result":1}]',
    "body_number": b"42",
    "body_null": b"null",
    "body_empty_object": b"{}",
    "body_two_objects": b'{"jsonrpc":"2.0"} {}',
    "body_no_utf8": b'{"jsonrpc":"2.0","method":"\xff"}',
    "body_no_version": b'{"method":"host/log","params":{"level":"info","message":"x"}}',
    "body_other_version": b'{"jsonrpc":"1.0","method":"host/log","params":{"level":"info","message":"x"}}',
    "body_method_number": b'{"jsonrpc":"2.0","method":7}',
    "body_unknown_notification": b'{"jsonrpc":"2.0","method":"host/no_such","params":{}}',
    "body_request_as_notification": b'{"jsonrpc":"2.0","method":"host/snapshot/get","params":{"topic":"bad.in"}}',
    "body_text_id": b'{"jsonrpc":"2.0","id":"a","method":"host/snapshot/get","params":{"topic":"bad.in"}}',
    "body_negative_id": b'{"jsonrpc":"2.0","id":-1,"method":"host/snapshot/get","params":{"topic":"bad.in"}}',
    "body_float_id": b'{"jsonrpc":"2.0","id":1.5,"method":"host/snapshot/get","params":{"topic":"bad.in"}}',
    "body_unknown_answer": b'{"jsonrpc":"2.0","id":4711,"result":{}}',
    "body_log_without_message": b'{"jsonrpc":"2.0","method":"host/log","params":{"level":"info"}}',
    "body_log_of_own_level": b'{"jsonrpc":"2.0","method":"host/log","params":{"level":"fatal","message":"x"}}',
    "body_publish_bad_base64": PUBLISH % b"?",
    "body_publish_unpadded": PUBLISH % b"aGk",
    "body_deep": b"[" * 100_000 + b"]" * 100_000,
    "body_nan": b'{"jsonrpc":"2.0","method":"host/log","params":{"level":"info","message":"x","fields":NaN}}',
}


def _write_noise(params: Message) -> Any:
    write(framed(BODIES[KIND]))
    return child.dispatch(params)


# Answers to plugin/init.

PLUGIN = {"name": "bad", "version": "1.0.0", "abi_version": 2}

INIT_RESULTS: dict[str, Any] = {
    "init_other_name": {**PLUGIN, "name": "somebody"},
    "init_other_version": {**PLUGIN, "version": "9.9.9"},
    "init_in_manifest": {"manifest": {"plugin": PLUGIN}},
    "init_empty": {},
    "init_null": None,
    "init_text": "hello",
    "init_array": [],
    "init_other_abi": {**PLUGIN, "abi_version": 3},
    "init_abi_in_manifest": {"manifest": {"plugin": {**PLUGIN, "abi_version": 1}}},
    "init_abi_text": {**PLUGIN, "abi_version": "2"},
    "init_abi_boolean": {**PLUGIN, "abi_version": True},
}


def _refuse_init(params: Message) -> Any:
    raise child.Refusal(-32003, "the manifest is not mine")


def _answer_init_twice(params: Message) -> Any:
    say(id=1, result=PLUGIN)
    return PLUGIN


def _read_forever(params: Message) -> Any:
    while True:
        read()


def _subscribe_before_init(params: Message) -> Any:
    """Asks with the id of plugin/init before that is answered."""
    answer = ask("host/snapshot/subscribe", topic="bad.in")
    assert answer["result"] == {}
    return child.init(params)


INITS: dict[str, Callable[[Message], Any]] = {
    "asks_while_greeted": _subscribe_before_init,
    "init_exits": lambda params: sys.exit(3),
    "init_never": _read_forever,
    "init_refuses": _refuse_init,
    "init_twice": _answer_init_twice,
}


# Answers to a command line.

WELL: Message = {"stdout": b64(b"hello\n"), "stderr": "", "exit_code": 0}

ANSWERS: dict[str, Message] = {
    "cli_null": {"result": None},
    "cli_nothing": {},
    "cli_text": {"result": "hello"},
    "cli_array": {"result": [WELL]},
    "cli_no_stdout": {"result": {"stderr": "", "exit_code": 0}},
    "cli_no_exit_code": {"result": {"stdout": "", "stderr": ""}},
    "cli_stdout_null": {"result": {**WELL, "stdout": None}},
    "cli_stdout_text": {"result": {**WELL, "stdout": "hello there\n"}},
    "cli_stdout_unpadded": {"result": {**WELL, "stdout": "aGVsbG8"}},
    "cli_stdout_array": {"result": {**WELL, "stdout": [104, 105, 10]}},
    "cli_stdout_array_of_300": {"result": {**WELL, "stdout": [300]}},
    "cli_status_large": {"result": {**WELL, "exit_code": 2**31}},
    "cli_status_float": {"result": {**WELL, "exit_code": 0.5}},
    "cli_status_boolean": {"result": {**WELL, "exit_code": True}},
    "cli_status_text": {"result": {**WELL, "exit_code": "0"}},
    "cli_status_negative": {"result": {**WELL, "exit_code": -1}},
    "cli_more_keys": {"result": {**WELL, "seconds": 3}},
    "cli_both": {"result": WELL, "error": {"code": -32603, "message": "both"}},
    "cli_null_error": {"result": WELL, "error": None},
    "cli_error_text": {"error": "no"},
    "cli_error_empty": {"error": {}},
    "cli_error_code_text": {"error": {"code": "-32601", "message": "no"}},
    "cli_not_found": {"error": {"code": -32601, "message": "method not found"}},
    "cli_invalid_params": {"error": {"code": -32602, "message": "no"}},
    "cli_denied": {"error": {"code": -32001, "message": "capability denied: network"}},
    "cli_timed_out": {"error": {"code": -32002, "message": "action timed out: x"}},
    "cli_own_error": {"error": {"code": 7, "message": "own", "data": {"a": 1}}},
}
"""What is said beside the id of the request."""


def _answer_twice(request: Message) -> None:
    say(id=request["id"], result=WELL)
    say(id=request["id"], result=WELL)


REPLIES: dict[str, Callable[[Message], Any]] = {
    "cli_never": lambda request: None,
    "cli_other_id": lambda request: say(id=request["id"] + 1000, result=WELL),
    "cli_text_id": lambda request: say(id=str(request["id"]), result=WELL),
    "cli_twice": _answer_twice,
}


def _reply(message: Message) -> None:
    if message.get("method") != "plugin/cli_dispatch":
        handle_well(message)
    elif KIND in REPLIES:
        REPLIES[KIND](message)
    else:
        say(id=message["id"], **ANSWERS[KIND])


# Pictures.

CELL = [{"x": 0, "y": 0}, {"symbol": "h"}]

CELLS: dict[str, list[Any]] = {
    "render_outside": [CELL, [{"x": 80, "y": 0}, {"symbol": "x"}], [{"x": 0, "y": 24}, {"symbol": "x"}]],
    "render_duplicate": [[{"x": 0, "y": 0}, {"symbol": "x"}], CELL],
    "render_negative": [[{"x": -1, "y": 0}, {"symbol": "x"}]],
    "render_far_outside": [[{"x": 65536, "y": 0}, {"symbol": "x"}]],
    "render_float": [[{"x": 0.5, "y": 0}, {"symbol": "x"}]],
    "render_boolean": [[{"x": True, "y": 0}, {"symbol": "x"}]],
    "render_flat": [{"x": 0, "y": 0, "symbol": "x"}],
    "render_alone": [[{"x": 0, "y": 0}]],
    "render_no_symbol": [[{"x": 0, "y": 0}, {}]],
    "render_symbol_number": [[{"x": 0, "y": 0}, {"symbol": 7}]],
    "render_bright": [[{"x": 0, "y": 0}, {"symbol": "x", "fg": {"r": 256, "g": 0, "b": 0}}]],
    "render_colour_text": [[{"x": 0, "y": 0}, {"symbol": "x", "fg": "#ff0000"}]],
    "render_modifier_text": [[{"x": 0, "y": 0}, {"symbol": "x", "modifier": "bold"}]],
    "render_escape_codes": [[{"x": 0, "y": 0}, {"symbol": "\x1b[2J"}], [{"x": 1, "y": 0}, {"symbol": "h"}]],
}

RENDER_RESULTS: dict[str, Any] = {
    "render_null": None,
    "render_no_buffer": {},
    "render_buffer_null": {"buffer": None},
    "render_width_text": {"buffer": {"width": "80", "height": 24, "cells": []}},
    "render_cells_object": {"buffer": {"width": 80, "height": 24, "cells": {}}},
    "render_redraw_text": {"buffer": {"width": 80, "height": 24, "cells": []}, "redraw": "yes"},
    "render_smaller": {"buffer": {"width": 1, "height": 1, "cells": [CELL, [{"x": 1, "y": 0}, {"symbol": "x"}]]}},
}


def _render(params: Message) -> Any:
    width, height = size_of(params)
    if KIND == "render_never":
        _read_forever(params)
    if KIND in RENDER_RESULTS:
        return RENDER_RESULTS[KIND]
    return {"buffer": {"width": width, "height": height, "cells": CELLS[KIND] if KIND in CELLS else _a_million_cells()}}


def _a_million_cells() -> list[Any]:
    return [[{"x": at % 80, "y": at // 80 % 24}, {"symbol": "x"}] for at in range(300_000)]


# Requests to the host. The answer to the command line is the code of the error, or `result`.

PAYLOAD = b64(b"hi")
HELLO = {"topic": "bad.out", "payload": PAYLOAD}

REQUESTS: dict[str, tuple[str, Any]] = {
    "asks_get": ("host/snapshot/get", {"topic": "bad.in"}),
    "asks_publish_with_id": ("host/snapshot/publish", HELLO),
    "asks_log_with_id": ("host/log", {"level": "info", "message": "x"}),
    "asks_unknown": ("host/no_such", {}),
    "asks_event_stream": ("host/event_stream_subscribe", {"topic": "t"}),
    "asks_secret": ("host/secret_store_get", {"scope": "global", "key": "k"}),
    "asks_spawn": ("host/spawn_managed_subprocess", {"bin": "/bin/sh"}),
    "asks_plugin_method": ("plugin/render", {}),
    "asks_no_params": ("host/snapshot/get", None),
    "asks_params_array": ("host/snapshot/get", ["bad.in"]),
    "asks_no_topic": ("host/snapshot/get", {}),
    "asks_topic_number": ("host/snapshot/subscribe", {"topic": 7}),
    "asks_other_topic": ("host/snapshot/get", {"topic": "other.topic"}),
    "asks_fleet_topic": ("host/snapshot/subscribe", {"topic": "fleet.status"}),
    "asks_file_outside": ("host/fs/read_file", {"path": "/etc/hostname"}),
    "asks_file_relative": ("host/fs/read_file", {"path": "notes/today"}),
    "asks_file_climbs_out": ("host/fs/read_file", {"path": "/usr/share/plugbay-no-such/../../../etc/hostname"}),
    "asks_file_missing": ("host/fs/read_file", {"path": "/usr/share/plugbay-no-such/today"}),
    "asks_folder_outside": ("host/fs/read_dir", {"path": "/etc"}),
    "asks_file_number": ("host/fs/read_file", {"path": 7}),
    "asks_other_server": ("host/network/fetch", {"url": "https://example.com/"}),
    "asks_no_url": ("host/network/fetch", {"url": "example"}),
    "asks_file_url": ("host/network/fetch", {"url": "file:///etc/hostname"}),
    "asks_loopback": ("host/network/fetch", {"url": "http://127.0.0.1:9/"}),
    "asks_metadata": ("host/network/fetch", {"url": "http://169.254.169.254/latest"}),
    "asks_mapped": ("host/network/fetch", {"url": "http://[::ffff:127.0.0.1]:9/"}),
    "asks_unknown_action": ("host/action/invoke", {"action": "no.such", "payload": "", "timeout_ms": 1000}),
    "asks_action_without_payload": ("host/action/invoke", {"action": "no.such"}),
    "asks_action_that_hangs": ("host/action/invoke", {"action": "conformance.hang", "payload": "", "timeout_ms": 50}),
}


def _ask_host(params: Message) -> Any:
    method, given = REQUESTS[KIND]  # the id is the one of the request that it is busy with
    say(id=2, method=method, **({} if given is None else {"params": given}))
    while "method" in (answer := read()):
        child.waiting.append(answer)
    outcome = str(answer["error"]["code"]) if "error" in answer else "result"
    return {"stdout": b64(outcome.encode()), "stderr": "", "exit_code": 0}


# Events that it publishes before its answer to a command line.


def _publish_flood() -> None:
    for number in range(20_000):
        publish("bad.out", b"%d" % number)


PUBLISHES: dict[str, Callable[[], Any]] = {
    "publishes_12_mib": lambda: publish("bad.out", b"x" * 12_400_000),
    "publishes_17_mib": lambda: publish("bad.out", b"x" * (17 << 20)),
    "publishes_array": lambda: tell("host/snapshot/publish", topic="bad.out", payload=[104, 105]),
    "publishes_empty_topic": lambda: publish("", b"hi"),
    "publishes_fleet_topic": lambda: publish("fleet.status", b"hi"),
    "publishes_flood": _publish_flood,
    "publishes_other_topic": lambda: publish("other.topic", b"hi"),
    "publishes_thousand_topics": lambda: [publish(f"bad.{number}", b"hi") for number in range(1000)],
    "publishes_unprintable_topic": lambda: publish("bad.\x1b[2J", b"hi"),
    "publishes_well": lambda: publish("bad.out", b"hi"),
}


def _publish(params: Message) -> Any:
    PUBLISHES[KIND]()
    return child.dispatch(params)


# Shutdown.


def _refuse_shutdown() -> None:
    raise child.Refusal(-32601, "method not found: plugin/shutdown")


def _log_on() -> None:
    for _ in range(1000):
        say(method="host/log", params={"level": "info", "message": "not yet"})


def _leave_a_child() -> None:
    import subprocess

    subprocess.Popen(["/bin/sleep", "600"], stdin=subprocess.DEVNULL)


PARTINGS: dict[str, Callable[[], Any]] = {
    "leaves_exits_without_a_word": lambda: sys.exit(0),
    "leaves_leaves_a_child": _leave_a_child,
    "leaves_never_answers": lambda: None,
    "leaves_null": lambda: None,
    "leaves_refuses": _refuse_shutdown,
    "leaves_status_3": lambda: None,
    "leaves_stays": lambda: None,
    "leaves_talks_on": _log_on,
}


def _shutdown(params: Message) -> Any:
    PARTINGS[KIND]()
    return None if KIND == "leaves_null" else {}


def _ignore_shutdown(message: Message) -> None:
    if message.get("method") != "plugin/shutdown":
        handle_well(message)


def _survive_end_of_input() -> bytes:
    try:
        return bytes(read_body_well())
    except SystemExit:
        if KIND == "leaves_stays":
            time.sleep(600)
        sys.exit(3)


# Ends of the process.


def _close_stdout() -> None:
    os.close(1)
    time.sleep(600)


ENDS: dict[str, Callable[[], Any]] = {
    "dies_clean_exit_in_call": lambda: sys.exit(0),
    "dies_closes_stdout": _close_stdout,
    "dies_in_call": lambda: sys.exit(3),
    "dies_killed_in_call": lambda: os.kill(os.getpid(), 9),
    "floods_stderr": lambda: sys.stderr.write("oh dear\n" * 200_000),
}


def _end_in_call(params: Message) -> Any:
    ENDS[KIND]()
    return child.dispatch(params)


def _end_after(message: Message) -> None:
    handle_well(message)
    if KIND == "dies_after_call" and message.get("method") == "plugin/cli_dispatch":
        sys.exit(0)
    if KIND == "stops_reading" and message.get("method") == "plugin/render":
        time.sleep(600)


# Which case replaces what.

handle_well: Any = child.handle
read_body_well: Any = child.body

HANDLERS: tuple[tuple[dict[str, Any], str, Callable[[Message], Any]], ...] = (
    (HEADERS, "plugin/cli_dispatch", _write_broken_header),
    (BODIES, "plugin/cli_dispatch", _write_noise),
    (REQUESTS, "plugin/cli_dispatch", _ask_host),
    (PUBLISHES, "plugin/cli_dispatch", _publish),
    (ENDS, "plugin/cli_dispatch", _end_in_call),
    (INIT_RESULTS, "plugin/init", lambda params: INIT_RESULTS[KIND]),
    (INITS, "plugin/init", lambda params: INITS[KIND](params)),
    (PARTINGS, "plugin/shutdown", _shutdown),
    ({**CELLS, **RENDER_RESULTS, "render_a_million": None, "render_never": None}, "plugin/render", _render),
)
"""Cases that differ in the handler of one method."""

FUNCTIONS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (SPELLINGS, "framed", _spell_header),
    (("frame_byte_by_byte",), "write", _write_byte_by_byte),
    ({**ANSWERS, **REPLIES}, "handle", _reply),
    (("leaves_never_answers",), "handle", _ignore_shutdown),
    (("leaves_stays", "leaves_status_3"), "body", _survive_end_of_input),
    (("dies_after_call", "stops_reading"), "handle", _end_after),
)
"""Cases that differ in a function of `child`."""

CASES = {
    "good",
    "dies_at_start",
    *(name for names, _, _ in HANDLERS for name in names),
    *(name for names, _, _ in FUNCTIONS for name in names),
}


def main() -> None:
    if KIND not in CASES:
        sys.exit(f"there is no case {KIND!r}")
    if KIND == "dies_at_start":
        sys.exit(1)
    SERVES.update({"plugin/cli_dispatch": child.dispatch, "plugin/render": child.render})
    for names, method, handler in HANDLERS:
        if KIND in names:
            SERVES[method] = handler
    for names, name, function in FUNCTIONS:
        if KIND in names:
            setattr(child, name, function)
    serve()


if __name__ == "__main__":
    main()
