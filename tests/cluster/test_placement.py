"""Calls that share an instance go to one node; others go where the least is going on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.cluster.placement import Wish, choose, fits, holder_of, order
from plugbay.cluster.roster import Node
from plugbay.model.errors import Code, Failure
from tests.cluster.test_envelope import beat
from tests.support.requirements import requirement

NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), min_size=1, max_size=12, unique=True)
SHARED, ALONE = Wish("acme", shared=True), Wish("acme", shared=False)


def node(name: str, calls: int = 0, **fields: Any) -> Node:
    return Node(beat(node=name, **fields), 0.0, calls=calls)


def chosen(nodes: list[Node], wish: Wish, *tried: str) -> str:
    found = choose(nodes, wish, tried)
    assert isinstance(found, Node), found
    return found.name


@requirement("host:nodes-placement")
@given(NAMES, st.text(max_size=20))
def test_a_node_that_goes_moves_only_its_own_keys(names: list[str], key: str) -> None:
    first = order(key, names)
    assert sorted(first) == sorted(names) and order(key, reversed(names)) == first
    for gone in names:
        assert order(key, [name for name in names if name != gone]) == [name for name in first if name != gone]


def test_keys_spread_over_the_nodes() -> None:
    names = ["n1", "n2", "n3"]
    counts = {name: sum(order(f"org_{at}", names)[0] == name for at in range(300)) for name in names}
    assert min(counts.values()) > 60, counts


@given(NAMES, st.text(max_size=20), st.data())
def test_the_least_busy_node_serves_a_call_of_its_own(names: list[str], key: str, data: st.DataObject) -> None:
    loads = {name: data.draw(st.integers(0, 8)) for name in names}
    nodes = [node(name, calls, places=8) for name, calls in loads.items()]
    assert loads[chosen(nodes, Wish(key, shared=False))] == min(loads.values())


def test_places_count_not_calls() -> None:
    assert chosen([node("n1", 3, places=4), node("n2", 5, places=100)], ALONE) == "n2"


def test_a_shared_instance_stays_until_its_node_is_full() -> None:
    names = ["n1", "n2", "n3"]
    first, second, third = order(SHARED.key, names)
    assert chosen([node(name) for name in names], SHARED) == first
    assert chosen([node(first, 8, places=10), node(second), node(third)], SHARED) == first
    assert chosen([node(first, 9, places=10), node(second), node(third)], SHARED) == second
    assert chosen([node(name, 10, places=10) for name in names], SHARED) == first


def test_a_node_that_was_tried_is_left_out() -> None:
    names = ["n1", "n2"]
    first, second = order(SHARED.key, names)
    assert chosen([node(name) for name in names], SHARED, first) == second


@pytest.mark.parametrize(
    ("fields", "wish", "right"),
    [
        ({}, SHARED, True),
        ({"sandbox": False}, SHARED, False),
        ({"sandbox": False}, Wish("k", shared=True, confined=False), True),
        ({"labels": {"zone": "a"}}, Wish("k", shared=True, labels={"zone": "a"}), True),
        ({"labels": {"zone": "b"}}, Wish("k", shared=True, labels={"zone": "a"}), False),
        ({"labels": {}}, Wish("k", shared=True, labels={"zone": "a"}), False),
    ],
)
def test_a_node_must_have_the_sandbox_and_the_labels(fields: dict[str, Any], wish: Wish, right: bool) -> None:
    assert fits(node("n1", **fields), wish) is right


@pytest.mark.parametrize(
    ("nodes", "wish", "tried", "hint"),
    [
        ([], SHARED, (), "start a node"),
        ([node("n1", sandbox=False)], SHARED, (), "no node has a sandbox"),
        ([node("n1")], Wish("k", shared=True, labels={"zone": "b"}), (), "no node has zone = b and a sandbox"),
        ([node("n1")], SHARED, ("n1",), "all nodes that fit have refused it"),
    ],
)
def test_without_a_candidate_the_failure_names_what_is_missing(
    nodes: list[Node], wish: Wish, tried: tuple[str, ...], hint: str
) -> None:
    failure = choose(nodes, wish, tried)
    assert isinstance(failure, Failure)
    assert failure.code == Code.UNAVAILABLE and failure.retryable and failure.retry_after_ms
    assert hint in failure.detail["hint"]


def test_the_holder_of_a_lease_serves_its_calls() -> None:
    wish = Wish("p", True, lease="plugin/p")
    free, old, new = node("n1"), node("n2", held={"plugin/p": 2}), node("n3", held={"plugin/p": 3}, busy=255)
    assert chosen([free, old, new], wish) == "n3", "the later epoch, whatever its load"
    assert chosen([free, old], wish) == "n2"
    assert chosen([free, node("n4", held={"plugin/q": 9})], wish) == chosen([node("n1"), node("n4")], wish)
    assert holder_of("", [new]) is None and holder_of("plugin/p", [new, old]) is new
