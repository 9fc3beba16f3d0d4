"""The files beside the scenarios are sound, and a dialect knows its hosts."""

from __future__ import annotations

import pytest

from plugbay.conformance.dialects import Reaction, dialect, shared
from plugbay.conformance.matchers import match, pattern_problems
from plugbay.conformance.scenario import GENERATORS, NAMES, load_all
from plugbay.conformance.template import template_problems
from plugbay.contracts.kaged.messages import API_VERSION, MAX_READ
from plugbay.contracts.nexo.messages import NEXO_VERSION
from tests.support.requirements import requirement

HOSTS = ("answering", "refuses_memory", "refuses_completion", "owes_memory", "owes_completion")


def test_a_contract_without_scenarios_has_no_dialect() -> None:
    assert dialect("other") is None


def test_rune_has_no_host_that_stands_by() -> None:
    rune = dialect("rune")
    assert rune is not None
    assert rune.reactions(None) == ()


def test_the_usual_host_of_nexo_is_the_one_that_answers() -> None:
    nexo = dialect("nexo")
    assert nexo is not None
    assert nexo.protocol == NEXO_VERSION
    assert tuple(nexo.hosts) == HOSTS
    assert nexo.reactions(None) == nexo.hosts["answering"]
    assert nexo.reactions("owes_memory") == nexo.hosts["owes_memory"]
    assert nexo.reactions("") == ()


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_is_made_of_patterns_and_templates_that_mean_something(name: str) -> None:
    for rule in shared("nexo", "hosts.json")[name]:
        assert pattern_problems(rule["when"], NAMES) == []
        assert template_problems(rule["says"], {"asked"}, ()) == []


def test_questions_are_templates_for_kinds_that_a_scenario_can_be_repeated_for() -> None:
    questions = shared("nexo", "questions.json")
    assert set(questions) == {"tool", "topic", "hook", "channel", "llm_provider", "vector_backend"}
    assert [kind for kind, messages in questions.items() if template_problems(messages, NAMES, ())] == []
    assert [kind for kind, messages in questions.items() if messages[-1]["id"] != 100] == []


def test_every_host_that_a_scenario_names_exists() -> None:
    assert {scenario.host or "answering" for scenario in load_all("nexo")} == {*HOSTS}


@requirement("nexo:kit-host-stands-by")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    "line",
    [
        {"id": 1, "method": "memory.recall", "params": {}},
        {"id": "x", "method": "llm.complete", "params": {"stream": True}},
        {"id": 1, "method": "llm.complete", "params": {}},
        {"id": 1, "method": "tool.dispatch"},
        {"method": "broker.publish", "params": {}},
        {"id": 1, "method": "broker.publish", "params": {}},
        {"id": None, "error": {"code": -32700, "message": "parse error"}},
    ],
)
def test_every_host_has_something_to_say_or_not_to_say_to_what_a_plugin_may_do_on_its_own(
    host: str, line: dict[str, object]
) -> None:
    assert first_reaction(host, line) is not None


@pytest.mark.parametrize("line", [{"id": 1, "result": {}}, {"method": "llm.chat.delta", "params": {}}, [], None])
def test_an_answer_of_the_plugin_is_left_to_the_scenario(line: object) -> None:
    assert first_reaction("answering", line) is None


def first_reaction(host: str, line: object) -> Reaction | None:
    nexo = dialect("nexo")
    assert nexo is not None
    return next((reaction for reaction in nexo.reactions(host) if not match(reaction.when, line)), None)


# kaged

KAGED_HOSTS = ("answering", "refusing", "owing")


def test_the_usual_host_of_kaged_is_the_one_that_answers() -> None:
    kaged = dialect("kaged")
    assert kaged is not None
    assert (kaged.protocol, kaged.max_line) == (API_VERSION, MAX_READ)
    assert tuple(kaged.hosts) == KAGED_HOSTS
    assert kaged.reactions(None) == kaged.hosts["answering"]
    assert {scenario.host or "answering" for scenario in load_all("kaged")} == {*KAGED_HOSTS}


@pytest.mark.parametrize("name", KAGED_HOSTS)
def test_a_host_of_kaged_is_made_of_patterns_and_templates_that_mean_something(name: str) -> None:
    for rule in shared("kaged", "hosts.json")[name]:
        assert pattern_problems(rule["when"], NAMES) == []
        assert template_problems(rule["says"], {"asked", "asked_with"}, GENERATORS) == []


def test_questions_of_kaged_are_templates_that_ask_for_an_answer() -> None:
    questions = shared("kaged", "questions.json")
    assert set(questions) == {"tool", "method", "hook"}
    assert [kind for kind, messages in questions.items() if template_problems(messages, NAMES, GENERATORS)] == []
    assert [kind for kind, messages in questions.items() if messages[-1]["id"] != 100] == []


@requirement("kaged:kit-host-stands-by")
@pytest.mark.parametrize(
    ("host", "line", "says"),
    [
        ("answering", {"id": 1, "method": "kaged.storage.get", "params": {"key": "k"}}, "result"),
        ("answering", {"id": 1, "method": "kaged.storage.get", "params": {"key": ""}}, -32602),
        ("answering", {"id": 1, "method": "kaged.storage.set", "params": {"key": "k"}}, -32602),
        ("answering", {"id": 1, "method": "kaged.storage.list", "params": {"limit": 0}}, -32602),
        ("answering", {"id": "x", "method": "kaged.storage.list", "params": {}}, "result"),
        ("answering", {"id": None, "method": "kaged.storage.drop"}, -32601),
        ("answering", {"method": "changed"}, None),
        ("refusing", {"id": 1, "method": "kaged.storage.get", "params": {"key": "k"}}, -32601),
        ("refusing", {"id": 1, "method": "kaged.storage.set", "params": {"key": "k", "value": 1}}, -32000),
        ("owing", {"id": 1, "method": "kaged.storage.get", "params": {"key": "k"}}, None),
        ("owing", {"id": 1, "method": "tool.call"}, -32601),
    ],
)
def test_every_host_of_kaged_knows_what_to_say(host: str, line: dict[str, object], says: object) -> None:
    kaged = dialect("kaged")
    assert kaged is not None
    reaction = next(each for each in kaged.reactions(host) if not match(each.when, line))
    (answer,) = reaction.says or ({},)
    assert answer.get("error", {}).get("code", "result" if answer else None) == says


def test_an_error_about_nothing_is_no_aside_of_kaged() -> None:
    kaged = dialect("kaged")
    assert kaged is not None
    line = {"id": 0, "error": {"code": -32700, "message": "no"}}
    assert [each for each in kaged.reactions(None) if not match(each.when, line)] == []
