"""The files beside the scenarios are sound, and a dialect knows its hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.conformance.engine.dialects import Dialect, Reaction, load_dialect, shared
from plugbay.conformance.engine.patterns import match, pattern_problems
from plugbay.conformance.engine.plugin_runner import axis_of
from plugbay.conformance.engine.scenario import GENERATORS, NAMES, load_all
from plugbay.conformance.engine.template import template_problems
from plugbay.contracts.ainb.messages import ABI_VERSION, MAX_BODY
from plugbay.contracts.frames import Lengths, Lines, OpenLengths
from plugbay.contracts.kaged.messages import API_VERSION, MAX_READ
from plugbay.contracts.nexo.messages import NEXO_VERSION
from plugbay.contracts.vai import messages as vai
from plugbay.model.spec import PluginSpec
from tests.support.requirements import requirement

HOSTS = ("answering", "refuses_memory", "refuses_completion", "owes_memory", "owes_completion", "silent")


def test_a_contract_without_scenarios_has_no_dialect() -> None:
    assert load_dialect("other") is None


def test_a_contract_needs_only_scenarios_to_have_a_dialect(tmp_path: Path) -> None:
    assert load_dialect("rune", tmp_path) is None
    (tmp_path / "rune").mkdir()
    assert load_dialect("rune", tmp_path) == load_dialect("rune")


def test_rune_has_no_host_that_stands_by() -> None:
    rune = load_dialect("rune")
    assert rune is not None
    assert rune.reactions(None) == ()


def test_the_usual_host_of_nexo_is_the_one_that_answers() -> None:
    nexo = load_dialect("nexo")
    assert nexo is not None
    assert nexo.contract.version == NEXO_VERSION
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
    assert [kind for kind, messages in questions.items() if messages[-1]["id"] != "$id"] == []


def test_every_host_that_a_scenario_names_exists() -> None:
    assert {scenario.host or "answering" for scenario in load_all("nexo")} == {*HOSTS}


@requirement("nexo:kit-host-stands-by")
@pytest.mark.parametrize("host", [host for host in HOSTS if host != "silent"])
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
    nexo = load_dialect("nexo")
    assert nexo is not None
    return next((reaction for reaction in nexo.reactions(host) if not match(reaction.when, line)), None)


# kaged

KAGED_HOSTS = ("answering", "refusing", "owing", "silent")


def test_the_usual_host_of_kaged_is_the_one_that_answers() -> None:
    kaged = load_dialect("kaged")
    assert kaged is not None
    assert (kaged.contract.version, kaged.contract.max_plugin_message) == (API_VERSION, MAX_READ)
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
    assert [kind for kind, messages in questions.items() if messages[-1]["id"] != "$id"] == []


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
    kaged = load_dialect("kaged")
    assert kaged is not None
    reaction = next(each for each in kaged.reactions(host) if not match(each.when, line))
    (answer,) = reaction.says or ({},)
    assert answer.get("error", {}).get("code", "result" if answer else None) == says


def test_an_error_about_nothing_is_no_aside_of_kaged() -> None:
    kaged = load_dialect("kaged")
    assert kaged is not None
    line = {"id": 0, "error": {"code": -32700, "message": "no"}}
    assert [each for each in kaged.reactions(None) if not match(each.when, line)] == []


# ainb


def ainb() -> Dialect:
    spoken = load_dialect("ainb")
    assert spoken is not None
    return spoken


def test_the_dialect_of_ainb_has_frames_and_axes() -> None:
    contract = ainb().contract
    assert (contract.version, contract.max_plugin_message) == (ABI_VERSION, MAX_BODY)
    assert isinstance(ainb().framing(), Lengths)
    assert len(ainb().axes) == 14
    assert {axis_of(scenario.id) for scenario in load_all("ainb")} == set(ainb().axes)


def test_the_dialects_of_lines_have_no_axes_beside_their_scenarios() -> None:
    spoken = [load_dialect(name) for name in ("rune", "nexo", "kaged")]
    assert [(type(each.framing()), each.axes) for each in spoken if each is not None] == [(Lines, {})] * 3


def test_every_host_of_ainb_is_made_of_patterns_and_templates_and_used() -> None:
    rules = [rule for rules in shared("ainb", "hosts.json").values() for rule in rules if not isinstance(rule, str)]
    assert [rule for rule in rules if pattern_problems(rule["when"], NAMES)] == []
    assert [rule for rule in rules if template_problems(rule["says"], {"asked"}, ())] == []
    assert {scenario.host or "answering" for scenario in load_all("ainb")} == set(ainb().hosts)


def test_questions_of_ainb_are_templates_that_end_with_something_that_is_answered() -> None:
    questions = shared("ainb", "questions.json")
    assert set(questions) == {"screen", "cli_namespace", "snapshot"}
    assert [kind for kind, messages in questions.items() if template_problems(messages, NAMES, GENERATORS)] == []
    assert [kind for kind, messages in questions.items() if messages[-1]["id"] != "$id"] == []


@requirement("ainb:kit-host-stands-by")
@pytest.mark.parametrize(
    ("host", "line", "says"),
    [
        ("answering", {"id": 1, "method": "host/snapshot/get", "params": {"topic": "t"}}, "result"),
        ("answering", {"id": 1, "method": "host/snapshot/get", "params": {}}, -32602),
        ("answering", {"id": 1, "method": "host/fs/read_dir", "params": {"path": "/a"}}, "result"),
        ("answering", {"id": 1, "method": "host/no_such"}, -32601),
        ("answering", {"id": "x", "method": "host/snapshot/get", "params": {"topic": "t"}}, None),
        ("answering", {"method": "host/log", "params": {}}, None),
        ("answering", {"id": 1, "method": "host/log", "params": {}}, -32601),
        ("bare", {"id": 1, "method": "host/snapshot/get", "params": {"topic": "t"}}, -32601),
        ("denying", {"id": 1, "method": "host/snapshot/subscribe", "params": {"topic": "t"}}, -32001),
        ("denying", {"id": 1, "method": "host/network/fetch", "params": {}}, -32001),
        ("denying", {"method": "host/snapshot/publish", "params": {}}, None),
        ("timing_out", {"id": 1, "method": "host/action/invoke", "params": {}}, -32002),
        ("timing_out", {"id": 1, "method": "host/snapshot/subscribe", "params": {"topic": "t"}}, "result"),
        ("without_files", {"id": 1, "method": "host/fs/read_file", "params": {"path": "/a"}}, -32602),
        ("owing", {"id": 1, "method": "host/snapshot/get", "params": {"topic": "t"}}, None),
    ],
)
def test_every_host_of_ainb_knows_what_to_say(host: str, line: dict[str, object], says: object) -> None:
    reaction = next(each for each in ainb().reactions(host) if not match(each.when, line))
    (answer,) = reaction.says or ({},)
    assert answer.get("error", {}).get("code", "result" if answer else None) == says


# vai


def test_the_dialect_of_vai_has_open_headers_axes_and_texts_for_ids() -> None:
    spoken = load_dialect("vai")
    assert spoken is not None
    assert (spoken.contract.version, spoken.contract.max_plugin_message) == (vai.PROTOCOL, vai.MAX_BODY)
    assert isinstance(spoken.framing(), OpenLengths)
    assert {axis_of(scenario.id) for scenario in load_all("vai")} == set(spoken.axes)
    assert spoken.request_id(100) == "req_100"


def test_the_host_of_vai_listens_to_events_and_says_nothing() -> None:
    spoken = load_dialect("vai")
    assert spoken is not None
    (reaction,) = spoken.reactions(None)
    assert not match(reaction.when, {"type": "event"}) and match(reaction.when, {"type": "response"})
    assert reaction.says == ()


def test_questions_of_vai_are_one_request_for_each_kind() -> None:
    questions = shared("vai", "questions.json")
    ops = {kind: [message["op"] for message in messages] for kind, messages in questions.items()}
    assert ops == {method.kind: [method.name] for method in vai.METHODS}
    assert [kind for kind, messages in questions.items() if template_problems(messages, NAMES, GENERATORS)] == []


def test_what_a_manifest_implies_is_nothing_where_a_contract_has_nothing_to_add(tmp_path: Path) -> None:
    kaged = load_dialect("kaged")
    assert kaged is not None
    assert kaged.facts(PluginSpec("p", "1", "kaged", tmp_path, ("x",))) == {}


# MCP


def mcp() -> Dialect:
    found = load_dialect("mcp")
    assert found is not None
    return found


def test_the_dialect_of_mcp_has_lines_and_axes_and_reads_exports_at_run_time() -> None:
    assert isinstance(mcp().framing(), Lines)
    assert len(mcp().axes) == 16
    assert mcp().contract.runtime_exports is not None


@pytest.mark.parametrize(
    ("host", "line", "says"),
    [
        ("listening", {"method": "notifications/message", "params": {}}, ()),
        ("modern", {"method": "notifications/progress"}, ()),
        ("listening", {"id": 1, "method": "ping"}, ("result",)),
        ("listening", {"id": 1, "method": "roots/list"}, ("error",)),
        ("modern", {"id": 1, "method": "roots/list"}, None),
        ("listening", {"id": 1, "result": {}}, None),
    ],
)
def test_every_host_of_mcp_knows_what_to_say(host: str, line: dict[str, object], says: tuple[str, ...] | None) -> None:
    found = next((each for each in mcp().reactions(host) if not match(each.when, line, {})), None)
    told = None if found is None else tuple(key for said in found.says for key in said if key in ("result", "error"))
    assert told == says


def test_questions_of_mcp_are_one_request_for_each_kind() -> None:
    assert {kind: messages[0]["method"] for kind, messages in mcp().questions.items()} == {
        "tool": "tools/call",
        "resource": "resources/read",
        "prompt": "prompts/get",
    }
