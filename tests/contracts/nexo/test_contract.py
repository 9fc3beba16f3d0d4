"""nexo as one value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.contract import HostSide
from plugbay.contracts.frames import ANSWER, NOTICE, PIECE, REQUEST, Turn
from plugbay.contracts.nexo.contract import CONTRACT
from plugbay.contracts.nexo.errors import INTERNAL_ERROR, TOOL_FAILED
from plugbay.model.spec import Export, PluginSpec
from plugbay.wire.strict_json import stdlib_codec


@pytest.mark.parametrize(
    ("speaker", "frame", "turn"),
    [
        ("host", {"id": 2, "method": "tool.invoke", "params": {}}, Turn(REQUEST, "tool.invoke", 2)),
        ("plugin", {"id": 2, "result": None}, Turn(ANSWER, "", 2)),
        ("plugin", {"id": 2, "error": {"code": -1, "message": " "}}, Turn(ANSWER, "", 2, "-1")),
        (
            "plugin",
            {"method": "llm.chat.delta", "params": {"request_id": 2, "chunk": "a"}},
            Turn(PIECE, "llm.chat.delta", 2),
        ),
        ("plugin", {"method": "broker.publish", "params": {}}, Turn(NOTICE, "broker.publish")),
    ],
)
def test_a_frame_is_read_as_a_part_of_the_conversation(speaker: str, frame: Any, turn: Turn) -> None:
    assert CONTRACT.frame_rules.turn(speaker, frame) == turn


@pytest.mark.parametrize(
    ("frame", "id", "renumbered"),
    [
        ({"id": 1, "result": 5}, 7, {"id": 7, "result": 5}),
        (
            {"method": "llm.chat.delta", "params": {"request_id": 1, "chunk": "x"}},
            7,
            {"method": "llm.chat.delta", "params": {"request_id": 7, "chunk": "x"}},
        ),
    ],
)
def test_a_frame_can_get_another_id(frame: Any, id: Any, renumbered: Any) -> None:
    assert CONTRACT.frame_rules.with_id(frame, id) == renumbered


def test_a_tool_that_is_refused_gets_the_code_for_tools() -> None:
    codes = [
        CONTRACT.frame_rules.refusal(Turn(REQUEST, name, 1), "no")["error"]["code"]
        for name in ("tool.invoke", "llm.chat")
    ]
    assert codes == [TOOL_FAILED, INTERNAL_ERROR]


def test_a_host_accepts_the_tools_of_the_manifest_only() -> None:
    spec = PluginSpec("p", "1", "nexo", Path("/p"), ("run",), exports=(Export("tool", "t"), Export("hook", "h")))
    machine = CONTRACT.host_machine(spec, HostSide(), stdlib_codec())
    machine.greet()
    assert json.loads(machine.outgoing())["params"]["nexo_version"] == CONTRACT.version
