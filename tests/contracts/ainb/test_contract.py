"""ainb as one value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.ainb.contract import CONTRACT
from plugbay.contracts.contract import HostSide
from plugbay.contracts.frames import NOTICE, REQUEST, Turn
from plugbay.model.spec import PluginSpec
from plugbay.wire.strict_json import stdlib_codec


@pytest.mark.parametrize(
    ("speaker", "frame", "turn"),
    [
        ("plugin", {"id": 1, "method": "host/fs/read_file"}, Turn(REQUEST, "host/fs/read_file", 1)),
        ("plugin", {"method": "host/log", "params": {}}, Turn(NOTICE, "host/log")),
    ],
)
def test_a_frame_is_read_as_a_part_of_the_conversation(speaker: str, frame: Any, turn: Turn) -> None:
    assert CONTRACT.frame_rules.turn(speaker, frame) == turn


def test_an_ainb_plugin_is_told_where_its_manifest_is_what_it_may_do_and_whose_child_it_is() -> None:
    spec = PluginSpec("p", "1.0.0", "ainb", Path("/plugins/p"), ("/plugins/p/p",))
    side = HostSide(("event_bus", "network=a"), config={"days": 7}, pid=42)
    machine = CONTRACT.host_machine(spec, side, stdlib_codec())
    machine.greet()
    params = json.loads(machine.outgoing().partition(b"\r\n\r\n")[2])["params"]
    assert params["manifest_path"] == "/plugins/p/manifest.toml"
    assert params["granted_capabilities"] == ["event_bus", "network"]
    assert params["config"] == {"days": 7}
    assert params["host"]["pid"] == 42
