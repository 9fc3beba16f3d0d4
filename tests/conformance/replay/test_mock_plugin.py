"""A recording answers in the place of the plugin: what was recorded, and nothing that was not."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from plugbay.conformance.replay.mock_plugin import MockPlugin, serve
from plugbay.contracts.base import Role
from plugbay.contracts.registry import CONTRACTS
from plugbay.link.recording import Recording
from tests.conformance.recordings import call, error, items, joined, recording, result, tell
from tests.support.patience import PATIENCE

HELLO = {"type": "handshake", "protocol_version": "rterm.plugin.v1"}
WHO = {"type": "handshake", "manifest": {"plugin_id": "p"}}


class Live:
    """A mock, and a host that talks to it."""

    def __init__(self, recording: Recording, **options: Any) -> None:
        self.contract = recording.header.contract
        self.stderr: list[str] = []
        self.mock = MockPlugin(recording, self.stderr.append, **options)
        self._reads = CONTRACTS[self.contract].framing_of(Role.PLUGIN)
        self._writes = CONTRACTS[self.contract].framing_of(Role.HOST)
        self.mock.start(0.0)

    def says(self, *frames: Any, now: float = 0.0) -> list[Any]:
        """What the mock says to these."""
        for frame in frames:
            self.mock.feed(self._writes.wrap(json.dumps(frame).encode()), now)
        return self.heard()

    def heard(self) -> list[Any]:
        return [json.loads(piece.body) for piece in self._reads.feed(self.mock.outgoing())]


def test_an_answer_goes_to_the_live_question() -> None:
    live = Live(recording("kaged", (">", call(2, "p.t", a=1)), ("<", result(2, {"b": 1}))))
    assert live.says(call(9, "p.t", a=1)) == [result(9, {"b": 1})]
    assert live.says(call(10, "p.t", a=1)) == [result(10, {"b": 1})]
    assert live.stderr == []


def test_answers_to_the_same_question_come_in_the_order_they_were_recorded() -> None:
    lines = [line for n in (1, 2) for line in ((">", call(n, "next")), ("<", result(n, n)))]
    live = Live(recording("kaged", *lines))
    answers = live.says(call(1, "next"), call(2, "next"), call(3, "next"))
    assert [answer["result"] for answer in answers] == [1, 2, 2]


def test_what_a_host_says_anew_makes_no_difference_and_is_repeated_in_the_answer() -> None:
    def request(id: str, place: str) -> dict[str, Any]:
        context = {"scratch_dir": place, "deadline_at": place, "org_id": "default"}
        return {"type": "request", "id": id, "op": "tool.invoke", "body": {"export_id": "t", "context": context}}

    answer = {"type": "response", "id": "req_1", "ok": True, "body": {"file": "/old/place/a"}}
    live = Live(recording("vai", (">", request("req_1", "/old/place")), ("<", answer)))
    assert live.says(request("req_7", "/new/place")) == [{**answer, "id": "req_7", "body": {"file": "/new/place/a"}}]


def test_rune_is_greeted_and_asked() -> None:
    asked = {"type": "request", "request_id": "r1", "tool_name": "t", "context": {}, "input": {"a": 1}}
    answer = {"type": "response", "request_id": "r1", "status": "ok", "output": 5}
    live = Live(recording("rune", (">", HELLO), ("<", WHO), (">", asked), ("<", answer)))
    assert live.says(HELLO) == [WHO]
    assert live.says({**asked, "request_id": "r9"}) == [{**answer, "request_id": "r9"}]
    (refusal,) = live.says({**asked, "input": {"a": 2}})
    assert (refusal["status"], refusal["error"]["code"]) == ("error", "not_recorded")


# What was not recorded.


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            call(5, "p.t", a=2),
            "p.t was not recorded with these parameters; the nearest is in line 2: /params/a: 2, not 1",
        ),
        (call(5, "p.tt"), "p.tt was not recorded; the nearest is p.t"),
        (call(5, "zzz"), "zzz was not recorded; there is p.t"),
    ],
)
def test_a_question_that_was_not_recorded_gets_an_error_that_names_the_nearest(asked: Any, why: str) -> None:
    live = Live(recording("kaged", (">", call(2, "p.t", a=1)), ("<", result(2, 1))))
    assert live.says(asked) == [error(5, f"replay: {why}")]
    assert live.stderr == [f"replay: {why}"]


def test_a_notice_that_was_not_recorded_gets_none() -> None:
    live = Live(recording("kaged", (">", call(2, "p.t")), ("<", result(2, 1))))
    assert live.says(tell("news")) == []
    assert live.stderr == ["replay: news was not recorded; there is nothing"]


def test_loosely_the_name_is_enough() -> None:
    live = Live(recording("kaged", (">", call(2, "p.t", a=1)), ("<", result(2, 1))), loose=True)
    assert live.says(call(5, "p.t", a=2)) == [result(5, 1)]


def test_a_greeting_that_was_otherwise_ends_a_contract_without_a_word_for_that() -> None:
    live = Live(recording("rune", (">", HELLO), ("<", WHO)))
    assert live.says({**HELLO, "protocol_version": "v2"}) == []
    assert live.mock.left == 1 and "/protocol_version" in live.stderr[0]


def test_bytes_that_are_no_message_are_told() -> None:
    live = Live(recording("kaged"))
    live.mock.feed(b"hello\n", 0.0)
    assert live.stderr[0].startswith("replay: the host sent something that is not a message")


# What the plugin asks and tells.


def test_a_plugin_that_asks_waits_for_its_answer() -> None:
    lines = [
        (">", call(2, "p.t")),
        ("<", call(1, "kaged.storage.get", key="k")),
        (">", result(1, {"found": True})),
        ("<", result(2, "done")),
    ]
    live = Live(recording("kaged", *lines))
    assert live.says(call(7, "p.t")) == [call(1, "kaged.storage.get", key="k")]
    assert live.says(result(1, {"found": True})) == [result(7, "done")]
    assert live.says(call(8, "p.t")) == [call(2, "kaged.storage.get", key="k")]
    assert live.says(result(2, {"found": False})) == [result(8, "done")]
    assert live.stderr == [
        "replay: the host answers kaged.storage.get differently than in line 4: /result/found: false, not true"
    ]


def test_pieces_come_before_the_answer_and_notices_as_they_were() -> None:
    delta = {"jsonrpc": "2.0", "method": "llm.chat.delta", "params": {"request_id": 2, "chunk": {"a": 1}}}
    lines = [(">", call(2, "llm.chat")), ("<", delta), ("<", tell("broker.publish", topic="x")), ("<", result(2, 1))]
    live = Live(recording("nexo", *lines))
    said = live.says(call(9, "llm.chat"))
    assert said == [
        {**delta, "params": {"request_id": 9, "chunk": {"a": 1}}},
        tell("broker.publish", topic="x"),
        result(9, 1),
    ]


def test_what_came_before_any_word_comes_first() -> None:
    assert Live(recording("kaged", ("<", tell("early")))).heard() == [tell("early")]


def test_an_answer_to_a_calling_off_waits_for_it() -> None:
    asked = {"type": "request", "id": "req_1", "op": "harness.run", "body": {"export_id": "h"}}
    answer = {"type": "response", "id": "req_1", "ok": True, "body": {"status": "cancelled"}}
    off = {"type": "cancel", "request_id": "req_1", "reason": "user_cancelled"}
    live = Live(recording("vai", (">", asked), (">", off), ("<", answer)))
    assert live.says(asked) == []
    assert live.says(off) == [answer]


def test_noise_and_stderr_are_repeated_and_a_crash_happens_again() -> None:
    lines = [
        (">", call(2, "p.t")),
        ("!", "Traceback"),
        ("<", b"oops"),
        (".", {"event": "exit", "code": 3, "signal": None}),
    ]
    live = Live(recording("kaged", *lines))
    live.mock.feed(json.dumps(call(2, "p.t")).encode() + b"\n", 0.0)
    assert live.mock.outgoing() == b"oops\n"
    assert (live.stderr, live.mock.left) == (["Traceback"], 3)


def test_questions_of_every_conversation_can_be_asked() -> None:
    one = items([(">", call(1, "a")), ("<", result(1, "first"))], link=1)
    two = items([(">", call(1, "b")), ("<", result(1, "second"))], link=2)
    live = Live(joined("kaged", [*one, *two]))
    assert live.says(call(1, "b"), call(2, "a")) == [result(1, "second"), result(2, "first")]


# Time.


def test_at_some_speed_everything_takes_its_time() -> None:
    lines = [(">", call(2, "p.t")), ("<", tell("working")), ("<", result(2, 1))]
    live = Live(recording("kaged", *lines), speed=0.5)
    assert live.says(call(2, "p.t"), now=10.0) == []
    assert live.mock.due == pytest.approx(10.02)
    live.mock.tick(10.01)
    assert live.heard() == []
    live.mock.tick(10.02)
    assert live.heard() == [tell("working")]
    assert live.mock.due == pytest.approx(10.04)
    live.mock.tick(11.0)
    assert live.heard() == [result(2, 1)] and live.mock.due is None


# Where it would lie.


def redacted(line: int, place: str) -> Recording:
    asked, answer = call(2, "p.t", a="***" if line == 2 else 1), result(2, "***" if line == 3 else 1)
    return recording("kaged", (">", asked), ("<", answer), redacted={line: (place,)})


def test_an_answer_that_was_redacted_is_not_given() -> None:
    live = Live(redacted(3, "/result"))
    (refusal,) = live.says(call(2, "p.t", a=1))
    assert "the plugin's answer in line 3 was redacted at /result" in refusal["error"]["message"]


def test_a_question_that_was_redacted_cannot_be_recognised() -> None:
    (refusal,) = Live(redacted(2, "/params/a")).says(call(2, "p.t", a="secret"))
    assert "p.t in line 2 was redacted at /params/a, so it cannot be compared" in refusal["error"]["message"]


def test_with_placeholders_the_rest_is_compared_and_it_is_told() -> None:
    assert Live(redacted(2, "/params/a"), allow_redacted=True).says(call(2, "p.t", a="secret")) == [result(2, 1)]
    live = Live(redacted(3, "/result"), allow_redacted=True)
    assert live.says(call(2, "p.t", a=1)) == [result(2, "***")]
    assert live.stderr == ["replay: the plugin's answer in line 3 has placeholders at /result"]


def test_what_came_first_and_was_redacted_ends_it_at_once() -> None:
    live = Live(recording("kaged", ("<", tell("early", a="***")), redacted={2: ("/params/a",)}))
    assert live.mock.left == 1 and live.heard() == []


LARGE = "x" * 300_000
"""More than a pipe takes at once."""


class Served:
    """A mock that is served in a thread, and the host's ends of its pipes."""

    def __init__(self, *lines: Any, **options: Any) -> None:
        self.mock = MockPlugin(recording("kaged", *lines), lambda text: None, **options)
        source, self.write = os.pipe()
        read, sink = os.pipe()
        self.read = os.fdopen(read, "rb")
        self.status: list[int] = []
        self._ends = (source, sink)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self.status.append(serve(self.mock, *self._ends))
        os.close(self._ends[1])

    def send(self, frame: Any) -> None:
        os.write(self.write, json.dumps(frame).encode() + b"\n")

    def line(self) -> Any:
        return json.loads(self.read.readline())

    def left(self) -> int:
        self._thread.join(PATIENCE)
        return self.status[0]


@contextmanager
def served(*lines: Any, **options: Any) -> Iterator[Served]:
    it = Served(*lines, **options)
    yield it
    it.read.close()


def test_it_answers_until_its_input_ends() -> None:
    with served((">", call(1, "a")), ("<", result(1, LARGE))) as it:
        for id in (1, 2):
            it.send(call(id, "a"))
            assert it.line() == result(id, LARGE)
        os.close(it.write)
        assert it.left() == 0 and it.read.read() == b""


def test_what_is_due_later_comes_without_another_word() -> None:
    with served((">", call(1, "a")), ("<", tell("soon")), ("<", result(1, 1)), speed=1.0) as it:
        it.send(call(1, "a"))
        assert [it.line(), it.line()] == [tell("soon"), result(1, 1)]
        os.close(it.write)


def test_it_leaves_as_the_plugin_did() -> None:
    with served((">", call(1, "a")), (".", {"event": "exit", "code": 3, "signal": None})) as it:
        it.send(call(1, "a"))
        assert it.left() == 3
        os.close(it.write)


@pytest.mark.filterwarnings("error")
def test_it_ends_when_nobody_reads_any_more() -> None:
    with served((">", call(1, "a")), ("<", result(1, LARGE))) as it:
        it.read.close()
        it.send(call(1, "a"))
        assert it.left() == 0
        os.close(it.write)
