"""rune as one value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.contract import HostSide
from plugbay.contracts.frames import ANSWER, GREETING, REQUEST, Turn
from plugbay.contracts.rune.contract import CONTRACT
from plugbay.model.spec import PluginSpec
from plugbay.wire.strict_json import stdlib_codec


@pytest.mark.parametrize(
    ("speaker", "frame", "turn"),
    [
        ("host", {"type": "handshake"}, Turn(REQUEST, "handshake", GREETING)),
        ("plugin", {"type": "handshake", "manifest": {}}, Turn(ANSWER, "", GREETING)),
        ("host", {"type": "request", "request_id": "r1", "tool_name": "t"}, Turn(REQUEST, "t", "r1")),
        ("plugin", {"type": "response", "request_id": "r1", "status": "ok"}, Turn(ANSWER, "", "r1")),
        (
            "plugin",
            {"type": "response", "request_id": "r1", "error": {"code": "x", "message": "no"}},
            Turn(ANSWER, "", "r1", "no"),
        ),
    ],
)
def test_a_frame_is_read_as_a_part_of_the_conversation(speaker: str, frame: Any, turn: Turn) -> None:
    assert CONTRACT.frame_rules.turn(speaker, frame) == turn


@pytest.mark.parametrize(
    ("frame", "id", "renumbered"),
    [
        ({"type": "response", "request_id": "a"}, "b", {"type": "response", "request_id": "b"}),
        ({"type": "handshake"}, "b", {"type": "handshake"}),
    ],
)
def test_a_frame_can_get_another_id(frame: Any, id: Any, renumbered: Any) -> None:
    assert CONTRACT.frame_rules.with_id(frame, id) == renumbered


def test_a_plugin_is_greeted_with_its_grants_and_called_with_the_nonce() -> None:
    spec = PluginSpec("p", "1", "rune", Path("/p"), ("run",))
    machine = CONTRACT.host_machine(spec, HostSide(("granted",), nonce=7), stdlib_codec())
    machine.greet()
    assert json.loads(machine.outgoing())["protocol_version"] == CONTRACT.version
