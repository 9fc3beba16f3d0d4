"""What a frame is in a conversation, contract by contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.replay.frame_rules import (
    ANSWER,
    CANCEL,
    FRAME_RULES,
    GREETING,
    MAX_NAME,
    NOTICE,
    PIECE,
    REQUEST,
    Turn,
)
from plugbay.contracts.base import Role
from plugbay.contracts.registry import CONTRACTS, HostSide
from plugbay.link.framings import framing_of
from plugbay.model.spec import PluginSpec
from plugbay.wire.strict_json import stdlib_codec

VAI = {"protocol": "vai.rpc.v1"}


@pytest.mark.parametrize(
    ("contract", "speaker", "frame", "turn"),
    [
        ("rune", "host", {"type": "handshake"}, Turn(REQUEST, "handshake", GREETING)),
        ("rune", "plugin", {"type": "handshake", "manifest": {}}, Turn(ANSWER, "", GREETING)),
        ("rune", "host", {"type": "request", "request_id": "r1", "tool_name": "t"}, Turn(REQUEST, "t", "r1")),
        ("rune", "plugin", {"type": "response", "request_id": "r1", "status": "ok"}, Turn(ANSWER, "", "r1")),
        (
            "rune",
            "plugin",
            {"type": "response", "request_id": "r1", "error": {"code": "x", "message": "no"}},
            Turn(ANSWER, "", "r1", "no"),
        ),
        ("nexo", "host", {"id": 2, "method": "tool.invoke", "params": {}}, Turn(REQUEST, "tool.invoke", 2)),
        ("nexo", "plugin", {"id": 2, "result": None}, Turn(ANSWER, "", 2)),
        ("nexo", "plugin", {"id": 2, "error": {"code": -1, "message": " "}}, Turn(ANSWER, "", 2, "-1")),
        (
            "nexo",
            "plugin",
            {"method": "llm.chat.delta", "params": {"request_id": 2, "chunk": "a"}},
            Turn(PIECE, "llm.chat.delta", 2),
        ),
        ("kaged", "host", {"method": "initialized", "params": {}}, Turn(NOTICE, "initialized")),
        ("ainb", "plugin", {"id": 1, "method": "host/fs/read_file"}, Turn(REQUEST, "host/fs/read_file", 1)),
        ("mcp", "host", {"id": 1, "method": "initialize", "params": {}}, Turn(REQUEST, "initialize", 1)),
        ("mcp", "plugin", {"id": 1, "result": {}}, Turn(ANSWER, "", 1)),
        (
            "mcp",
            "plugin",
            {"method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}},
            Turn(PIECE, "notifications/progress", 2),
        ),
        (
            "mcp",
            "host",
            {"method": "notifications/cancelled", "params": {"requestId": 2}},
            Turn(CANCEL, "notifications/cancelled", 2),
        ),
        ("mcp", "host", {"method": "notifications/initialized"}, Turn(NOTICE, "notifications/initialized")),
        ("mcp", "plugin", {"method": "notifications/progress", "params": 7}, Turn(NOTICE, "notifications/progress")),
        ("vai", "host", {**VAI, "type": "hello", "role": "host"}, Turn(REQUEST, "hello", GREETING)),
        ("vai", "plugin", {**VAI, "type": "hello", "role": "plugin"}, Turn(ANSWER, "", GREETING)),
        (
            "vai",
            "host",
            {**VAI, "type": "request", "id": "req_1", "op": "tool.invoke", "body": {"export_id": "t"}},
            Turn(REQUEST, "tool.invoke t", "req_1"),
        ),
        ("vai", "plugin", {**VAI, "type": "event", "request_id": "req_1"}, Turn(PIECE, "event", "req_1")),
        ("vai", "host", {**VAI, "type": "cancel", "request_id": "req_1"}, Turn(CANCEL, "cancel", "req_1")),
        (
            "vai",
            "plugin",
            {**VAI, "type": "response", "id": "req_1", "ok": True, "body": {}},
            Turn(ANSWER, "", "req_1"),
        ),
        (
            "vai",
            "plugin",
            {**VAI, "type": "response", "id": "req_1", "body": {"error": {"message": "no"}}},
            Turn(ANSWER, "", "req_1", "no"),
        ),
        ("vai", "host", {**VAI, "type": "shutdown"}, Turn(NOTICE, "shutdown")),
        ("nexo", "plugin", ["no", "object"], Turn(NOTICE, "")),
    ],
)
def test_a_frame_is_read_as_what_it_is(contract: str, speaker: str, frame: Any, turn: Turn) -> None:
    assert FRAME_RULES[contract].turn(speaker, frame) == turn


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_first_word_of_every_host_is_a_question(contract: str) -> None:
    spec = PluginSpec("p", "1", contract, Path("/p"), ("run",))
    machine = CONTRACTS[contract].host_machine(spec, HostSide(), stdlib_codec())
    machine.greet()
    (piece,) = framing_of(contract, Role.HOST).feed(machine.outgoing())
    assert FRAME_RULES[contract].turn(Role.HOST, json.loads(piece.body)).kind == REQUEST


@pytest.mark.parametrize(
    ("contract", "frame", "id", "renumbered"),
    [
        ("rune", {"type": "response", "request_id": "a"}, "b", {"type": "response", "request_id": "b"}),
        ("rune", {"type": "handshake"}, "b", {"type": "handshake"}),
        ("kaged", {"id": 1, "result": 5}, 7, {"id": 7, "result": 5}),
        (
            "nexo",
            {"method": "llm.chat.delta", "params": {"request_id": 1, "chunk": "x"}},
            7,
            {"method": "llm.chat.delta", "params": {"request_id": 7, "chunk": "x"}},
        ),
        ("vai", {"type": "response", "id": "a"}, "b", {"type": "response", "id": "b"}),
        ("vai", {"type": "event", "request_id": "a"}, "b", {"type": "event", "request_id": "b"}),
        ("vai", {"type": "hello"}, "b", {"type": "hello"}),
    ],
)
def test_a_frame_can_be_about_another_question(contract: str, frame: Any, id: Any, renumbered: Any) -> None:
    assert FRAME_RULES[contract].with_id(frame, id) == renumbered


@pytest.mark.parametrize("contract", FRAME_RULES)
def test_a_refusal_is_an_answer_that_failed(contract: str) -> None:
    speech = FRAME_RULES[contract]
    refusal = speech.refusal(Turn(REQUEST, "tool.invoke", "a"), "not recorded")
    assert speech.turn(Role.PLUGIN, refusal) == Turn(ANSWER, "", "a", "not recorded")


def test_a_name_that_a_plugin_chose_is_kept_short() -> None:
    assert len(FRAME_RULES["nexo"].turn("plugin", {"method": "x" * 1000}).name) == MAX_NAME
