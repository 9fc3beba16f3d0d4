"""vai as one value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay import __version__
from plugbay.contracts.contract import HostSide
from plugbay.contracts.frames import ANSWER, CANCEL, GREETING, NOTICE, PIECE, REQUEST, Turn
from plugbay.contracts.vai.contract import CONTRACT
from plugbay.model.spec import PluginSpec
from plugbay.wire.strict_json import stdlib_codec

VAI = {"protocol": "vai.rpc.v1"}


@pytest.mark.parametrize(
    ("speaker", "frame", "turn"),
    [
        ("host", {**VAI, "type": "hello", "role": "host"}, Turn(REQUEST, "hello", GREETING)),
        ("plugin", {**VAI, "type": "hello", "role": "plugin"}, Turn(ANSWER, "", GREETING)),
        (
            "host",
            {**VAI, "type": "request", "id": "req_1", "op": "tool.invoke", "body": {"export_id": "t"}},
            Turn(REQUEST, "tool.invoke t", "req_1"),
        ),
        ("plugin", {**VAI, "type": "event", "request_id": "req_1"}, Turn(PIECE, "event", "req_1")),
        ("host", {**VAI, "type": "cancel", "request_id": "req_1"}, Turn(CANCEL, "cancel", "req_1")),
        ("plugin", {**VAI, "type": "response", "id": "req_1", "ok": True, "body": {}}, Turn(ANSWER, "", "req_1")),
        (
            "plugin",
            {**VAI, "type": "response", "id": "req_1", "body": {"error": {"message": "no"}}},
            Turn(ANSWER, "", "req_1", "no"),
        ),
        ("host", {**VAI, "type": "shutdown"}, Turn(NOTICE, "shutdown")),
    ],
)
def test_a_frame_is_read_as_a_part_of_the_conversation(speaker: str, frame: Any, turn: Turn) -> None:
    assert CONTRACT.frame_rules.turn(speaker, frame) == turn


@pytest.mark.parametrize(
    ("frame", "id", "renumbered"),
    [
        ({"type": "response", "id": "a"}, "b", {"type": "response", "id": "b"}),
        ({"type": "event", "request_id": "a"}, "b", {"type": "event", "request_id": "b"}),
        ({"type": "hello"}, "b", {"type": "hello"}),
    ],
)
def test_a_frame_can_get_another_id(frame: Any, id: Any, renumbered: Any) -> None:
    assert CONTRACT.frame_rules.with_id(frame, id) == renumbered


def test_a_vai_plugin_is_told_which_host_greets_it() -> None:
    spec = PluginSpec("acme/devkit", "1.0.0", "vai", Path("/plugins/p"), ("./p",))
    machine = CONTRACT.host_machine(spec, HostSide(), stdlib_codec())
    machine.greet()
    hello = json.loads(machine.outgoing().partition(b"\r\n\r\n")[2])
    assert (hello["type"], hello["role"], hello["host"]) == (
        "hello",
        "host",
        {"name": "plugbay", "version": __version__},
    )
