"""kaged as one value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.contract import HostSide
from plugbay.contracts.frames import NOTICE, REQUEST, Turn
from plugbay.contracts.kaged.contract import CONTRACT
from plugbay.model.spec import PluginSpec
from plugbay.wire.strict_json import stdlib_codec


@pytest.mark.parametrize(
    ("speaker", "frame", "turn"),
    [
        ("host", {"method": "initialized", "params": {}}, Turn(NOTICE, "initialized")),
        ("host", {"id": 1, "method": "ping"}, Turn(REQUEST, "ping", 1)),
    ],
)
def test_a_frame_is_read_as_a_part_of_the_conversation(speaker: str, frame: Any, turn: Turn) -> None:
    assert CONTRACT.frame_rules.turn(speaker, frame) == turn


@pytest.mark.parametrize(
    ("frame", "id", "renumbered"),
    [
        ({"id": 1, "result": 5}, 7, {"id": 7, "result": 5}),
    ],
)
def test_a_frame_can_get_another_id(frame: Any, id: Any, renumbered: Any) -> None:
    assert CONTRACT.frame_rules.with_id(frame, id) == renumbered


def test_a_plugin_is_greeted_with_its_settings_and_projects() -> None:
    spec = PluginSpec("p", "1.0.0", "kaged", Path("/p"), ("run",))
    side = HostSide(config={"days": 7}, secrets={"token": "x"}, projects=("one",), storage=True)
    machine = CONTRACT.host_machine(spec, side, stdlib_codec())
    machine.greet()
    params = json.loads(machine.outgoing())["params"]
    assert (params["api_version"], params["plugin_name"]) == (CONTRACT.version, "p")
    assert (params["projects"], params["storage_available"], params["config"]) == (["one"], True, {"days": 7})
