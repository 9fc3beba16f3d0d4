"""A gateway counts its calls to each node, in bounded memory."""

from __future__ import annotations

from plugbay.cluster.outcomes import CANCELLED, FAILED, LOST, REFUSED, SUCCEEDED
from plugbay.cluster.tally import KEPT_DURATIONS, NodeTally, Tally


def test_a_refused_call_is_not_one_that_the_node_has_taken() -> None:
    tally = Tally()
    for outcome in (SUCCEEDED, FAILED, LOST, CANCELLED, REFUSED):
        tally.count("n1", outcome, 1.0, 100.0)
    node = tally.nodes["n1"]
    assert (node.total, node.failed, node.refused, node.per_minute(100.0)) == (4, 2, 1, 4)
    assert tally.outcomes == dict.fromkeys((SUCCEEDED, FAILED, CANCELLED, REFUSED, LOST), 1)


def test_the_rate_is_that_of_the_last_minute() -> None:
    node = NodeTally()
    for second in range(200):
        node.count(SUCCEEDED, 0.1, float(second))
    assert node.per_minute(199.0) == 60
    assert node.per_minute(229.0) == 30
    assert node.per_minute(10_000.0) == 0
    assert node.total == 200


def test_the_median_is_that_of_the_newest_calls() -> None:
    node = NodeTally()
    assert node.median is None
    for _ in range(KEPT_DURATIONS):
        node.count(SUCCEEDED, 5.0, 0.0)
    for number in range(KEPT_DURATIONS):
        node.count(SUCCEEDED, number / 1000, 0.0)
    assert node.median == KEPT_DURATIONS / 2 / 1000
    node.count(CANCELLED, 0.0, 0.0)
    assert node.median == KEPT_DURATIONS / 2 / 1000, "a cancelled call has no answer"


def test_nodes_that_are_forgotten_are_not_kept() -> None:
    tally = Tally()
    for name in ("n1", "n2"):
        tally.count(name, SUCCEEDED, 0.1, 0.0)
    tally.keep({"n2"})
    assert list(tally.nodes) == ["n2"] and tally.outcomes[SUCCEEDED] == 2
