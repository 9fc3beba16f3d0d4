"""Every kind of step can be written, and says what it sends and what it expects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.engine.scenario import (
    FOLDER,
    STEPS,
    Expect,
    Fixture,
    ScenarioInvalid,
    Send,
    Step,
    find_shutdown_step,
    get_verb,
    list_templates,
    load,
    load_all,
    parse,
    patterns_of,
)

EVERY_STEP: list[dict[str, Any]] = [
    {"send": {"a": "$tool"}, "ending": "\r\n", "escape": "ascii"},
    {"send_raw": "text"},
    {"send_chunked": {"message": {}, "bytes": 1, "pause": 0.001}},
    {"send_all": [{}, {"a": 1}]},
    {"expect": "$any", "within": 0.5, "remember": {"asked": "id"}},
    {"find": {"id": 1}, "until": {"id": 2}, "within": 1, "or_skip": "it asks nothing"},
    {"every": {"method": "x"}, "must": {"params": "$any_object"}, "until": {"id": 1}, "within": 1},
    {"tour": ["$tour"], "those": {"method": "x"}, "must": {"a": 1}, "together": "$nonempty", "within": 1},
    {"settle": {"id": 1, "a": "$tool"}, "of": "result", "frames": 20, "alike": 3, "within": 1},
    {"last": {"id": 1}},
    {"skip_unless": {"status": "ok"}, "because": "it must be ok"},
    {"at_most": 3, "lines": {"method": "x"}, "within": 1},
    {"expect_silence": 0.2},
    {"expect_stderr": {"contains": "max", "within": 1}},
    {"expect_stderr_without": "secret"},
    {"expect_running": 0.2},
    {"close_stdin": True},
    {"terminate": True},
    {"restart": True},
    {"expect_exit": {"code": 0, "within": "$shutdown_timeout"}},
    {"expect_no_more_output": True},
    {"expect_no_orphans": {"within": 1}},
]


def steps_of(steps: list[dict[str, Any]]) -> tuple[Step, ...]:
    return parse(json.dumps({"id": "rune.a.test", "title": "t", "clause": "c", "section": "s", "steps": steps})).steps


def test_every_kind_of_step_can_be_written() -> None:
    assert [get_verb(step) for step in steps_of(EVERY_STEP)] == list(STEPS)


@pytest.mark.parametrize(
    ("verb", "templates"),
    [
        ("send", [{"a": "$tool"}]),
        ("send_raw", ["text"]),
        ("send_chunked", [{}]),
        ("send_all", [[{}, {"a": 1}]]),
        ("tour", [["$tour"]]),
        ("settle", [{"id": 1, "a": "$tool"}]),
        ("expect", []),
        ("close_stdin", []),
    ],
)
def test_a_step_names_what_it_sends(verb: str, templates: list[Any]) -> None:
    (step,) = [step for step in steps_of(EVERY_STEP) if get_verb(step) == verb]
    assert list_templates(step) == templates


@pytest.mark.parametrize(
    ("verb", "patterns"),
    [
        ("expect", ["$any"]),
        ("find", [{"id": 1}, {"id": 2}]),
        ("every", [{"method": "x"}, {"params": "$any_object"}, {"id": 1}]),
        ("tour", [{"method": "x"}, {"a": 1}, "$nonempty"]),
        ("last", [{"id": 1}]),
        ("skip_unless", [{"status": "ok"}]),
        ("at_most", [{"method": "x"}]),
        ("send", []),
        ("expect_silence", []),
    ],
)
def test_a_step_names_what_it_expects(verb: str, patterns: list[Any]) -> None:
    (step,) = [step for step in steps_of(EVERY_STEP) if get_verb(step) == verb]
    assert patterns_of(step) == patterns


def test_the_header_of_a_frame_may_have_holes() -> None:
    (step,) = steps_of([{"send": {}, "header": "$plugin_id"}])
    assert list_templates(step) == [{}, "$plugin_id"]


def test_the_last_words_before_a_look_at_what_is_left_are_known() -> None:
    send, good_bye, close, look = {"send": {"a": 1}}, {"send": {"b": 1}}, {"close_stdin": True}, {"within": 1}
    steps = steps_of([send, {"expect": {}, "within": 1}, good_bye, close, {"expect_no_orphans": look}])
    assert find_shutdown_step(steps) is steps[2]
    assert find_shutdown_step(steps[:-1]) is None
    assert find_shutdown_step(steps[-1:]) is None


GOOD: dict[str, Any] = {
    "id": "rune.some.rule",
    "title": "does something",
    "clause": "the contract says so",
    "section": "1. Transport",
    "steps": [{"send": {"type": "handshake"}}, {"expect": {"type": "$nonblank"}, "within": 2}],
}


def with_step(step: Any) -> str:
    return json.dumps({**GOOD, "steps": [step]})


def problems_of(text: str) -> list[str]:
    with pytest.raises(ScenarioInvalid) as caught:
        parse(text, "file.json")
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


def test_a_scenario_is_read_with_its_steps_in_order() -> None:
    scenario = parse(json.dumps({**GOOD, "after": ["rune.other.rule"], "cases": [{"x": 1}, {"x": 2}]}))
    assert (scenario.id, scenario.title, scenario.clause) == (GOOD["id"], GOOD["title"], GOOD["clause"])
    assert scenario.section == "1. Transport"
    assert scenario.steps == (
        Send(send={"type": "handshake"}),
        Expect(expect={"type": "$nonblank"}, within=2),
    )
    assert scenario.after == ("rune.other.rule",)
    assert scenario.cases == ({"x": 1}, {"x": 2})
    assert scenario.environment == "usual"


def test_what_concerns_the_whole_scenario_is_read() -> None:
    more = {
        "host": "refusing",
        "for_each": "question",
        "skip_when": "all",
        "learn": {"tool": "result.tools"},
        "fixture": {"manifest": "x = 1", "capabilities": ["llm"]},
    }
    scenario = parse(json.dumps({**GOOD, **more}))
    assert (scenario.host, scenario.for_each, scenario.skip_when) == ("refusing", "question", "all")
    assert scenario.learn == {"tool": "result.tools"}
    assert scenario.fixture == Fixture(manifest="x = 1", config={}, capabilities=["llm"])


def test_a_scenario_says_how_a_process_is_opened_that_has_several_turns() -> None:
    assert parse(json.dumps(GOOD)).opening is None
    assert parse(json.dumps({**GOOD, "opening": []})).opening == ()
    opening = [{"send": {"id": 1}}, {"expect": {"id": 1}, "within": 2}]
    assert parse(json.dumps({**GOOD, "opening": opening})).opening == (
        Send(send={"id": 1}),
        Expect(expect={"id": 1}, within=2),
    )


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({"sned": 1}, f"opening[0]: no verb of a step; there is {', '.join(STEPS)}; did you mean 'send'?"),
        ({"send": "$context"}, "opening[0]: '$context' is not a named value"),
        ({"close_stdin": True}, "opening: an opening consists of `send` and `expect`, and nothing of it is remembered"),
        (
            {"expect": {}, "within": 1, "remember": {"a": "b"}},
            "opening: an opening consists of `send` and `expect`, and nothing of it is remembered",
        ),
    ],
)
def test_an_opening_is_the_same_for_every_turn(step: Any, problem: str) -> None:
    assert problems_of(json.dumps({**GOOD, "cases": [{"context": 1}], "opening": [step]})) == [problem]


@pytest.mark.parametrize("contract", ["rune", "nexo", "kaged", "ainb", "vai", "mcp"])
def test_no_request_of_a_turn_has_an_id_that_the_next_turn_would_have_too(contract: str) -> None:
    asked = [
        (scenario.id, id)
        for scenario in load_all(contract)
        if scenario.opening is not None
        for step in scenario.steps
        for template in list_templates(step)
        for id in ids_in(template)
    ]
    assert bool(asked) is (contract != "rune"), "a plugin of rune has a process for each call"
    assert [each for each in asked if not each[1].startswith("$")] == []


REMEMBERED = {
    "ainb.chunked_publish_ordering.orphans": "a process keeps the chunks that it could not put together",
    "kaged.storage.refused": "its opening is different in each case",
    "nexo.channel.start": "a channel that was started stays started",
    "nexo.channel.stop": "a channel that was stopped stays stopped",
    "nexo.channel.stop_unstarted": "no channel was started yet",
    "nexo.channel.send": "a channel that was started stays started",
    "nexo.vector.upsert": "what was stored stays",
    "nexo.vector.search": "what was stored stays",
    "nexo.vector.delete": "what was deleted stays so",
    "vai.compactors.artifact": "a file is left in the folder of the process",
    "vai.harnesses.resume": "the process is started again in its course",
    "vai.leaving.at_work": "the process leaves",
}
"""Rules for each of something, and why each of them has a process of its own."""


def test_what_is_asked_of_each_is_asked_in_turns_unless_a_process_would_remember_it() -> None:
    resident = [scenario for name in ("nexo", "kaged", "ainb", "vai", "mcp") for scenario in load_all(name)]
    repeated = [scenario for scenario in resident if scenario.for_each is not None]
    assert {scenario.id for scenario in repeated if scenario.opening is None} == set(REMEMBERED)
    assert len(repeated) > 3 * len(REMEMBERED)


def ids_in(template: Any) -> Iterator[str]:
    """The ids of requests and what refers to them: numbers, names, and texts as they are in vai."""
    if isinstance(template, list):
        template = dict(enumerate(template))
    for key, value in template.items() if isinstance(template, dict) else ():
        is_id = isinstance(value, int) or str(value).startswith(("$", "req_"))
        if is_id and key in ("id", "requestId", "request_id"):
            yield str(value)
        elif key != "_context":  # kaged says there which of its own requests a call is for
            yield from ids_in(value)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("close_stdin", "steps[0]: a step is an object"),
        ({}, f"steps[0]: no verb of a step; there is {', '.join(STEPS)}"),
        ({"sned": {}}, f"steps[0]: no verb of a step; there is {', '.join(STEPS)}; did you mean 'send'?"),
        ({"send": {}, "expect": {}}, "steps[0]: one step cannot do both 'send' and 'expect'"),
        ({"expect": {}}, "steps[0].within: required, but missing"),
        ({"expect": {}, "within": 0}, "steps[0].within: input should be greater than 0, got 0"),
        ({"expect": {}, "within": 99}, "steps[0].within: input should be less than or equal to 30, got 99"),
        ({"expect": {}, "wihtin": 1, "within": 1}, "steps[0].wihtin: unknown key; did you mean 'within'?"),
        ({"expect": {"a": "$nope"}, "within": 1}, "steps[0]: '$nope' is neither a matcher nor a named value"),
        ({"skip_unless": {"$no": 1}, "because": "x"}, "steps[0]: '$no' is not an operator"),
        ({"send": {"a": "$nope"}}, "steps[0]: '$nope' is not a named value"),
        ({"send_chunked": {"message": "$nope", "bytes": 1}}, "steps[0]: '$nope' is not a named value"),
        ({"close_stdin": False}, "steps[0].close_stdin: input should be True, got False"),
        ({"send_raw": 7}, "steps[0].send_raw: input should be a valid string, got 7"),
        ({"send_raw": "$nope"}, "steps[0]: '$nope' is not a named value"),
        ({"send_all": ["$nope"]}, "steps[0]: '$nope' is not a named value"),
        (
            {"every": "$nope", "must": 1, "until": 1, "within": 1},
            "steps[0]: '$nope' is neither a matcher nor a named value",
        ),
        ({"find": {}, "until": "$nope", "within": 1}, "steps[0]: '$nope' is neither a matcher nor a named value"),
        ({"last": "$nope"}, "steps[0]: '$nope' is neither a matcher nor a named value"),
    ],
)
def test_a_step_that_cannot_be_carried_out_is_refused(step: Any, problem: str) -> None:
    assert problems_of(with_step(step)) == [problem]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": "Rune"}, "id: string should match pattern"),
        ({"title": ""}, "title: string should have at least 1 character"),
        ({"steps": []}, "steps: list should have at least 1 item"),
        ({"needs": ["money"]}, "needs[0]: input should be"),
        ({"environment": "mars"}, "environment: input should be 'usual' or 'manifest'"),
        ({"cases": []}, "cases: list should have at least 1 item"),
        ({"for_each": "planet"}, "for_each: input should be"),
        ({"skip_when": "never"}, "skip_when: input should be 'any' or 'all'"),
        ({"fixture": {"config": {}}}, "fixture.manifest: required, but missing"),
        ({"tilte": "x"}, "tilte: unknown key; did you mean 'title'?"),
    ],
)
def test_a_field_that_means_nothing_is_refused(change: dict[str, Any], problem: str) -> None:
    (found,) = problems_of(json.dumps({**GOOD, **change}))
    assert found.startswith(problem)


def test_the_names_of_the_cases_may_be_used_in_the_steps() -> None:
    steps = [{"send": {"context": "$context"}}, {"expect": {"a": "$context"}, "within": 1}]
    scenario = parse(json.dumps({**GOOD, "cases": [{"context": {}}], "steps": steps}))
    assert scenario.cases == ({"context": {}},)
    assert len(problems_of(json.dumps({**GOOD, "steps": steps}))) == 2


def test_all_problems_are_reported_at_once_with_their_lines() -> None:
    text = """{
      "id": "rune.some.rule",
      "title": 7,
      "clause": "x",
      "section": "y",
      "steps": [
        {"send": {"a": "$nope"}},
        {"expect": {},
         "within": -1}
      ]
    }"""
    with pytest.raises(ScenarioInvalid) as caught:
        parse(text, "file.json")
    assert [(problem.path, problem.line) for problem in caught.value.problems] == [
        ("title", 3),
        ("steps[0]", 7),
        ("steps[1].within", 9),
    ]
    assert str(caught.value).startswith("file.json cannot be used:\n  line 3: title: ")


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_a_file_that_is_no_object_is_refused(text: str) -> None:
    assert problems_of(text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioInvalid, match="cannot be read"):
        load(tmp_path / "missing.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    with pytest.raises(ScenarioInvalid, match="cannot be read"):
        load(tmp_path / "bytes.json")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": "rune.first.rule"}, "'rune.first.rule' is the id of an earlier file too"),
        ({"id": "nexo.some.rule"}, "must begin with 'rune.'"),
        ({"after": ["rune.later.rule"]}, "'rune.later.rule' is not an axis of an earlier file"),
    ],
)
def test_the_files_of_a_contract_must_fit_together(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    folder = tmp_path / "rune"
    folder.mkdir()
    (folder / "1.json").write_text(json.dumps({**GOOD, "id": "rune.first.rule"}))
    (folder / "2.json").write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(ScenarioInvalid, match=r"2\.json") as caught:
        load_all("rune", tmp_path)
    assert [found.message for found in caught.value.problems] == [problem]


def test_what_a_step_remembers_may_be_used_in_the_steps() -> None:
    steps = [
        {"expect": {"id": "$any"}, "within": 1, "remember": {"asked": "id"}},
        {"send": {"id": "$asked"}},
    ]
    assert len(parse(json.dumps({**GOOD, "steps": steps})).steps) == 2
    assert len(problems_of(json.dumps({**GOOD, "steps": steps[1:]}))) == 1


SHIPPED = {"rune": 25, "nexo": 60, "nexo/fixture": 19, "kaged": 59, "ainb": 49, "vai": 45}


@pytest.mark.parametrize("suite", sorted(SHIPPED))
def test_the_shipped_scenarios_are_sound_and_every_file_is_used(suite: str) -> None:
    scenarios = load_all(suite)
    assert len(scenarios) == len([path for path in (FOLDER / suite).iterdir() if path.is_file()]) >= SHIPPED[suite]
    assert all(scenario.clause and scenario.title for scenario in scenarios)


def test_the_shipped_scenarios_use_every_kind_of_step() -> None:
    used = {get_verb(step) for suite in SHIPPED for scenario in load_all(suite) for step in scenario.steps}
    assert used == set(STEPS)


def test_a_scenario_for_fixtures_says_how_the_fixture_is_set_up_and_no_other_does() -> None:
    assert all(scenario.fixture is not None for scenario in load_all("nexo/fixture"))
    assert all(scenario.fixture is None for suite in ("rune", "nexo", "kaged", "ainb") for scenario in load_all(suite))
