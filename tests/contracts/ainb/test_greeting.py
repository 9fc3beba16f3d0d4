"""What a host says in `plugin/init`, what it makes of the answer, and what a plugin makes of the host."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.ainb.greeting import heard, judge, opening, reply
from plugbay.contracts.ainb.messages import Identity
from plugbay.model.errors import Code, Failure
from tests.support.requirements import requirement


@requirement("ainb:wire-init")
def test_a_host_says_where_the_manifest_is_what_is_granted_and_which_abi_it_speaks() -> None:
    said = opening("/p/manifest.toml", ("network=a", "event_bus"), {"k": 1}, 9)
    assert said == {
        "manifest_path": "/p/manifest.toml",
        "granted_capabilities": ["event_bus", "network"],
        "abi_version": 2,
        "config": {"k": 1},
        "host": {"kind": "plugbay", "pid": 9},
    }
    assert "host" not in opening("", (), None, None)


PLUGIN = {"name": "p", "version": "1.0.0", "abi_version": 2}

ACCEPTED: list[tuple[Any, tuple[str, str], list[str]]] = [
    ({"name": "p", "version": "1.0.0"}, ("p", "1.0.0"), []),
    ({"manifest": {"plugin": PLUGIN}}, ("p", "1.0.0"), []),
    ({"manifest": {"plugin": PLUGIN}, "abi_version": 2}, ("p", "1.0.0"), []),
    ({"manifest": PLUGIN}, ("p", "1.0.0"), []),
    ({**PLUGIN, "manifest": {"plugin": PLUGIN}}, ("p", "1.0.0"), []),
    ({"name": "p"}, ("p", "1.0.0"), []),
    ({"abi_version": 2}, ("p", "1.0.0"), []),
    ({"name": "q", "version": "1.0.0"}, ("q", "1.0.0"), ["says it is called 'q'; its manifest says 'p'"]),
    (
        {"manifest": {"plugin": {**PLUGIN, "version": "2.0.0"}}},
        ("p", "2.0.0"),
        ["says it is version '2.0.0'; its manifest says '1.0.0'"],
    ),
    ({"name": 5, "version": "1.0.0"}, ("p", "1.0.0"), ["says it is called 5; its manifest says 'p'"]),
    ({}, ("p", "1.0.0"), ["answered plugin/init without saying who it is"]),
    ({"manifest": "text"}, ("p", "1.0.0"), ["answered plugin/init without saying who it is"]),
    ({"manifest": {"plugin": []}}, ("p", "1.0.0"), ["answered plugin/init without saying who it is"]),
    (None, ("p", "1.0.0"), ["answered plugin/init without saying who it is"]),
    ([1], ("p", "1.0.0"), ["answered plugin/init without saying who it is"]),
]


@requirement("ainb:wire-init-any-shape")
@pytest.mark.parametrize(("result", "who", "warnings"), ACCEPTED, ids=str)
def test_any_shape_is_accepted_and_what_does_not_agree_is_warned_about(
    result: Any, who: tuple[str, str], warnings: list[str]
) -> None:
    name, version = who
    assert judge(result, "p", "1.0.0") == {"name": name, "version": version, "abi_version": 2, "warnings": warnings}


def test_what_the_host_does_not_know_is_compared_with_nothing() -> None:
    hello = judge({"name": "q", "version": "9.9.9"}, "", "")
    assert isinstance(hello, dict)
    assert (hello["name"], hello["version"], hello["warnings"]) == ("q", "9.9.9", [])


@requirement("ainb:wire-abi")
@pytest.mark.parametrize("abi", [1, 3, "2", 2.0, True, [2]])
@pytest.mark.parametrize("nested", [False, True])
def test_another_abi_is_refused_wherever_it_is_said(abi: Any, nested: bool) -> None:
    said = {"abi_version": abi}
    failure = judge({"name": "p", "manifest": {"plugin": said}} if nested else said, "p", "1.0.0")
    assert isinstance(failure, Failure)
    assert failure.code == Code.PROTOCOL_VERSION_MISMATCH
    assert failure.detail["expected"] == 2


def test_a_warning_quotes_only_the_beginning_of_a_huge_name() -> None:
    hello = judge({"name": "x" * 100_000}, "p", "")
    assert isinstance(hello, dict)
    (warning,) = hello["warnings"]
    assert len(warning) < 200


@requirement("ainb:wire-init-reply")
def test_a_plugin_answers_in_both_shapes_at_once() -> None:
    identity = Identity("p", "1.0.0", {"plugin": PLUGIN})
    answer = reply(identity)
    assert answer == {"name": "p", "version": "1.0.0", "abi_version": 2, "manifest": {"plugin": PLUGIN}}
    hello = judge(answer, "p", "1.0.0")
    assert isinstance(hello, dict)
    assert hello["warnings"] == []


@pytest.mark.parametrize(
    ("params", "hello"),
    [
        ({}, ((), None, "")),
        (
            {"granted_capabilities": ["a", 5, "b"], "config": [1], "manifest_path": "/x", "abi_version": 2},
            (("a", "b"), [1], "/x"),
        ),
        ({"granted_capabilities": "a", "manifest_path": 5}, ((), None, "")),
    ],
)
def test_a_plugin_hears_what_the_host_says_and_what_is_missing_is_nothing(params: Any, hello: Any) -> None:
    said = heard(params)
    assert isinstance(said, dict)
    assert (said["granted"], said["config"], said["manifest_path"]) == hello


@requirement("ainb:wire-abi")
@pytest.mark.parametrize(
    ("params", "code"),
    [({"abi_version": 1}, -32003), ({"abi_version": None}, -32003), (None, -32602), ([], -32602)],
    ids=str,
)
def test_a_plugin_refuses_a_host_it_cannot_talk_to(params: Any, code: int) -> None:
    refusal = heard(params)
    assert isinstance(refusal, tuple)
    assert refusal[0] == code
