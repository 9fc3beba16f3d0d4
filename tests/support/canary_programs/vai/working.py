"""Ways in which the canary works or leaves otherwise than it should: each function is one."""

from __future__ import annotations

import os
import sys
import time

import child
import four  # type: ignore[import-not-found]  # it lies beside this file
from child import SERVES, Message, cancels, refuse, respond, say
from four import CANCELLED, echo, instead, result, succeeded, text

# concurrency and cancelling


def drops_when_busy() -> None:
    proper = child.begin
    child.begin = lambda message: None if cancels else proper(message)


def overloaded_by_two() -> None:
    def request(message: Message) -> None:
        same = [id for id in cancels if id != message["id"]]
        refuse(message, "overloaded") if same and message["op"] == "tool.invoke" else child.request(message)

    child.HEARS["request"] = request


def silent_when_cancelled() -> None:
    finish = child.finish
    child.finish = lambda message, outcome: None if outcome is CANCELLED else finish(message, outcome)


def answers_every_cancel() -> None:
    seen: list[str] = []

    def cancel(message: Message) -> None:
        seen.append(message["request_id"])
        if seen.count(message["request_id"]) > 1:
            respond({"id": message["request_id"]}, **CANCELLED)
        child.cancel(message)

    child.HEARS["cancel"] = cancel


def dies_of_unknown_cancels() -> None:
    child.HEARS["cancel"] = lambda message: os._exit(1) if message["request_id"] == "req_999" else child.cancel(message)


def dies_of_late_cancels() -> None:
    done: list[str] = []

    def finish(message: Message, outcome: Message) -> None:
        if outcome is not CANCELLED:
            respond(message, **outcome)
            time.sleep(0.05)
            done.append(message["id"])
        else:
            respond(message, **outcome)

    def cancel(message: Message) -> None:
        time.sleep(0.1)
        os._exit(1) if message["request_id"] in done and not cancels else child.cancel(message)

    child.finish = finish
    child.HEARS["cancel"] = cancel


# the four kinds


def no_content() -> None:
    result("tool.invoke", content=None)


def content_is_text() -> None:
    result("tool.invoke", content="hello")


def error_is_text() -> None:
    result("tool.invoke", is_error="no")


def other_output() -> None:
    result("tool.invoke", structured_output={"words": 1})


def refuses_redelivery() -> None:
    def change(message: Message, outcome: Message) -> Message:
        return outcome if message["body"]["attempt"] != 2 else child.failed(KeyError("delivery"))

    instead("hook.handle", change)


def counts_attempts() -> None:
    def change(message: Message, outcome: Message) -> Message:
        return outcome if message["body"]["attempt"] < 3 else child.failed(KeyError("attempt"))

    instead("hook.handle", change)


def empty_seed() -> None:
    result("compactor.compact", seed_blocks=[])


def own_kinds() -> None:
    result("compactor.compact", seed_blocks=[{"kind": "digest", "content": text("all")}])


def no_summary() -> None:
    result("compactor.compact", summary=None)


def drops_the_system() -> None:
    result("compactor.compact", seed_blocks=[{"kind": "input", "content": text("all")}])


def reads_no_files() -> None:
    proper = four.projection

    def inline(body: Message) -> Message:
        given = body["source"]["projection"]
        return proper(body) if given.get("artifact", {}).get("path") != "projection.json" else {"blocks": []}

    four.projection = inline


def bare_checkpoint() -> None:
    result("harness.run", checkpoint={"step": 1})


def no_last_words() -> None:
    result("harness.run", summary=None)


def odd_checkpoint() -> None:
    proper = four.tell
    four.tell = lambda request, **event: proper(
        request, **({"type": "checkpoint", "data": 1} if event["type"] == "checkpoint" else event)
    )


def cannot_resume() -> None:
    def change(message: Message, outcome: Message) -> Message:
        return outcome if message["body"]["mode"] == "start" else child.failed(KeyError("mode"))

    instead("harness.run", change)


# leaving


def stays() -> None:
    child.HEARS["shutdown"] = lambda message: None


def status_3() -> None:
    child.HEARS["shutdown"] = lambda message: os._exit(3)


def says_good_bye() -> None:
    def shutdown(message: Message) -> None:
        say(type="shutdown")
        child.leave()

    child.HEARS["shutdown"] = shutdown


def stays_at_the_end() -> None:
    leave = child.leave
    child.leave = lambda: time.sleep(60)
    child.HEARS["shutdown"] = lambda message: leave()


def waits_for_a_hello() -> None:
    greeted: list[Message] = []
    leave = child.leave
    child.leave = lambda: leave() if greeted else time.sleep(60)

    def hello(message: Message) -> None:
        greeted.append(message)
        child.hello(message)

    child.HEARS["hello"] = hello


def finishes_first() -> None:
    """What is asked at the end keeps it for long."""
    leave = child.leave

    def shutdown(message: Message) -> None:
        time.sleep(30 if cancels else 0)
        leave()

    child.HEARS["shutdown"] = shutdown


def leaves_a_child() -> None:
    from subprocess import DEVNULL, Popen  # loading it takes as long as starting the interpreter

    Popen(["sleep", "60"], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)


# secrets


def echoes_its_secret() -> None:
    def change(message: Message, outcome: Message) -> Message:
        secret = message["body"]["secrets"]["token"]
        return succeeded(content=text(f"signed in with {secret}"), structured_output={"text": secret})

    instead("tool.invoke", change)


def fails_with_its_secret() -> None:
    def tool(message: Message) -> Message:
        try:
            return echo(message)
        except KeyError:
            words = f"cannot sign in with {message['body']['secrets']['token']}"
            return {"status": "failed", "error": {"code": "canary.failed", "message": words}}

    SERVES["tool.invoke"] = tool


def refuses_with_its_secret() -> None:
    refuse = child.refuse

    def tell_all(message: Message, code: str, words: str = "no") -> None:
        refuse(message, code, f"{words} {message.get('body', {}).get('secrets')}")

    child.refuse = tell_all


def logs_its_secret() -> None:
    def change(message: Message, outcome: Message) -> Message:
        print("signed in with", message["body"]["secrets"], file=sys.stderr, flush=True)
        return outcome

    instead("tool.invoke", change)
