"""Nodes and gateways as rows of tables."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from plugbay.cluster.report import CallCounts, NodeRow
from plugbay.server.dashboard.views.nodes import gateways_table, node_cells, nodes_table, summary_of
from plugbay.server.domain.cluster_status import GatewayRow

NODE = NodeRow(
    node="n1",
    state="up",
    calls=3,
    places=256,
    load=4,
    children=2,
    memory_bytes=120 << 20,
    sandbox=True,
    release="1.0.0",
    labels={"zone": "a", "arch": "arm64"},
    plugins=("acme/p 1.0.0",),
    silent_ms=400,
    called=CallCounts(1204, 3, 1, 12, 4.2),
    held=("tea", "weather"),
)


def test_a_row_has_all_that_an_operator_asks_of_a_node() -> None:
    texts = [(cell.text, cell.about) for cell in node_cells(NODE, 1000.0)]
    assert texts == [
        ("n1", "1.0.0"),
        ("up", ""),
        ("arch=arm64, zone=a", ""),
        ("yes", ""),
        ("3 of 256", "load 4"),
        ("1,204", "3 failed, 1 refused"),
        ("12", "p50 4.2 ms"),
        ("2", "120 MiB"),
        ("acme/p 1.0.0", "holds tea, weather"),
        ("now", ""),
        ("Drain", ""),
    ]


@pytest.mark.parametrize(
    ("state", "order"),
    [("up", "/nodes/n1:drain"), ("draining", "/nodes/n1:undrain"), ("avoided", "/nodes/n1:drain"), ("gone", "")],
)
def test_each_state_has_its_order(state: str, order: str) -> None:
    assert node_cells(replace(NODE, state=state), 1000.0)[-1].act == order


def test_the_age_of_a_beat_is_shown_when_it_is_late() -> None:
    assert node_cells(replace(NODE, state="gone", silent_ms=90_000), 1000.0)[-2].at == 910.0


def test_an_empty_list_has_the_next_step() -> None:
    assert "plugbay node" in nodes_table([], 0.0).empty.command
    assert "[cluster]" in nodes_table([], 0.0, in_cluster=False).empty.text


def test_states_are_counted() -> None:
    gone = replace(NODE, node="n2", state="gone")
    assert summary_of([NODE, gone, replace(NODE, node="n3")]) == "3 nodes: 2 up, 1 gone"
    assert summary_of([]) == "0 nodes"


def test_a_gateway_has_its_lease() -> None:
    (cells,) = gateways_table([GatewayRow("gw_1", "host-a", 7, 3, 0.0, True)]).rows
    assert [(cell.text, cell.about) for cell in cells] == [
        ("gw_1", "this one"),
        ("host-a", ""),
        ("7", ""),
        ("00:00:00", ""),
        ("3", ""),
    ]
