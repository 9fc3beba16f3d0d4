"""mcp as one value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay import __version__
from plugbay.contracts.contract import HostSide
from plugbay.contracts.frames import ANSWER, CANCEL, NOTICE, PIECE, REQUEST, Turn
from plugbay.contracts.mcp.contract import CONTRACT
from plugbay.model.spec import PluginSpec
from plugbay.wire.strict_json import stdlib_codec


@pytest.mark.parametrize(
    ("speaker", "frame", "turn"),
    [
        ("host", {"id": 1, "method": "initialize", "params": {}}, Turn(REQUEST, "initialize", 1)),
        ("plugin", {"id": 1, "result": {}}, Turn(ANSWER, "", 1)),
        (
            "plugin",
            {"method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}},
            Turn(PIECE, "notifications/progress", 2),
        ),
        (
            "host",
            {"method": "notifications/cancelled", "params": {"requestId": 2}},
            Turn(CANCEL, "notifications/cancelled", 2),
        ),
        ("host", {"method": "notifications/initialized"}, Turn(NOTICE, "notifications/initialized")),
        ("plugin", {"method": "notifications/progress", "params": 7}, Turn(NOTICE, "notifications/progress")),
    ],
)
def test_a_frame_is_read_as_a_part_of_the_conversation(speaker: str, frame: Any, turn: Turn) -> None:
    assert CONTRACT.frame_rules.turn(speaker, frame) == turn


@pytest.mark.parametrize(
    ("frame", "id", "renumbered"),
    [
        ({"id": 1, "result": {}}, 7, {"id": 7, "result": {}}),
        (
            {"method": "notifications/cancelled", "params": {"requestId": 2}},
            7,
            {"method": "notifications/cancelled", "params": {"requestId": 7}},
        ),
        (
            {"method": "notifications/progress", "params": {"progressToken": 2}},
            7,
            {"method": "notifications/progress", "params": {"progressToken": 7}},
        ),
    ],
)
def test_a_frame_can_get_another_id(frame: Any, id: Any, renumbered: Any) -> None:
    assert CONTRACT.frame_rules.with_id(frame, id) == renumbered


def test_an_mcp_server_is_told_who_greets_it_and_what_was_granted_of_what_it_may_ask_for() -> None:
    spec = PluginSpec("p", "0", "mcp", Path("/p"), ("p",), optional_capabilities=("sampling", "roots"))
    machine = CONTRACT.host_machine(spec, HostSide(("roots", "elicitation")), stdlib_codec())
    machine.greet()
    hello = json.loads(machine.outgoing())
    assert (hello["method"], hello["params"]["protocolVersion"]) == ("initialize", "2025-11-25")
    assert hello["params"]["clientInfo"] == {"name": "plugbay", "version": __version__}
    assert hello["params"]["capabilities"] == {"roots": {"listChanged": True}}


def test_an_mcp_server_is_greeted_in_the_era_it_is_known_to_speak() -> None:
    spec = PluginSpec("p", "0", "mcp", Path("/p"), ("p",))
    machine = CONTRACT.host_machine(spec, HostSide(era="modern"), stdlib_codec())
    machine.greet()
    assert json.loads(machine.outgoing())["method"] == "server/discover"


def test_exports_are_made_from_the_lists_in_the_greeting() -> None:
    assert CONTRACT.runtime_exports is not None
    exports, warnings = CONTRACT.runtime_exports({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
    assert [(export.kind, export.name) for export in exports] == [("tool", "t")]
    assert warnings == []
