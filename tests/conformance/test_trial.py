"""One scenario, tried: what counts when its conversations end differently, and how its process is started."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.dialects import dialect
from plugbay.conformance.report import Status
from plugbay.conformance.scenario import parse
from plugbay.conformance.surface import Surface
from plugbay.conformance.trial import Verdict, launch_of, try_scenario
from plugbay.model.spec import Export, PluginSpec
from plugbay.process.child import Spawner

TOOLS = (Export("tool", "one"), Export("tool", "two"))
ANSWER = [{"send": {"say": "$say"}}, {"expect": {"say": "$any"}, "within": 10}]
ONLY_YES = [*ANSWER, {"skip_unless": {"say": "yes"}, "because": "it said no"}]


def spec(script: str = "exec cat", **more: Any) -> PluginSpec:
    return PluginSpec("echo", "1", "rune", Path("/"), ("/bin/sh", "-c", script), exports=TOOLS, **more)


def tried(plugin: PluginSpec, **file: Any) -> Verdict:
    spoken = dialect("rune")
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
    assert verdict.detail.splitlines() == [
        "one: its output ended (exit code 3)",
        "rule: the rule",
        "clause: Plugin runtime protocol rterm.plugin.v1 (2026-04-16), 1. Rules",
        "step: 2 of 2 (expect)",
        'case: tool one, with {"say": "yes"}',
        'sent: {"say":"yes"}\\x0a',
        "exit: exit code 3",
        "stderr: oh dear",
    ]


def test_a_program_that_is_not_there_fails_the_trial() -> None:
    plugin = PluginSpec("x", "1", "rune", Path("/"), ("./nothing/here",))
    verdict = tried(plugin, steps=[{"expect_silence": 1}])
    assert verdict.status is Status.FAILED
    assert verdict.detail.startswith("it cannot be started: ")


def test_a_process_gets_the_usual_environment_or_only_that_of_its_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SECRET", "s")
    plugin = spec(env=(("MINE", "1"),))
    assert launch_of(plugin).env["HOME"] == "/home/me"
    assert "SECRET" not in launch_of(plugin).env
    only = launch_of(plugin, "manifest").env
    assert "HOME" not in only
    assert only["MINE"] == "1"


def test_temporary_files_of_a_conversation_have_a_place_of_their_own(tmp_path: Path) -> None:
    assert launch_of(spec(), place=tmp_path).env["TMPDIR"] == str(tmp_path)
    assert "TMPDIR" not in launch_of(spec(), "manifest", tmp_path).env
    assert launch_of(spec(env_inherit=("TMPDIR",)), "manifest", tmp_path).env["TMPDIR"] == str(tmp_path)


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
