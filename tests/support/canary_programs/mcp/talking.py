"""Ways in which the canary talks otherwise than it should: each function is one."""

from __future__ import annotations

import os

import serving  # type: ignore[import-not-found]  # they lie beside this file
from changes import before, instead, never_refuses, result  # type: ignore[import-not-found]
from serving import METHODS, NOTICES, TOOLS, Message, Refusal, say, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# stdout


def banner() -> None:
    write(b"canary 1.0.0 ready\n")


def prints_in_a_call() -> None:
    before(lambda message: write(b"calling\n") if message["method"] == "tools/call" else None)


def prints_at_the_end() -> None:
    def leave() -> None:
        write(b"good-bye\n")
        os._exit(0)

    serving.leave = leave


def indents() -> None:
    import json  # here: others need not wait for it

    serving.framed = lambda message: json.dumps(message, indent=2).encode() + b"\n"


# handshake and versions


def no_server_info() -> None:
    result("initialize", serverInfo=None)


def greets_twice() -> None:
    proper = serving.finish

    def finish(message: Message, **outcome: Any) -> None:
        proper(message, **outcome)
        if message["method"] == "initialize":
            proper(message, **outcome)

    serving.finish = finish


def knows_one_greeting() -> None:
    instead("initialize", lambda params, proper: os._exit(1) if "_meta" in params else proper)


def pings_later() -> None:
    greeted: list[bool] = []

    def look(message: Message) -> None:
        if message["method"] == "ping" and not greeted:
            os._exit(1)
        greeted.append(True)

    before(look)


def echoes_any_version() -> None:
    instead("initialize", lambda params, proper: {**proper, "protocolVersion": params["protocolVersion"]})


def refuses_old_versions() -> None:
    def initialize(params: Message) -> Message:
        if params["protocolVersion"] == "2024-11-05":
            raise Refusal(-32602, "too old")
        return serving.initialize(params)

    METHODS["initialize"] = initialize


# framing


def takes_a_read_for_a_line() -> None:
    def lines() -> Iterator[bytes]:
        while data := os.read(0, 1 << 22):
            yield from data.splitlines()

    serving.lines = lines


def reads_the_first_line() -> None:
    def lines() -> Iterator[bytes]:
        rest = b""
        while data := os.read(0, 1 << 22):
            *whole, rest = (rest + data).split(b"\n")
            pings = [line for line in whole if b'"ping"' in line]
            yield from (line for line in whole if line not in pings[1:])

    serving.lines = lines


def escapes_badly() -> None:
    def change(params: Message, proper: Message) -> Message:
        words = params["arguments"]["text"].encode("ascii", "replace").decode()
        return {"content": [{"type": "text", "text": words}], "structuredContent": {"text": words}}

    instead("tools/call", lambda params, proper: proper if proper.get("isError") else change(params, proper))


def dies_of_nonsense() -> None:
    serving.puzzled = lambda line: os._exit(1) if b'"result"' not in line else None


def up_to_64_kib() -> None:
    proper = serving.hear
    serving.hear = lambda line: proper(line) if len(line) < 1 << 20 else os._exit(1)


# requests


def answers_with_nothing() -> None:
    proper = serving.finish
    serving.finish = lambda message, **outcome: (
        say(id=message["id"]) if message["method"] == "resources/read" else proper(message, **outcome)
    )


def result_and_error() -> None:
    proper = serving.finish

    def finish(message: Message, **outcome: Any) -> None:
        both = {"error": {"code": 0, "message": ""}} if message["method"] == "prompts/get" else {}
        proper(message, **outcome, **both)

    serving.finish = finish


def every_method_is_fine() -> None:
    proper = serving.refuse_unknown
    serving.refuse_unknown = lambda params: {} if "_meta" not in params else proper(params)


def answers_notifications() -> None:
    NOTICES["notifications/plugbay/no_such_thing"] = lambda params: say(id=None, result={})


def text_ids() -> None:
    serving.finish = lambda message, **outcome: say(
        id=message["id"] if message["id"] != 9007199254740991 else str(message["id"]), **outcome
    )


def dies_of_unasked_answers() -> None:
    serving.puzzled = lambda line: os._exit(1) if b'"result"' in line else None


def answers_twice() -> None:
    proper = serving.finish

    def finish(message: Message, **outcome: Any) -> None:
        proper(message, **outcome)
        if message["method"] == "prompts/get" and message["id"] > 99:
            proper(message, **outcome)

    serving.finish = finish


# lists


def no_list() -> None:
    result("resources/list", resources={})


def tools_are_no_list() -> None:
    result("tools/list", tools={})


def prompts_are_no_list() -> None:
    result("prompts/list", prompts=None)


def shuffles() -> None:
    def list_tools(params: Message) -> Message:
        TOOLS.reverse()
        return serving.list_tools(params)

    METHODS["tools/list"] = list_tools


def repeats_the_page() -> None:
    METHODS["tools/list"] = lambda params: serving.list_tools(
        {} if params.get("cursor", "").isdigit() else {"cursor": params["cursor"]} if "cursor" in params else {}
    )


def any_cursor() -> None:
    never_refuses("tools/list", tools=[])
