"""The small storage that stands by while a kaged plugin is tried."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.conformance.engine.dialects import load_dialect
from plugbay.conformance.engine.scenario import parse
from plugbay.conformance.engine.surface import Surface
from plugbay.conformance.engine.trial import (
    ENOUGH,
    NAMED,
    InputFiles,
    KagedStorage,
    Verdict,
    build_launch,
    try_scenario,
)
from plugbay.conformance.reports.report import Status
from plugbay.model.spec import Export, PluginSpec
from plugbay.process.child import Spawner
from tests.support.requirements import requirement


def asked(stored: KagedStorage, name: str, **params: Any) -> Any:
    return stored([f"kaged.storage.{name}", params])


@requirement("kaged:kit-host-stands-by")
def test_what_is_set_is_found_listed_and_deleted() -> None:
    stored = KagedStorage()
    assert asked(stored, "get", key="a") == {"found": False, "value": None}
    assert asked(stored, "set", key="a", value=[1]) == {"ok": True}
    assert asked(stored, "set", key="b", value=None) == {"ok": True}
    assert asked(stored, "get", key="a") == {"found": True, "value": [1]}
    assert asked(stored, "get", key="b") == {"found": True, "value": None}
    assert asked(stored, "list") == {"keys": ["a", "b"]}
    assert asked(stored, "list", prefix="b") == {"keys": ["b"]}
    assert asked(stored, "list", limit=1) == {"keys": ["a"]}
    assert asked(stored, "delete", key="b") == {"deleted": True}
    assert asked(stored, "delete", key="b") == {"deleted": False}


def test_each_conversation_begins_with_an_empty_one() -> None:
    asked(KagedStorage(), "set", key="a", value=1)
    assert asked(KagedStorage(), "list") == {"keys": []}


def test_a_reference_says_where_the_file_is_and_what_is_in_it(tmp_path: Path) -> None:
    reference = InputFiles(tmp_path)(["a.json", "text/x", {"blocks": ["été"]}])
    data = (tmp_path / "a.json").read_bytes()
    assert data == '{"blocks": ["été"]}'.encode()
    assert reference == {
        "path": "a.json",
        "media_type": "text/x",
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


TOOLS = (Export("tool", "one"), Export("tool", "two"))
ANSWER = [{"send": {"say": "$say"}}, {"expect": {"say": "$any"}, "within": 10}]
ONLY_YES = [*ANSWER, {"skip_unless": {"say": "yes"}, "because": "it said no"}]


def spec(script: str = "exec cat", **more: Any) -> PluginSpec:
    return PluginSpec("echo", "1", "rune", Path("/"), ("/bin/sh", "-c", script), exports=TOOLS, **more)


def tried(plugin: PluginSpec, **file: Any) -> Verdict:
    spoken = load_dialect("rune")
    assert spoken is not None
    usual = {"id": "rune.a.test", "title": "t", "clause": "the rule", "section": "1. Rules"}
    scenario = parse(json.dumps({**usual, **file}))

    async def story() -> Verdict:
        spawner = Spawner()
        try:
            return await try_scenario(scenario, Surface(plugin, spoken), spawner)
        finally:
            await spawner.close()

    return asyncio.run(story())


def says(*words: str) -> list[dict[str, str]]:
    return [{"say": word} for word in words]


def test_a_trial_passes_and_remembers_the_last_line() -> None:
    verdict = tried(spec(), steps=ANSWER, cases=says("yes"))
    assert verdict.status is Status.PASSED
    assert verdict.last is not None
    assert verdict.last.value == {"say": "yes"}


@pytest.mark.parametrize(
    ("words", "skip_when", "status"),
    [
        (("yes", "no"), "any", Status.SKIPPED),
        (("yes", "no"), "all", Status.PASSED),
        (("no", "no"), "all", Status.SKIPPED),
        (("yes", "yes"), "any", Status.PASSED),
    ],
)
def test_conversations_that_could_not_be_had_count_as_the_scenario_says(
    words: tuple[str, ...], skip_when: str, status: Status
) -> None:
    verdict = tried(spec(), steps=ONLY_YES, cases=says(*words), skip_when=skip_when)
    assert verdict.status is status
    assert verdict.detail == ("it said no" if status is Status.SKIPPED else "")


def test_a_failure_names_the_rule_the_step_the_case_and_the_last_words() -> None:
    script = "echo oh dear >&2; exit 3"
    verdict = tried(spec(script), steps=ANSWER, cases=says("yes"), for_each="tool")
    assert verdict.status is Status.FAILED
    assert [found.what for found in verdict.findings] == [
        f"{name}: its output ended (exit code 3)" for name in ("one", "two")
    ]
    assert verdict.findings[0].words().splitlines() == [
        "one: its output ended (exit code 3)",
        "rule: the rule",
        "clause: Plugin runtime protocol rterm.plugin.v1 (2026-04-16), 1. Rules",
        "step: 2 of 2 (expect)",
        'case: tool one, with {"say": "yes"}',
        'sent: {"say":"yes"}\\x0a',
        "exit: exit code 3",
        "stderr: oh dear",
    ]


# Several turns of one process.

OPENING = [{"send": {"hello": 1}}, {"expect": {"hello": 1}, "within": 10}]
CALL: list[dict[str, Any]] = [
    {"send": {"id": "$id", "call": "$tool"}},
    {"expect": {"id": "$id", "call": "$tool"}, "within": 10},
]
FOUR = tuple(Export("tool", name) for name in ("one", "two", "three", "four"))

NOTED = """
echo started >> "$NOTES"
while read -r line; do echo "$line" >> "$NOTES"; case "$line" in {case} esac; echo "$line"; done
"""
"""An echo that writes down when it is started and what it hears, and does something else in some cases."""


def noted(notes: Path, case: str = "", exports: tuple[Export, ...] = FOUR) -> PluginSpec:
    return replace(spec(NOTED.format(case=case)), env=(("NOTES", str(notes)),), exports=exports)


def lives(notes: Path) -> list[list[str]]:
    """For each process the tools that it was asked for."""
    processes = notes.read_text().split("started\n")[1:]
    return [[json.loads(line)["call"] for line in each.splitlines() if "call" in line] for each in processes]


def test_a_process_that_is_opened_has_turn_after_turn(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    verdict = tried(noted(notes), opening=OPENING, steps=CALL, for_each="tool", cases=[{"x": 1}, {"x": 2}])
    assert (verdict.status, verdict.detail) == (Status.PASSED, "")
    assert lives(notes) == [["one", "one", "two", "two", "three", "three", "four", "four"]]
    heard = [json.loads(line) for line in notes.read_text().splitlines()[1:]]
    assert [message for message in heard if "hello" in message] == [{"hello": 1}], "the opening comes once"
    assert len({message["id"] for message in heard[1:]}) == 8


def test_without_an_opening_every_turn_has_a_process_of_its_own(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert tried(noted(notes), steps=CALL, for_each="tool").status is Status.PASSED
    assert lives(notes) == [["one"], ["two"], ["three"], ["four"]]


def test_an_opening_that_says_nothing_is_one(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert tried(noted(notes), opening=[], steps=CALL, for_each="tool").status is Status.PASSED
    assert lives(notes) == [["one", "two", "three", "four"]]


def test_every_target_that_breaks_the_rule_is_named_as_if_it_had_been_alone(tmp_path: Path) -> None:
    notes, case = tmp_path / "notes", "*two*) line='{\"id\":0}';; *four*) line=7;;"
    together = tried(noted(notes, case), opening=OPENING, steps=CALL, for_each="tool")
    assert [found.what for found in together.findings] == [
        'two: $.id: expected 100, got 0; $.call: expected "two", got nothing',
        "four: not one JSON object on one line: JSON, but not an object",
    ]
    assert lives(notes) == [["one", "two"], ["two"], ["three", "four"], ["four"]]
    alone = tried(noted(notes, case), steps=[*OPENING, *CALL], for_each="tool")
    assert together.findings == alone.findings
    assert together.detail == alone.detail


def test_a_turn_that_breaks_the_rule_after_others_is_had_again_first(tmp_path: Path) -> None:
    notes, once = tmp_path / "notes", "*call*) echo $line; exit;;"
    verdict = tried(noted(notes, once), opening=OPENING, steps=CALL, for_each="tool")
    assert (verdict.status, verdict.detail) == (Status.PASSED, "")
    assert [life[0] for life in lives(notes)] == ["one", "two", "three", "four"]


def test_a_line_that_is_too_much_breaks_the_rule_only_where_the_rule_is_about_that(tmp_path: Path) -> None:
    notes, twice = tmp_path / "notes", r"""*two*) printf '%s\n%s\n' "$line" "$line"; continue;;"""
    verdict = tried(noted(notes, twice), opening=OPENING, steps=CALL, for_each="tool")
    assert (verdict.status, verdict.detail) == (Status.PASSED, "")
    once = [*CALL, {"expect_silence": 0.1}]
    verdict = tried(noted(notes, twice), opening=OPENING, steps=once, for_each="tool")
    assert [found.what for found in verdict.findings] == ["two: it wrote output without a request"]


def test_a_target_that_broke_the_rule_in_one_case_has_no_other(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    cases = [{"x": 1}, {"x": 2}]
    verdict = tried(noted(notes, "*two*) line=7;;"), opening=OPENING, steps=CALL, for_each="tool", cases=cases)
    assert [found.case for found in verdict.findings] == ['tool two, with {"x": 1}']
    assert lives(notes)[1:] == [["two"], ["three", "three", "four", "four"]]


def test_when_several_targets_broke_the_rule_the_others_are_named_and_not_tried(tmp_path: Path) -> None:
    notes, tools = tmp_path / "notes", tuple(Export("tool", f"t{number}") for number in range(ENOUGH + NAMED + 2))
    verdict = tried(noted(notes, "*call*) exit;;", tools), opening=OPENING, steps=CALL, for_each="tool")
    assert [found.case for found in verdict.findings] == ["tool t0", "tool t1", "tool t2"]
    assert lives(notes) == [["t0"], ["t1"], ["t2"]]
    hints = [found.hint for found in verdict.findings]
    assert hints == ["", "", "after that, not tried: t3, t4, t5, t6, t7 and 2 more"]


def test_a_process_that_cannot_be_opened_is_no_matter_of_its_target(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    verdict = tried(noted(notes, "*hello*) line=7;;"), opening=OPENING, steps=CALL, for_each="tool")
    [found] = verdict.findings
    assert (found.step, found.case) == ("2 of 4 (expect)", "tool one")
    assert found.hint == "after that, not tried: two, three, four"
    assert lives(notes) == [[]]


def test_a_target_that_has_to_be_waited_for_in_vain_is_enough(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    soon = [CALL[0], {**CALL[1], "within": 0.2}]
    verdict = tried(noted(notes, "*call*) continue;;"), opening=OPENING, steps=soon, for_each="tool")
    [found] = verdict.findings
    assert (found.what, found.hint) == ("one: nothing came within 0.2 s", "after that, not tried: two, three, four")
    assert lives(notes) in ([["one"]], [[]]), "it may not even have heard of it by then"


LEAVE = [{"close_stdin": True}, {"expect_exit": {"code": 0, "within": 10}}]


def test_a_process_that_left_has_no_other_turn(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert tried(noted(notes), opening=OPENING, steps=[*CALL, *LEAVE], for_each="tool").status is Status.PASSED
    assert lives(notes) == [["one"], ["two"], ["three"], ["four"]]


def test_a_turn_that_could_not_be_had_leaves_its_process_for_the_next(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    steps = [*CALL, {"skip_unless": {"call": "three"}, "because": "not this one"}, *LEAVE]
    some = tried(noted(notes), opening=OPENING, steps=steps, for_each="tool", skip_when="all")
    assert (some.status, lives(notes)) == (Status.PASSED, [["one", "two", "three"], ["four"]])
    assert tried(noted(notes), opening=OPENING, steps=steps, for_each="tool").detail == "not this one"


# Its process.


def test_a_program_that_is_not_there_fails_the_trial() -> None:
    plugin = PluginSpec("x", "1", "rune", Path("/"), ("./nothing/here",))
    verdict = tried(plugin, steps=[{"expect_silence": 1}])
    assert verdict.status is Status.FAILED
    assert verdict.detail.startswith("it cannot be started: ")


def test_a_process_gets_the_usual_environment_or_only_that_of_its_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SECRET", "s")
    plugin = spec(env=(("MINE", "1"),))
    assert build_launch(plugin).env["HOME"] == "/home/me"
    assert "SECRET" not in build_launch(plugin).env
    only = build_launch(plugin, "manifest").env
    assert "HOME" not in only
    assert only["MINE"] == "1"


def test_temporary_files_of_a_conversation_have_a_place_of_their_own(tmp_path: Path) -> None:
    assert build_launch(spec(), place=tmp_path).env["TMPDIR"] == str(tmp_path)
    assert "TMPDIR" not in build_launch(spec(), "manifest", tmp_path).env
    assert build_launch(spec(env_inherit=("TMPDIR",)), "manifest", tmp_path).env["TMPDIR"] == str(tmp_path)


COUNTED = """
read line
starts=$(cat "$TMPDIR"/starts 2>/dev/null)x
echo "$starts" > "$TMPDIR"/starts
echo "{\\"id\\":1,\\"starts\\":\\"$starts\\"}"
exec cat
"""


def test_a_plugin_that_is_started_again_is_another_process_in_the_same_place() -> None:
    greeting = [{"send": {"id": 1}}, {"expect": {"id": 1}, "within": 10}]
    verdict = tried(spec(COUNTED), steps=[*greeting, {"restart": True}, *greeting, {"last": {"starts": "xx"}}])
    assert (verdict.status, verdict.detail) == (Status.PASSED, "")


def test_a_plugin_that_cannot_be_started_again_fails_the_trial(tmp_path: Path) -> None:
    program = tmp_path / "once"
    program.write_text('#!/bin/sh\nrm -f "$0"\nexec cat\n')
    program.chmod(0o755)
    once = PluginSpec("once", "1", "rune", tmp_path, (str(program),))
    steps = [{"send": {}}, {"expect": {}, "within": 10}, {"restart": True}]
    verdict = tried(once, steps=steps)
    assert verdict.status is Status.FAILED
    assert verdict.detail.startswith("it cannot be started again: ")
