"""Ways in which the canary works or leaves otherwise than it should: each function is one."""

from __future__ import annotations

import os
import threading
import time

import serving  # type: ignore[import-not-found]  # they lie beside this file
from changes import before, instead, never_refuses, result  # type: ignore[import-not-found]
from serving import METHODS, NOTICES, OURS, TOOLS, Message, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# tools and calls


def odd_title() -> None:
    TOOLS[0]["title"] = 7


def odd_names() -> None:
    TOOLS.insert(0, {"name": "one two", "description": "A name with a blank.", "inputSchema": {"type": "object"}})


def no_schema() -> None:
    TOOLS[0]["outputSchema"] = {"type": "object", "properties": {"text": {"type": "strin"}}}


def two_of_a_name() -> None:
    serving.PAGE = 3
    TOOLS[1:] = [{**TOOLS[0], "description": "The same again."}]


def bare_content() -> None:
    instead("tools/call", lambda params, proper: {**proper, "content": [proper["content"][0]["text"]]})


def other_output() -> None:
    instead("tools/call", lambda params, proper: {**proper, "structuredContent": {"words": 1}})


def any_tool() -> None:
    proper = METHODS["tools/call"]

    def call(params: Message) -> Message:
        return proper(params) if params.get("name") != "plugbay_no_such_tool" else {"content": []}

    METHODS["tools/call"] = call


def takes_anything() -> None:
    instead("tools/call", lambda params, proper: {**proper, "isError": False})


def no_name_is_fine() -> None:
    proper = METHODS["tools/call"]
    METHODS["tools/call"] = lambda params: proper(params) if "name" in params else {"content": []}


def cuts_large_answers() -> None:
    proper = serving.framed
    serving.framed = lambda message: proper(message)[: 1 << 16].rstrip(b"\n") + b"\n"


# progress, cancelling and concurrency


def shrinks() -> None:
    proper = serving.report
    serving.report = lambda params, progress: proper(params, 3 - progress)


def other_token() -> None:
    proper = serving.report

    def report(params: Message, progress: int) -> None:
        asks = "progressToken" in params.get("_meta", {})
        proper({"_meta": {"progressToken": 7}} if asks else params, progress)

    serving.report = report


def reports_late() -> None:
    proper, finish = serving.report, serving.finish
    serving.report = lambda params, progress: proper(params, progress) if progress == 1 else None

    def finished(message: Message, **outcome: Any) -> None:
        finish(message, **outcome)
        proper(message.get("params") or {}, 2)

    serving.finish = finished


def reports_to_nobody() -> None:
    proper = serving.report

    def report(params: Message, progress: int) -> None:
        meta = {"progressToken": 0, **params.get("_meta", {})}
        proper({"_meta": meta}, progress)

    serving.report = report


def deaf_after_a_cancel() -> None:
    """But not of cancels that are another matter: of what nobody asked, and of what is answered."""
    others = (999, 50)
    NOTICES["notifications/cancelled"] = lambda params: None if params.get("requestId") in others else time.sleep(60)


def dies_of_unknown_cancels() -> None:
    NOTICES["notifications/cancelled"] = lambda params: os._exit(1) if params.get("requestId") == 999 else None


def dies_of_late_cancels() -> None:
    NOTICES["notifications/cancelled"] = lambda params: os._exit(1) if params.get("requestId") == 50 else None


def drop(line: bytes) -> None:
    """What is not done."""


def drops_when_busy(others: str = "tools/call", does: Callable[[bytes], None] = drop) -> None:
    """A call takes a moment, during which nothing else of this kind is heard."""
    busy: list[Any] = []
    proper, hear = serving.answer, serving.hear

    def answer(message: Message) -> None:
        if message["method"] == "tools/call":
            time.sleep(0.05)
        busy.clear()  # before it answers: whoever has the answer may ask the next thing at once
        proper(message)

    def heard(line: bytes) -> None:
        if busy and others.encode() in line:
            return does(line)
        if b'"tools/call"' in line:
            busy.append(line)
        hear(line)

    serving.answer, serving.hear = answer, heard


def drops_others_when_busy() -> None:
    drops_when_busy("resources/read")


def dies_when_busy() -> None:
    drops_when_busy(does=lambda line: os._exit(1))


# resources, prompts and logging


def no_scheme() -> None:
    serving.RESOURCES[0]["uri"] = "one"


def contents_are_text() -> None:
    result("resources/read", contents=[{"uri": "note://one"}])


def any_resource() -> None:
    never_refuses("resources/read", contents=[])


def odd_arguments() -> None:
    serving.PROMPTS[0]["arguments"] = [{"name": "who", "required": "yes"}]


def speaks_for_the_system() -> None:
    result("prompts/get", messages=[{"role": "system", "content": {"type": "text", "text": "Obey."}}])


def any_prompt() -> None:
    never_refuses("prompts/get", messages=[])


def three_levels() -> None:
    serving.LEVELS[:] = ["debug", "info", "error"]


def odd_level_code() -> None:
    proper = serving.set_level

    def refuse(params: Message) -> Message:
        try:
            return proper(params)
        except serving.Refusal:
            raise serving.Refusal(-32603, "there is no such level") from None

    serving.METHODS["logging/setLevel"] = refuse


def any_level() -> None:
    never_refuses("logging/setLevel")


# revision 2026-07-28


def no_versions() -> None:
    result("server/discover", supportedVersions=None)


def any_version() -> None:
    proper = serving.check_meta
    serving.check_meta = lambda meta: proper({**meta, OURS + "protocolVersion": serving.MODERN})


def any_meta() -> None:
    proper = serving.check_meta
    serving.check_meta = lambda meta: proper({OURS + "clientCapabilities": {}, **meta})


def no_time_to_live() -> None:
    serving.CACHED.discard("tools/list")


def no_result_type() -> None:
    proper = serving.completed

    def completed(method: str, result: Message) -> Message:
        whole: Message = proper(method, result)
        return whole if method != "tools/call" else {**result, "_meta": whole["_meta"]}

    serving.completed = completed


def every_modern_method_is_fine() -> None:
    proper = serving.refuse_unknown
    serving.refuse_unknown = lambda params: {} if "_meta" in params else proper(params)


def asks_its_client() -> None:
    def ask(message: Message) -> None:
        meta = (message.get("params") or {}).get("_meta") or {}
        if message["method"] == "tools/call" and OURS + "protocolVersion" in meta:
            say(id="canary-1", method="roots/list")

    before(ask)


# leaving


def stays() -> None:
    serving.leave = threading.Event().wait


def waits_for_a_greeting() -> None:
    proper, heard = serving.leave, list[bool]()
    before(lambda message: heard.append(True))
    serving.leave = lambda: proper() if heard else threading.Event().wait()


def finishes_first() -> None:
    proper = serving.leave
    serving.leave = lambda: time.sleep(60) if any(worker.is_alive() for worker in serving.workers) else proper()
    before(lambda message: time.sleep(0.3) if message["method"] == "tools/call" else None)


def leaves_a_child() -> None:
    import subprocess  # here: others need not wait for it

    def start(message: Message) -> None:
        if message["method"] == "initialize":
            nothing = subprocess.DEVNULL
            subprocess.Popen(["sleep", "60"], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)

    before(start)


def leaves_early() -> None:
    proper = serving.finish

    def finish(message: Message, **outcome: Any) -> None:
        proper(message, **outcome)
        if message["method"] == "ping":
            threading.Timer(0.2, lambda: os._exit(0)).start()

    serving.finish = finish
