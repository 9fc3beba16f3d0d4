"""Nodes as an operator sees them."""

from __future__ import annotations

from time import monotonic

from plugbay.cluster.calling import Cluster
from plugbay.cluster.outcomes import FAILED, SUCCEEDED
from plugbay.cluster.report import GONE, node_rows
from plugbay.cluster.times import USUAL
from plugbay.host.config.sections import ClusterConfig
from tests.cluster.test_envelope import beat


def test_a_row_has_the_last_beat_the_silence_since_and_the_calls_of_this_gateway() -> None:
    cluster, now = Cluster(ClusterConfig(nats=["nats://127.0.0.1:1"]), {}), monotonic()
    cluster.roster.hear(beat(busy=3, children=2, memory=5 << 20, plugins=("acme/p 1.0.0",)), now - 1)
    cluster.roster.hear(beat(node="n2", state="draining"), now)
    cluster.roster.hear(beat(node="n3"), now - USUAL.silent - 1)
    for outcome in (SUCCEEDED, FAILED):
        cluster.tally.count("n1", outcome, 0.25, now)
    first, second, third = node_rows(cluster)
    assert (first.node, first.state, first.calls, first.places, first.load) == ("n1", "up", 3, 8, 3)
    assert (first.children, first.memory_bytes, first.plugins) == (2, 5 << 20, ("acme/p 1.0.0",))
    assert (first.called.total, first.called.failed, first.called.p50_ms) == (2, 1, 250.0)
    assert first.silent_ms >= 1000
    assert second.state == "draining" and second.called.total == 0 and second.called.p50_ms is None
    assert third.state == GONE
