"""Ways in which the canary talks otherwise than it should: each function is one."""

from __future__ import annotations

import os
import sys

import child
import four  # type: ignore[import-not-found]  # it lies beside this file
from child import SERVES, Message, refuse, respond, say, tell, write
from four import instead, succeeded, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# hello


def other_version() -> None:
    child.IDENTITY["version"] += "-rc.1"


def other_package() -> None:
    child.IDENTITY["package_id"] = "somebody/else"


def no_role() -> None:
    child.HEARS["hello"] = lambda message: say(type="hello", plugin=child.IDENTITY)


def hello_twice() -> None:
    def hello(message: Message) -> None:
        child.hello(message)
        child.hello(message)

    child.HEARS["hello"] = hello


def knows_one_hello() -> None:
    child.HEARS["hello"] = lambda message: child.hello(message) if len(message) == 4 else os._exit(1)


# framing


def banner() -> None:
    write(b"canary 1.0.0 ready\n")


def prints_in_a_call() -> None:
    def change(message: Message, outcome: Message) -> Message:
        write(b"handled\n")
        return outcome

    instead("hook.handle", change)


def prints_at_the_end() -> None:
    def shutdown(message: Message) -> None:
        write(b"good-bye\n")
        child.leave()

    child.HEARS["shutdown"] = shutdown


def bare_newlines() -> None:
    child.framed = lambda text: b"Content-Length: %d\n\n%b" % (len(text.encode()), text.encode())


def characters(text: str) -> bytes:
    """A frame as many programs write it: right as long as everything is ASCII."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(text), text.encode())


def counts_characters() -> None:
    child.framed = characters


def knows_ascii_only() -> None:
    body = child.body

    def read() -> bytes | None:
        data: bytes | None = body()
        if data is not None and b'"hello"' in data and not data.isascii():
            os._exit(1)
        return data

    child.body = read


def counts_characters_of_refusals() -> None:
    def refuse(message: Message, code: str, words: str) -> None:
        error = {"code": f"protocol.{code}", "message": words}
        frame = {"protocol": child.PROTOCOL, "type": "response", "id": message["id"], "ok": False, "error": error}
        write(characters(child.json.dumps(frame, ensure_ascii=False)))

    child.refuse = refuse


def escapes_badly() -> None:
    def change(message: Message, outcome: Message) -> Message:
        words = message["body"]["input"]["text"].encode("ascii", "replace").decode()
        return succeeded(content=text(words), structured_output={"text": words})

    instead("tool.invoke", change)


def frame_of(data: bytes) -> tuple[bytes, bytes]:
    """The body of the first frame in these bytes, and what is behind it; leaves when there is no whole one."""
    head, _, rest = data.partition(b"\r\n\r\n")
    size = int(head.partition(b":")[2] or -1)
    return (rest[:size], rest[size:]) if 0 <= size <= len(rest) else os._exit(1)


def takes_a_read_for_a_frame() -> None:
    """Or for several: what was written at different times may come together, whoever reads it."""
    behind = b""

    def body() -> bytes | None:
        nonlocal behind
        data = behind or os.read(0, 1 << 16)
        found, behind = frame_of(data) if data else (None, b"")
        return found

    child.body = body


def expects_one_at_a_time() -> None:
    def body() -> bytes | None:
        size = child.length()
        data = sys.stdin.buffer.read(max(0, size))
        os.set_blocking(0, False)
        more: Any = sys.stdin.buffer
        waiting = size >= 0 and b'"id":"req_300"' in more.peek(1)
        os.set_blocking(0, True)
        return os._exit(1) if waiting else data if size >= 0 else None

    child.body = body


def knows_one_spelling() -> None:
    def length() -> int:
        head = child.line()
        if not head:
            return -1
        return int(head[16:]) if head.startswith(b"Content-Length: ") and child.line() == b"\r\n" else os._exit(1)

    child.length = length


def up_to_1_mib() -> None:
    child.MAX_BODY = 1 << 20


# requests and events


def answers_twice() -> None:
    def finish(message: Message, outcome: Message) -> None:
        respond(message, **outcome)
        if message["op"] == "harness.run":
            respond(message, **outcome)

    child.finish = finish


def answers_under_another_id() -> None:
    child.finish = lambda message, outcome: respond({"id": "resp_" + message["id"]}, **outcome)


def no_ok() -> None:
    child.finish = lambda message, outcome: say(type="response", id=message["id"], body=outcome)


def body_and_error() -> None:
    child.finish = lambda message, outcome: say(type="response", id=message["id"], ok=True, body=outcome, error=None)


def knows_all_fields() -> None:
    def change(message: Message, outcome: Message) -> Message:
        return outcome if "x_later" not in message["body"] else os._exit(1)

    instead("hook.handle", change)


def no_type() -> None:
    proper = four.tell
    four.tell = lambda request, **event: proper(request, message=event["type"])


def event_after_the_response() -> None:
    def finish(message: Message, outcome: Message) -> None:
        respond(message, **outcome)
        tell(message, type="progress", message="done")

    child.finish = finish


def event_of_nobody() -> None:
    def change(message: Message, outcome: Message) -> Message:
        tell({"id": "req_nobody"}, type="progress")
        return outcome

    instead("hook.handle", change)


# refusals and outcomes


def own_code() -> None:
    proper = child.refuse
    child.refuse = lambda message, code, words="no": proper(message, code.replace("unknown_op", "no_such_op"), words)


def dies_of_unknown_ops() -> None:
    proper = child.request
    child.HEARS["request"] = lambda message: proper(message) if message["op"] else os._exit(1)


def any_export() -> None:
    """Takes the first of the right kind for every export that it does not have."""

    def request(message: Message) -> None:
        body, kind = message.get("body"), child.OPS.get(message["op"])
        if isinstance(body, dict) and kind and body.get("export_id") not in child.KINDS:
            body["export_id"] = next(id for id, other in child.KINDS.items() if other == kind)
        child.request(message)

    child.HEARS["request"] = request


def any_kind() -> None:
    """Goes by the export alone, whatever the op."""
    ops = {kind: op for op, kind in child.OPS.items()}

    def request(message: Message) -> None:
        body = message.get("body")
        export = body.get("export_id") if isinstance(body, dict) else None
        known = export in child.KINDS and message["op"] in child.OPS
        child.request({**message, "op": ops[child.KINDS[str(export)]]} if known else message)

    child.HEARS["request"] = request


def no_body_is_no_export() -> None:
    def request(message: Message) -> None:
        bare = message["op"] in SERVES and not isinstance(message.get("body"), dict)
        refuse(message, "unknown_export") if bare else child.request(message)

    child.HEARS["request"] = request


def own_status() -> None:
    instead("tool.invoke", lambda message, outcome: {**outcome, "status": "done"})


def acknowledges_results() -> None:
    instead("compactor.compact", lambda message, outcome: {**outcome, "status": "ack"})


def fails_without_a_word() -> None:
    child.failed = lambda error: {"status": "failed"}


def refuses_what_fails() -> None:
    def finish(message: Message, outcome: Message) -> None:
        if outcome["status"] == "failed":
            say(type="response", id=message["id"], ok=False, error=outcome["error"])
        else:
            respond(message, **outcome)

    child.finish = finish


def dies_of_failures() -> None:
    child.failed = lambda error: os._exit(1)
