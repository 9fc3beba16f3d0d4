"""Scripts of fake plugins, and their JSON."""

from __future__ import annotations

import json

import pytest

from plugbay.testing import answers, fails, faults, in_turn
from plugbay.testing.script import Script, Step, make_script


def test_a_value_is_answered_and_the_words_say_the_rest() -> None:
    script = make_script(
        "p", "1.0.0", {"a": [1], "b": answers(2, after=0.5), "c": fails("no", code="x"), "d": faults.slow(0.2)}
    )
    assert script.tools == {
        "a": (Step([1]),),
        "b": (Step(2, after=0.5),),
        "c": (Step(error="no", code="x"),),
        "d": (Step({"fault": "slow"}, after=0.2, fault="slow"),),
    }


def test_things_are_done_in_turn() -> None:
    script = make_script("p", "1.0.0", {"a": in_turn(1, fails("no"), faults.not_json)})
    assert [step.fault for step in script.tools["a"]] == [None, None, "not_json"]
    with pytest.raises(ValueError, match="needs at least one answer"):
        in_turn()
    with pytest.raises(TypeError, match="cannot contain in_turn"):
        in_turn(in_turn(1))


def test_a_fault_is_used_where_it_happens() -> None:
    with pytest.raises(ValueError, match=r"fault=faults\.never_greets"):
        make_script("p", "1.0.0", {"a": faults.never_greets})
    with pytest.raises(ValueError, match=r"\{'tool': faults\.not_json\}"):
        make_script("p", "1.0.0", {}, faults.not_json)
    assert make_script("p", "1.0.0", {}, faults.slow_start(3)).seconds == 3


def test_what_is_written_is_what_is_read() -> None:
    tools = {"a": in_turn(1, None, fails("no")), "b": faults.slow(0.2)}
    script = make_script("p", "1.0.0", tools, faults.never_leaves)
    assert Script.from_json(json.loads(json.dumps(script.to_json()))) == script
