"""What of a plugin can be tried, what it teaches about itself, and what is filled in for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.conformance.engine.dialects import load_dialect
from plugbay.conformance.engine.scenario import IDS, Scenario, parse
from plugbay.conformance.engine.surface import Surface, Target, with_string
from plugbay.model.spec import Export, PluginSpec, Timeouts

EXPORTS = (
    Export("tool", "p_one"),
    Export("tool", "p_two"),
    Export("channel", "pigeon"),
    Export("hook", "before_message"),
)


def surface(*exports: Export, contract: str = "nexo", **spec: Any) -> Surface:
    spoken = load_dialect(contract)
    assert spoken is not None
    return Surface(PluginSpec("p", "1.2.0", contract, Path("/"), ("x",), exports=exports, **spec), spoken)


def scenario(**more: Any) -> Scenario:
    file = {"id": "nexo.a.b", "title": "t", "clause": "c", "section": "s", "steps": [{"expect_silence": 1}], **more}
    return parse(json.dumps(file))


def test_what_the_plugin_says_about_its_exports_replaces_what_the_manifest_says() -> None:
    schema = {"type": "object"}
    entries = [{"name": "p_two", "description": "d", "input_schema": schema}, {"name": "p_drift"}, {"no": "name"}, 7]
    learned = surface(*EXPORTS).learn("tool", entries)
    assert learned.tools_to_call() == [Export("tool", "p_two", "d", schema)]
    assert learned.names("channel") == ["pigeon"]
    assert learned.named(Target())["tools"] == ["p_one", "p_two"], "the names of the manifest stay known"


@pytest.mark.parametrize("entries", [None, {}, "text", []])
def test_a_plugin_that_describes_nothing_offers_nothing(entries: Any) -> None:
    learned = surface(*EXPORTS).learn("tool", entries)
    assert learned.tools_to_call() == []
    assert learned.unmet("tool_to_call") == "the plugin offers no tool"
    assert learned.unmet("tool") == ""


def test_only_topics_without_wildcards_can_be_told() -> None:
    heard = surface(subscribes=("plugin.outbound.a", "plugin.outbound.a.>", "x.*.y"))
    assert heard.names("topic") == ["plugin.outbound.a"]
    assert heard.unmet("topic") == ""


@pytest.mark.parametrize(
    ("need", "reason"),
    [
        ("tool", "the manifest declares no tool"),
        ("channel", "the manifest declares no channel"),
        ("llm_provider", "the manifest declares no LLM provider"),
        ("hook", "the manifest declares no hook"),
        ("vector_backend", "the manifest declares no memory backend"),
        ("topic", "the manifest registers no channel, so no event reaches the plugin"),
        ("question", "the plugin has no export that can be called"),
        ("capabilities", "the manifest requests no capabilities"),
        ("tool_to_call", "the plugin offers no tool"),
        ("no_tool", ""),
        ("method", "the manifest declares no method"),
        ("notification", "the manifest declares no notification"),
        ("compactor", "the plugin is not a compactor"),
        ("pre_compact", "the manifest declares no hook pre_compact"),
    ],
)
def test_a_need_that_is_not_met_has_a_reason(need: str, reason: str) -> None:
    assert surface().unmet(need) == reason


@pytest.mark.parametrize("need", ["tool", "channel", "hook", "question", "tool_to_call", "string_input"])
def test_a_need_that_is_met_has_none(need: str) -> None:
    assert surface(*EXPORTS).unmet(need) == ""


def test_a_plugin_with_tools_is_not_one_without() -> None:
    assert surface(*EXPORTS).unmet("no_tool") == "the manifest declares tools"


def test_a_scenario_that_is_not_repeated_has_one_target() -> None:
    assert surface().targets(scenario()) == [Target()]
    assert surface(*EXPORTS).targets(scenario()) == [Target(tool=EXPORTS[0])]


def test_a_scenario_is_repeated_for_each_of_a_kind() -> None:
    assert [str(target) for target in surface(*EXPORTS).targets(scenario(for_each="tool"))] == [
        "tool p_one",
        "tool p_two",
    ]
    assert [str(target) for target in surface(*EXPORTS).targets(scenario(for_each="hook"))] == ["hook before_message"]


def test_a_question_is_made_for_each_thing_the_plugin_can_be_asked() -> None:
    known = surface(*EXPORTS, subscribes=("plugin.outbound.pigeon",))
    targets = known.targets(scenario(for_each="question"))
    assert [str(target) for target in targets] == [
        "tool p_one",
        "tool p_two",
        "topic plugin.outbound.pigeon",
        "hook before_message",
        "channel pigeon",
    ]
    asked = [known.named(target)["question"][-1]["method"] for target in targets]
    assert asked == ["tool.invoke"] * 2 + ["plugbay.conformance.ping", "hook.on_hook", "channel.send_outbound"]
    assert known.named(targets[1])["question"][0]["params"]["tool_name"] == "p_two"


def test_every_conversation_knows_the_first_of_each_kind() -> None:
    named = surface(*EXPORTS, publishes=("plugin.inbound.pigeon",)).named(Target())
    assert (named["channel"], named["hook"], named["llm_provider"]) == ("pigeon", "before_message", "")
    assert named["namespaces"] == ["p_", "ext_p_"]
    assert named["publishes"] == ["plugin.inbound.pigeon"]
    assert named["question"] == []


def test_a_text_is_put_where_the_tool_takes_one() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "city": {"type": "string"}}, "required": ["n"]}
    assert with_string(Export("tool", "t", "", schema))("Lima") == {"n": 1, "city": "Lima"}


def test_what_a_manifest_of_kaged_says_is_filled_in() -> None:
    exports = (Export("tool", "echo"), Export("method", "p.now"), Export("hook", "pre_compact"))
    known = surface(
        *exports,
        contract="kaged",
        publishes=("plugin.p.changed",),
        capabilities=("kaged:storage:read",),
        timeouts=Timeouts(farewell=3, teardown=1, term=1),
        patience={"RunHook": 7.0},
    )
    named = known.named(Target())
    assert (named["methods"], named["method"]) == (["p.now", "p.echo"], "p.now")
    assert named["notifications"] == ["changed"]
    assert named["storage_methods"] == ["kaged.storage.get", "kaged.storage.list"]
    assert (named["shutdown_timeout"], named["hook_timeout"]) == (5, 7)
    assert [known.unmet(need) for need in ("method", "notification", "pre_compact")] == ["", "", ""]
    asked = [known.named(target)["question"][0] for target in known.targets(scenario(for_each="question"))]
    assert [message["method"] for message in asked] == ["p.echo", "p.now", "kaged.hook.pre_compact"]
    assert asked[0]["params"]["_context"]["agent_path"] == "primary"


AINB_EXPORTS = (Export("screen", "main"), Export("screen", "more"), Export("cli_namespace", "p"))


@pytest.mark.parametrize(
    ("need", "reason"),
    [
        ("screen", "the manifest provides no screen"),
        ("cli_namespace", "the manifest provides no namespace of command lines"),
        ("snapshot", "the manifest subscribes to no snapshot"),
        ("publication", "the manifest provides no snapshot"),
        ("read_path", "the manifest asks to read no files"),
        ("action", "the manifest provides no action: no namespace of command lines, no command"),
        ("pub_sub", "the manifest asks for no event_bus, provides no snapshot and subscribes to none"),
    ],
)
def test_a_need_of_ainb_that_is_not_met_has_a_reason(need: str, reason: str) -> None:
    assert surface(contract="ainb").unmet(need) == reason


def test_a_need_of_ainb_is_met_by_the_manifest() -> None:
    known = replace(
        surface(*AINB_EXPORTS, contract="ainb", snapshots=("t",)),
        facts={"publications": ["u"], "bus": ["*"], "read_roots": ["/home"]},
    )
    needs = ("screen", "cli_namespace", "snapshot", "publication", "read_path", "action", "pub_sub")
    assert [known.unmet(need) for need in needs] == [""] * len(needs)
    assert surface(contract="ainb", commands=("refresh",)).unmet("action") == ""
    assert surface(contract="ainb", snapshots=("t",)).unmet("pub_sub") == ""


def test_a_tour_asks_for_everything_under_numbers_of_its_own() -> None:
    tour = surface(*AINB_EXPORTS, contract="ainb", snapshots=("t",)).tour()
    assert [message["method"].removeprefix("plugin/") for message in tour] == [
        "render",
        "render",
        "cli_dispatch",
        "handle_event",
        "plugbay_conformance_ping",
    ]
    assert [message.get("id") for message in tour] == [1_000, 1_001, 1_002, None, 1_004]
    assert [message["params"].get("screen_id") for message in tour[:2]] == ["main", "more"]


@pytest.mark.parametrize(("contract", "exports"), [("nexo", EXPORTS), ("ainb", AINB_EXPORTS), ("vai", ())])
def test_no_id_comes_twice_in_the_turns_of_a_process(contract: str, exports: tuple[Export, ...]) -> None:
    known = surface(*exports, contract=contract)

    def ids(turn: int) -> set[Any]:
        asked = replace(known, turn=turn)
        named = asked.named(Target())
        messages = [*asked.tour(), *named["several"]]
        return {named[name] for name in IDS} | {message["id"] for message in messages if "id" in message}

    turns = [id for turn in range(3) for id in ids(turn)]
    assert len(turns) == len(set(turns)) > 3 * len(IDS)


def test_what_is_asked_about_a_target_has_the_first_id_of_its_turn() -> None:
    known = surface(*EXPORTS)
    target = known.targets(scenario(for_each="tool"))[1]
    for turn in (0, 1):
        named = replace(known, turn=turn).named(target)
        assert named["request"]["id"] == named["question"][-1]["id"] == named["id"]


def test_what_the_manifest_implies_is_filled_in() -> None:
    assert replace(surface(contract="ainb"), facts={"bus": ["a"]}).named(Target())["bus"] == ["a"]
