"""Checks become axes: one verdict each, in the order of the axes, with the words of whatever failed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.conformance.engine import plugin_runner
from plugbay.conformance.engine.dialects import load_dialect
from plugbay.conformance.engine.plugin_runner import (
    AT_ONCE,
    Axes,
    Schedule,
    axis_of,
    fetch_hello,
    run_conformance,
    run_in_own_loop,
)
from plugbay.conformance.engine.scenario import ExpectNoOrphans, ExpectRunning, Scenario, load_all
from plugbay.conformance.engine.trial import Verdict
from plugbay.conformance.reports.report import AxisResult, Finding, Status
from plugbay.model.errors import PlugbayError
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from tests.conformance import nexo_plugins as nexo
from tests.conformance.complete import assert_complete, unmet, unmet_status
from tests.conformance.plugins import MANIFEST, PYTHON, SDK, SHELL, SOURCE, mutated, plugin_spec
from tests.support.canaries import PROGRAMS
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, few

TITLES = {"ainb.one": "the first", "ainb.two": "the second", "ainb.three": "the third"}


def check(id: str, status: Status, detail: str = "", *findings: Finding) -> AxisResult:
    return AxisResult(id, "does it", status, detail, 0.5, findings)


def test_a_check_belongs_to_the_axis_that_its_id_begins_with() -> None:
    assert axis_of("ainb.framing.byte_by_byte") == "ainb.framing"


def test_an_axis_is_told_when_its_checks_and_the_axes_before_it_are_known() -> None:
    told: list[str] = []
    axes = Axes(TITLES, ["ainb.two.a", "ainb.one.a", "ainb.one.b"], lambda axis: told.append(axis.id))
    axes.take(check("ainb.two.a", Status.PASSED))
    axes.take(check("ainb.one.a", Status.PASSED))
    assert told == []
    axes.take(check("ainb.one.b", Status.SKIPPED, "nothing to see"))
    assert told == ["ainb.one", "ainb.two"]
    assert axes.results == [
        AxisResult("ainb.one", "the first", Status.PASSED, "", 1.0),
        AxisResult("ainb.two", "the second", Status.PASSED, "", 0.5),
    ]


def test_one_check_that_failed_fails_its_axis_and_says_which_it_was() -> None:
    axes = Axes(TITLES, ["ainb.one.a", "ainb.one.b", "ainb.one.c"], None)
    axes.take(check("ainb.one.a", Status.FAILED, "it died", Finding("it died", rule="it must not", check="ainb.one.a")))
    axes.take(check("ainb.one.b", Status.PASSED))
    axes.take(check("ainb.one.c", Status.FAILED, "it sang"))
    (axis,) = axes.results
    assert axis.status is Status.FAILED
    assert axis.detail == "it died\ncheck: a, it does it\nrule: it must not\nit sang\ncheck: c, it does it"
    assert [(found.check, found.title) for found in axis.findings] == [
        ("ainb.one.a", "does it"),
        ("ainb.one.c", "does it"),
    ]


def test_an_axis_of_which_nothing_was_tried_is_skipped_with_the_first_reason() -> None:
    axes = Axes(TITLES, ["ainb.three.a", "ainb.three.b"], None)
    axes.take(check("ainb.three.a", Status.SKIPPED, "it has no screen"))
    axes.take(check("ainb.three.b", Status.SKIPPED, "another reason"))
    assert [(axis.id, axis.status, axis.detail) for axis in axes.results] == [
        ("ainb.three", Status.SKIPPED, "it has no screen")
    ]


PASSED, FAILED, SKIPPED = Verdict(Status.PASSED), Verdict(Status.FAILED, "broken"), Verdict(Status.SKIPPED, "not here")


def scenario(id: str, *, after: tuple[str, ...] = (), teaches: bool = False, orphans: bool = False) -> Scenario:
    steps = (ExpectNoOrphans(expect_no_orphans={"within": 1.0}),) if orphans else ()
    return Scenario(id, id, "rule", "section", steps, after, learn={"tool": "result.tools"} if teaches else {})


class Trials:
    """Attempts that take a turn of the loop or more; `verdict` says how one ends, by its id and its company."""

    def __init__(self, verdict: Callable[[str, int], Verdict] = lambda id, company: PASSED) -> None:
        self._verdict = verdict
        self.running: list[str] = []
        self.began: list[str] = []
        self.most = 0
        self.told: list[tuple[str, Status]] = []
        self.gate: asyncio.Event | None = None

    async def attempt(self, scenario: Scenario, earlier: Mapping[str, AxisResult]) -> Verdict:
        assert all(earlier[id].id == id for id in scenario.after)
        self.began.append(scenario.id)
        self.running.append(scenario.id)
        self.most = max(self.most, len(self.running))
        await (asyncio.sleep(0) if self.gate is None else self.gate.wait())
        verdict = self._verdict(scenario.id, len(self.running) - 1)
        self.running.remove(scenario.id)
        return verdict

    async def run(self, *scenarios: Scenario) -> list[str]:
        results = await Schedule(scenarios, self.attempt, lambda axis: self.told.append((axis.id, axis.status))).run()
        assert [result.id for result in results] == [scenario.id for scenario in scenarios]
        assert self.told == [(result.id, result.status) for result in results]
        return [str(result.status) for result in results]


def test_several_are_tried_at_a_time_and_no_more_than_so_many(run: Run) -> None:
    async def main() -> None:
        trials = Trials()
        assert set(await trials.run(*(scenario(f"s{n}") for n in range(3 * AT_ONCE)))) == {"passed"}
        assert trials.most == AT_ONCE

    run(main)


def test_what_comes_after_something_waits_for_it_and_for_what_teaches(run: Run) -> None:
    async def main() -> None:
        trials = Trials()
        trials.gate = asyncio.Event()
        all_of_them = (scenario("a", teaches=True), scenario("b"), scenario("c", after=("b",)), scenario("d"))
        task = asyncio.ensure_future(trials.run(*all_of_them))
        await until(lambda: trials.began == ["a"])
        trials.gate.set()
        await task
        assert (trials.began[0], trials.began.index("c") > trials.began.index("b")) == ("a", True)

    run(main)


def test_what_watches_longest_begins_first_but_not_before_what_it_comes_after(run: Run) -> None:
    async def main() -> None:
        trials = Trials()
        long, longer = (
            replace(scenario(id, after=("a",)), steps=(ExpectRunning(expect_running=seconds),))
            for id, seconds in (("long", 1.0), ("longer", 2.0))
        )
        await trials.run(scenario("a"), *(scenario(f"s{n}", after=("a",)) for n in range(AT_ONCE)), long, longer)
        assert trials.began[:3] == ["a", "longer", "long"]

    run(main)


def test_a_result_is_told_as_soon_as_it_and_all_before_it_passed(run: Run) -> None:
    async def main() -> None:
        trials = Trials()
        gate = asyncio.Event()

        async def attempt(scenario: Scenario, earlier: Mapping[str, AxisResult]) -> Verdict:
            if scenario.id == "b":
                await gate.wait()
            return PASSED

        every = [scenario("a"), scenario("b"), scenario("c")]
        task = asyncio.ensure_future(
            Schedule(every, attempt, lambda axis: trials.told.append((axis.id, axis.status))).run()
        )
        await until(lambda: trials.told == [("a", Status.PASSED)])
        gate.set()
        assert len(await task) == 3
        assert [id for id, _ in trials.told] == ["a", "b", "c"]

    run(main)


def test_what_fails_in_company_is_tried_again_alone_and_only_that_counts(run: Run) -> None:
    def dislikes_company(id: str, company: int) -> Verdict:
        if id == "shy" and company:
            return FAILED
        return SKIPPED if id == "late" and company else PASSED

    async def main() -> None:
        trials = Trials(dislikes_company)
        every = [scenario(id) for id in ("shy", "b", "late", "bad")]
        assert await trials.run(*every) == ["passed"] * 4
        assert sorted(trials.began) == ["b", "bad", "late", "late", "shy", "shy"]

    run(main)


def test_what_failed_alone_is_certain_and_what_was_skipped_stays_when_nothing_failed(run: Run) -> None:
    async def main() -> None:
        alone = Trials(lambda id, company: FAILED)
        assert await alone.run(scenario("a"), scenario("b", after=("a",))) == ["failed", "failed"]
        assert alone.began == ["a", "b"]
        skips = Trials(lambda id, company: SKIPPED)
        assert await skips.run(scenario("a"), scenario("b")) == ["skipped", "skipped"]
        assert skips.began == ["a", "b"]

    run(main)


def test_a_failure_that_stays_one_is_told_once(run: Run) -> None:
    async def main() -> None:
        trials = Trials(lambda id, company: FAILED if id == "b" else PASSED)
        assert await trials.run(scenario("a"), scenario("b"), scenario("c")) == ["passed", "failed", "passed"]
        assert trials.began.count("b") == 2

    run(main)


def test_whoever_looks_for_orphans_has_no_company(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_runner, "AT_ONCE", 8)
    company: dict[str, int] = {}

    def verdict(id: str, others: int) -> Verdict:
        company[id] = others
        return PASSED

    async def main() -> None:
        every = [scenario("a"), scenario("orphans", orphans=True), scenario("c"), scenario("d", after=("orphans",))]
        assert await Trials(verdict).run(*every) == ["passed"] * 4
        assert company == {"a": 1, "c": 0, "orphans": 0, "d": 0}

    run(main)


def test_a_trial_that_cannot_be_made_is_an_error_of_the_run(run: Run) -> None:
    async def broken(scenario: Scenario, earlier: Mapping[str, AxisResult]) -> Verdict:
        raise LookupError(scenario.id)

    async def main() -> None:
        with pytest.raises(LookupError, match="a"):
            await Schedule([scenario("a"), scenario("b", after=("a",))], broken, None).run()

    run(main)


CANARY = PROGRAMS / "mcp"


def hello(folder: Path, *command: str) -> Mapping[str, Any] | None:
    spoken = load_dialect("mcp")
    assert spoken is not None

    async def meet() -> Mapping[str, Any] | None:
        spawner = Spawner()
        try:
            return await fetch_hello(PluginSpec("p", "0", "mcp", folder, command), spoken, spawner)
        finally:
            await spawner.close()

    return asyncio.run(meet())


@requirement("mcp:kit-acquaintance")
def test_a_server_says_everything_that_it_offers_from_all_pages() -> None:
    said = hello(CANARY, sys.executable, "-E", "-S", "canary.py")
    assert said is not None
    assert (said["era"], said["server"]["name"]) == ("handshake", "canary")
    assert [tool["name"] for tool in said["offer"]["tools"]] == ["echo", "look.around"]
    assert [resource["uri"] for resource in said["offer"]["resources"]] == ["note://one"]


@pytest.mark.parametrize(
    "source",
    [
        "raise SystemExit",
        "print('[')\nprint(']')",
        "import sys\nfor n in range(99): print('noise', flush=True)\nsys.stdin.read()",
    ],
    ids=["leaves", "talks nonsense and leaves", "talks nonsense and stays"],
)
def test_a_program_that_is_no_server_says_nothing(source: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(source)
    assert hello(tmp_path, sys.executable, "-I", "-S", "program.py") is None


def test_a_program_that_cannot_be_started_says_nothing(tmp_path: Path) -> None:
    assert hello(tmp_path, "plugbay-nothing-to-run") is None


EVERY_AXIS = [scenario.id for scenario in load_all("rune")]
SDK_PROCESS = {**MANIFEST["process"], "args": ["plugin.py"], "env": [f"PYTHONPATH={SOURCE}"]}
SHELL_PROCESS = {"command": "/bin/sh", "args": ["plugin.sh"]}

GOOD: dict[str, dict[str, Any]] = {
    "sdk": {"source": SDK, "process": SDK_PROCESS},
    "sh": {"source": SHELL, "file": "plugin.sh", "process": SHELL_PROCESS},
    "python": {"source": PYTHON},
}


@exhaustive
@pytest.mark.parametrize("language", sorted(GOOD))
def test_a_good_plugin_passes_every_axis(language: str, tmp_path: Path) -> None:
    told: list[AxisResult] = []
    report = run_conformance(plugin_spec(tmp_path, **GOOD[language]), told.append)
    assert [(axis.id, axis.detail) for axis in report.axes] == [(axis_id, "") for axis_id in EVERY_AXIS]
    assert report.passed == len(EVERY_AXIS)
    assert tuple(told) == report.axes


BAD_FIRST_WORDS: dict[str, tuple[str, str, str]] = {
    "wrong_version": (
        '"rterm.plugin.v1"',
        '"rterm.plugin.v2"',
        'expected "rterm.plugin.v1", got "rterm.plugin.v2"',
    ),
    "other_id": (
        '"plugin_id": "example.good"',
        '"plugin_id": "example.evil"',
        "$.manifest.plugin_id: expected",
    ),
    "no_tools": ('["example.echo", "example.size"]', "[]", "expected an array that is not empty, got []"),
    "banner": ("hello = line()", 'print("welcome")\nhello = line()', "not one JSON object on one line"),
    "blank_line": ("hello = line()", "print()\nhello = line()", "a blank line"),
    "array": ('say({"type": "handshake", "manifest": HELLO})', "say([HELLO])", "JSON, but not an object"),
    "exits_at_once": ("hello = line()", "sys.exit(3)", "its output ended (exit code 3)"),
    "slow": ("hello = line()", "hello = line()\ntime.sleep(30)", "nothing came within 2 s"),
    "traceback": ("hello = line()", 'raise RuntimeError("no luck")', "stderr: RuntimeError: no luck"),
}


@pytest.mark.parametrize("name", sorted(BAD_FIRST_WORDS))
def test_a_plugin_no_host_would_talk_to_fails_the_handshake_and_nothing_else_is_tried(
    name: str, tmp_path: Path
) -> None:
    old, new, words = BAD_FIRST_WORDS[name]
    spec = plugin_spec(tmp_path, mutated(old, new))
    report = run_conformance(spec, only=["rune.handshake.answers", "rune.leave.after_ok", "rune.input.crlf"])
    failed = report.axis("rune.handshake.answers")
    assert failed.status is Status.FAILED
    assert words in failed.detail
    assert "rule: one handshake line within 2 s" in failed.detail
    for other in ("rune.leave.after_ok", "rune.input.crlf"):
        assert report.axis(other).detail == "not tried, because rune.handshake.answers did not pass"


MUTATIONS: dict[str, tuple[str, str, str]] = {
    "rune.handshake.answers": ('"plugin_version": "1.0.0"', '"plugin_version": " "', "not blank"),
    "rune.handshake.capabilities": (
        '["tool.execute"]',
        '["tool.execute", "tool.execute"]',
        "$.manifest.capabilities",
    ),
    "rune.handshake.bundle_capabilities": (
        '["tool.execute"]',
        '["tool.execute", "net"]',
        "$.manifest.capabilities[1]",
    ),
    "rune.handshake.declares_capabilities": ('["tool.execute"]', "[]", "not empty"),
    "rune.handshake.exposes_tools": (', "example.size"]', "]", 'expected "example.size" among its items'),
    "rune.handshake.matches_manifest": ('"plugin_version": "1.0.0"', '"plugin_version": "2.0.0"', '"1.0.0"'),
    "rune.handshake.once": (
        "asked = line()",
        'say({"type": "log"})\nasked = line()',
        "without a request",
    ),
    "rune.handshake.extra_fields": (
        "json.loads(hello)",
        "(lambda type, protocol_version: 1)(**json.loads(hello))",
        "exit code 1",
    ),
    "rune.handshake.any_spelling": (
        "greeting = json.loads(hello)",
        """assert hello.startswith(b'{"type"')""",
        "AssertionError",
    ),
    "rune.request.answers": (
        '"request_id": request["request_id"]',
        '"request_id": "plugin_req_0"',
        "$.request_id",
    ),
    "rune.request.every_tool": ("len(given)}", "1 // len(given)}", "case: tool example.size"),
    "rune.response.ok": ('"output": {"text"', '"error": {}, "output": {"text"', "expected"),
    "rune.response.once": ("sys.stdin.buffer.read()", 'sys.stdin.buffer.read()\nprint("bye")', "line: bye"),
    "rune.response.only_protocol": (
        "sys.stdin.buffer.read()",
        'print("done")\nsys.stdin.buffer.read()',
        "line: done",
    ),
    "rune.response.within_limit": ('given["text"][:1000]', 'given["text"]', "more than 1,048,576 bytes"),
    "rune.request.unknown_tool": (
        '    return {"status": "error", "error": {"code": "not_found", "message": "there is no such tool"}}',
        "    raise KeyError(tool)",
        "stderr: KeyError",
    ),
    "rune.request.wrong_input": ("not isinstance(given, dict)", "given is None", "case: with"),
    "rune.request.extra_fields": (
        "request = json.loads(asked)",
        "request = json.loads(asked)\nassert len(request) == 5",
        "AssertionError",
    ),
    "rune.request.context": (
        "result = run",
        'assert "role_id" not in request["context"]\nresult = run',
        'role_id": "developer',
    ),
    "rune.input.crlf": (
        "request = json.loads(asked)",
        'assert asked.endswith(b"}\\n")\nrequest = json.loads(asked)',
        "AssertionError",
    ),
    "rune.input.byte_by_byte": (
        "return sys.stdin.buffer.readline()",
        "return os.read(0, 65536)",
        "its output ended",
    ),
    "rune.input.over_64_kib": ("asked = line()", "asked = os.read(0, 65536)", "its output ended"),
    "rune.input.over_1_mib": (
        "asked = line()",
        "asked = sys.stdin.buffer.readline(1 << 20)",
        "its output ended",
    ),
    "rune.input.unicode_raw": ("json.loads(asked)", 'json.loads(asked.decode("latin-1"))', "unchanged"),
    "rune.input.unicode_escaped": (
        "json.loads(asked)",
        'json.loads(asked.replace(b"\\\\u", b"u"))',
        "unchanged",
    ),
    "rune.input.unicode_html_escaped": (
        "json.loads(asked)",
        'json.loads(asked.replace(b"\\\\u003c", b"("))',
        "unchanged",
    ),
    "rune.leave.after_ok": (
        "sys.stdin.buffer.read()",
        "sys.stdin.buffer.read()\nsys.exit(4)",
        "exit code 4, not with exit code 0",
    ),
    "rune.leave.not_early": ("sys.stdin.buffer.read()", "", "it exited on its own (exit code 0)"),
    "rune.leave.before_handshake": (
        "if not hello:\n    sys.exit(0)",
        "if not hello:\n    time.sleep(60)",
        "still running 2 s later",
    ),
    "rune.leave.before_request": (
        "if not asked:\n    sys.exit(0)",
        "if not asked:\n    time.sleep(60)",
        "still running 2 s later",
    ),
    "rune.leave.no_orphans": (
        "sys.stdin.buffer.read()",
        'sys.stdin.buffer.read()\nos.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", "600"])',
        "it exited, but these processes did not",
    ),
    "rune.environment.only_the_manifest": (
        "result = run",
        'os.environ["PATH"]\nresult = run',
        "stderr: KeyError: 'PATH'",
    ),
}


@pytest.mark.parametrize("axis_id", few(EVERY_AXIS))
def test_each_axis_catches_a_plugin_that_breaks_its_rule(axis_id: str, tmp_path: Path) -> None:
    old, new, words = MUTATIONS[axis_id]
    axis = run_conformance(plugin_spec(tmp_path, mutated(old, new)), only=[axis_id]).axis(axis_id)
    assert axis.status is unmet_status(axis_id), axis.detail
    assert words in axis.detail
    assert_complete(axis)


BREAKS_ONLY = {
    "dies_in_the_call": (
        "result = run",
        "sys.exit(1)\nresult = run",
        {"rune.request.answers", "rune.request.unknown_tool"},
    ),
    "lingers_after_eof": (
        "sys.stdin.buffer.read()",
        "sys.stdin.buffer.read()\ntime.sleep(60)",
        {"rune.leave.after_ok", "rune.leave.no_orphans"},
    ),
    "exits_early": ("sys.stdin.buffer.read()", "", {"rune.leave.not_early"}),
    "prints_after_the_answer": (
        "sys.stdin.buffer.read()",
        'print("done")\nsys.stdin.buffer.read()',
        {"rune.response.once", "rune.response.only_protocol"},
    ),
}


@pytest.mark.parametrize("name", few(sorted(BREAKS_ONLY)))
def test_a_broken_rule_does_not_make_others_fail(name: str, tmp_path: Path) -> None:
    old, new, expected = BREAKS_ONLY[name]
    report = run_conformance(plugin_spec(tmp_path, mutated(old, new)))
    assert set(unmet(report)) == expected


def test_a_plugin_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    spec = plugin_spec(tmp_path, process={"command": "./missing"})
    report = run_conformance(spec, only=["rune.handshake.answers"])
    assert "it cannot be started" in report.axes[0].detail
    assert "does not exist" in report.axes[0].detail


def test_a_plugin_that_floods_its_output_is_not_read_for_ever(tmp_path: Path) -> None:
    flood = mutated("hello = line()", 'while True:\n    print("{}")')
    axis = run_conformance(plugin_spec(tmp_path, flood), only=["rune.handshake.answers"]).axes[0]
    assert axis.status is Status.FAILED
    assert "$.type: expected" in axis.detail


def test_an_axis_that_needs_a_surface_the_plugin_lacks_is_skipped_with_a_reason(tmp_path: Path) -> None:
    tools = [{"name": "example.size", "input_schema": {"type": "object", "additionalProperties": False}}]
    source = mutated('["tool.execute"]', "[]")
    report = run_conformance(
        plugin_spec(tmp_path, source, tools=tools, capabilities=[]),
        only=["rune.handshake.declares_capabilities", "rune.input.unicode_raw"],
    )
    assert report.axis("rune.handshake.declares_capabilities").detail == "the manifest requests no capabilities"
    assert report.axis("rune.input.unicode_raw").detail == "no tool has a text parameter"
    assert report.skipped == 2


def test_an_error_answer_leaves_the_rules_about_ok_untried(tmp_path: Path) -> None:
    source = mutated("if not isinstance(given, dict):", "if True:")
    report = run_conformance(plugin_spec(tmp_path, source), only=["rune.leave.after_ok", "rune.response.ok"])
    for axis_id in ("rune.leave.after_ok", "rune.response.ok"):
        axis = report.axis(axis_id)
        assert axis.status is Status.SKIPPED
        assert '"examples" of its input_schema' in axis.detail


def test_a_tool_that_changes_things_is_called_only_with_an_example_of_its_author(tmp_path: Path) -> None:
    example = {"type": "object", "examples": [{"text": "really"}]}
    tools = [
        {"name": "example.wipe", "mutating": True},
        {"name": "example.drop", "approval_tier": "destructive", "input_schema": {"type": "object"}},
        {"name": "example.size"},
        {"name": "example.echo", "mutating": True, "input_schema": example},
    ]
    report = run_conformance(plugin_spec(tmp_path, tools=tools), only=["rune.request.every_tool"])
    assert report.axis("rune.request.every_tool").status is Status.PASSED
    refused = plugin_spec(tmp_path, tools=tools[:2])
    report = run_conformance(refused, only=["rune.request.answers"])
    assert report.axis("rune.request.answers").status is Status.SKIPPED


def test_the_report_of_a_run_is_json_and_junit(tmp_path: Path) -> None:
    spec = plugin_spec(tmp_path, mutated(', "example.size"]', "]"))
    report = run_conformance(spec, only=["rune.handshake.exposes_tools"])
    assert report.to_json() == {
        "contract": "rune",
        "passed": 1,
        "failed": 1,
        "advice": 0,
        "skipped": 0,
        "axes": [axis.to_json() for axis in report.axes],
    }
    suite = ET.fromstring(report.to_junit().partition("\n")[2]).find("testsuite")
    assert suite is not None
    assert suite.get("failures") == "1"


def test_an_unknown_axis_and_an_unknown_contract_are_refused(tmp_path: Path) -> None:
    spec = plugin_spec(tmp_path)
    with pytest.raises(PlugbayError, match=r"no axis 'rune\.no\.such'"):
        run_conformance(spec, only=["rune.no.such"])
    with pytest.raises(PlugbayError, match="no conformance scenarios for 'other'"):
        run_conformance(replace(spec, contract="other"))


def test_nothing_of_a_run_is_left(tmp_path: Path) -> None:
    fork = 'os.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", str(os.getpid())])\n'
    run_conformance(
        plugin_spec(tmp_path, mutated("hello = line()", fork + "hello = line()")),
        only=["rune.leave.no_orphans"],
    )
    assert [pid for pid in Path("/proc").glob("[0-9]*") if _runs_in(pid, tmp_path)] == []


def _runs_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink() == folder
    except OSError:
        return False


def test_a_run_needs_a_loop_of_its_own(tmp_path: Path) -> None:
    spec = plugin_spec(tmp_path)

    async def inside() -> None:
        run_conformance(spec, only=["rune.handshake.answers"])

    with pytest.raises(RuntimeError, match="running event loop"):
        asyncio.run(inside())


class Bomb:
    """Sends SIGTERM from where an exception reaches nobody: its own end."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def handled() -> Iterator[list[str]]:
    """What happened, in order; SIGTERM is handled as the command line does."""
    events: list[str] = []

    def handler(number: int, frame: object) -> None:
        events.append("handled")
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, handler)
    yield events
    assert signal.signal(signal.SIGTERM, before) is handler, "the handler is there again"


@pytest.mark.parametrize("when", ["in_a_finalizer", "in_the_loop", "at_the_end"])
def test_a_signal_ends_a_run_wherever_it_comes_once_nothing_is_left_of_it(when: str, handled: list[str]) -> None:
    async def work() -> None:
        try:
            if when == "in_a_finalizer":
                Bomb()
            else:
                os.kill(os.getpid(), signal.SIGTERM)
            await (asyncio.Event().wait() if when != "at_the_end" else asyncio.sleep(0))
        finally:
            handled.append("cleared up")

    with pytest.raises(SystemExit, match="143"):
        run_in_own_loop(work())
    assert handled == ["cleared up", "handled"]


def test_a_run_beside_the_main_thread_leaves_signals_alone(handled: list[str]) -> None:
    async def work() -> int:
        return 7

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run_in_own_loop, work()).result() == 7
    assert handled == []


# nexo


NEXO_AXES = [scenario.id for scenario in load_all("nexo")]


AREAS: dict[str, tuple[str, ...]] = {
    "talking": ("initialize", "request", "line", "shutdown", "leave"),
    "offering": ("tool", "channel", "llm", "hook", "vector", "event"),
    "asking": ("publish", "recall", "complete"),
}


def axes_of(area: str) -> list[str]:
    return [axis_id for axis_id in NEXO_AXES if axis_id.split(".")[1] in AREAS[area]]


@requirement("nexo:kit-plugin-axes")
@pytest.mark.parametrize("area", few(sorted(AREAS)))
def test_a_good_nexo_plugin_passes_every_axis_that_concerns_it(area: str, tmp_path: Path) -> None:
    report = run_conformance(nexo.nexo_spec(tmp_path), only=axes_of(area))
    assert unmet(report) == []
    skipped = {axis.id: axis.detail for axis in report.axes if axis.status is Status.SKIPPED}
    assert skipped == ({"nexo.tool.none": "the manifest declares tools"} if area == "offering" else {})
    assert {axis.id for axis in report.axes} >= {*axes_of(area)}


def test_every_nexo_axis_belongs_to_an_area() -> None:
    assert sorted(axis_id for area in AREAS for axis_id in axes_of(area)) == sorted(NEXO_AXES)


@requirement("nexo:kit-skips")
def test_a_nexo_plugin_that_offers_nothing_is_held_to_the_rules_for_all_and_told_why_the_others_are_skipped(
    tmp_path: Path,
) -> None:
    report = run_conformance(nexo.nexo_spec(tmp_path, nexo.BARE, ""))
    assert report.failed == 0
    passed = {axis.id for axis in report.axes if axis.status is Status.PASSED}
    assert passed >= {"nexo.initialize.answers", "nexo.tool.none", "nexo.shutdown.answers", "nexo.line.oversize"}
    reasons = {
        "nexo.initialize.catalogue": "the manifest declares no tool",
        "nexo.tool.answers": "the plugin offers no tool",
        "nexo.channel.send": "the manifest declares no channel",
        "nexo.llm.stream": "the manifest declares no LLM provider",
        "nexo.hook.answers": "the manifest declares no hook",
        "nexo.vector.search": "the manifest declares no memory backend",
        "nexo.event.survives": "the manifest registers no channel, so no event reaches the plugin",
        "nexo.recall.asks": "the plugin has no export that can be called",
    }
    assert {axis_id: report.axis(axis_id).detail for axis_id in reasons} == reasons


def test_a_nexo_plugin_that_never_asks_for_memory_has_those_axes_skipped(tmp_path: Path) -> None:
    source = mutated(
        'return ask("memory.recall", agent_id="a", query="q", limit=5)["entries"]', "return 1", nexo.SOURCE
    )
    report = run_conformance(nexo.nexo_spec(tmp_path, source), only=["nexo.recall.refused", "nexo.complete.asks"])
    assert report.axis("nexo.recall.asks").detail == "it asks for no memory"
    assert report.axis("nexo.recall.refused").detail == "not tried, because nexo.recall.asks did not pass"
    assert report.axis("nexo.complete.asks").status is Status.PASSED


RESULT = "        say(id=id, result=result)"
DISPATCH = '    method, id = message.get("method"), message.get("id")'
LEAVE = "def leave(id):\n    say(id=id, result=OK)\n"
PARSED = "        if isinstance(message, dict):\n            yield message"


def before(method: str, code: str) -> str:
    """Something wrong that happens when this method arrives."""
    return DISPATCH + f"\n    if method == {method!r}:\n        {code}"


NEXO_MUTATIONS: dict[str, tuple[str, str, str]] = {
    "nexo.initialize.answers": ('{"id": "good", "version"', '{"id": "evil", "version"', "$.result.manifest.plugin.id"),
    "nexo.initialize.first": (
        "incoming = messages()",
        'say(method="broker.publish", params={})\nincoming = messages()',
        "$.method: expected nothing",
    ),
    "nexo.initialize.matches_manifest": ('"version": "1.0.0"', '"version": "2.0.0"', 'expected "1.0.0"'),
    "nexo.initialize.catalogue": ('"tools": TOOLS}', '"tools": []}', "not empty"),
    "nexo.initialize.catalogue_entries": ('"name": "good_echo"', '"name": "good_drift"', 'got "good_drift"'),
    "nexo.initialize.any_params": (DISPATCH, before("initialize", 'message["params"]["nexo_version"]'), "KeyError"),
    "nexo.initialize.once": (
        RESULT,
        RESULT + '\n        print("hello", flush=True) if id == 1 else None',
        "line: hello",
    ),
    "nexo.request.unknown_method": ('"code": -32601', '"code": -32600', "$.error.code"),
    "nexo.request.unknown_notification": (
        "    if method is None or id is None:\n",
        '    if method and id is None and method[:7] == "plugbay":\n        say(id=None, result={})\n'
        "    if method is None or id is None:\n",
        "$.id: expected 90, got null",
    ),
    "nexo.request.string_id": (DISPATCH, DISPATCH + '\n    id = int(id) if id == "1" else id', "$.id: expected"),
    "nexo.request.large_id": (DISPATCH, DISPATCH + "\n    id = id & 0xFFFFFFFF if type(id) is int else id", "$.id"),
    "nexo.request.before_initialize": (DISPATCH, DISPATCH + "\n    if id == 5:\n        return", "nothing came"),
    "nexo.request.unasked_reply": (
        DISPATCH,
        DISPATCH + '\n    if method is None:\n        raise KeyError("unasked")',
        "KeyError",
    ),
    "nexo.line.blank": (
        "if len(line) > 1 << 20 or not line.strip():\n            continue",
        "if not line.strip():\n            sys.exit(1)",
        "exit code 1",
    ),
    "nexo.line.crlf": (
        "        try:\n",
        '        assert not line.endswith(b"\\r\\n")\n        try:\n',
        "AssertionError",
    ),
    "nexo.line.byte_by_byte": (
        "for line in sys.stdin.buffer:",
        'for line in iter(lambda: os.read(0, 65536), b""):',
        "nothing came",
    ),
    "nexo.line.any_spelling": (
        "        try:\n",
        "        assert line.startswith(b'{\"jsonrpc\"')\n        try:\n",
        "AssertionError",
    ),
    "nexo.line.pipe_buffer": ("len(line) > 1 << 20", "len(line) > 2000", "nothing came"),
    "nexo.line.several_at_once": ("sys.stdin.buffer:", "[sys.stdin.buffer.readline()]:", "its output ended"),
    "nexo.line.malformed": ('print("malformed", file=sys.stderr)', "raise", "its output ended"),
    "nexo.line.not_an_object": ("if isinstance(message, dict)", "if True", "its output ended"),
    "nexo.line.array": ("if isinstance(message, dict)", "if not message or message.get(1) or True", "its output ended"),
    "nexo.line.oversize": (
        "if len(line) > 1 << 20 or not line.strip():\n            continue",
        "if not line.strip():\n            continue\n        if len(line) > 1 << 20:\n            sys.exit(1)",
        "exit code 1",
    ),
    "nexo.tool.answers": (
        '    if name == "good_echo":\n',
        '    if name == "good_echo":\n        raise Error(-1, "no")\n',
        '"code": -1',
    ),
    "nexo.tool.once": (RESULT, RESULT + "\n        say(id=id, result=result) if id == 100 else None", "line: "),
    "nexo.tool.string_id": (DISPATCH, DISPATCH + '\n    id = 1 if id == "call-a" else id', '"call-a"'),
    "nexo.tool.without_args": ('args = params.get("args")', 'args = params["args"]', "KeyError"),
    "nexo.tool.odd_args": ("not isinstance(args, dict) or", "args is None or", "case: with"),
    "nexo.tool.extra_params": (
        '    args = params.get("args")',
        "    args = (lambda plugin_id, tool_name, args, agent_id: args)(**params)",
        "TypeError",
    ),
    "nexo.tool.unknown": ("raise Error(-33401", "raise Error(-33403", "$.error.code"),
    "nexo.tool.without_name": ('raise Error(-32602, "no tool_name")', "raise KeyError", "KeyError"),
    "nexo.tool.several": (DISPATCH, DISPATCH + "\n    if id == 101:\n        sys.exit(3)", "exit code 3"),
    "nexo.tool.before_initialize": (
        DISPATCH,
        DISPATCH
        + "\n    if id == 1:\n        METHODS[1] = 1\n    if id == 100 and 1 not in METHODS:\n        sys.exit(3)",
        "exit code 3",
    ),
    "nexo.tool.unicode_raw": ("json.loads(line)", 'json.loads(line.decode("latin-1"))', "unchanged"),
    "nexo.tool.unicode_escaped": ("json.loads(line)", 'json.loads(line.replace(b"\\\\u", b"u"))', "unchanged"),
    "nexo.channel.start": ('    "channel.start": channel,\n', "", "-32601"),
    "nexo.channel.stop": (
        DISPATCH,
        before(
            "channel.stop",
            "return say(id=id, error={'code': -33001, 'message': 'no'}) if id == 102 else say(id=id, result=OK)",
        ),
        "$.result",
    ),
    "nexo.channel.stop_unstarted": ('    "channel.stop": channel,\n', "", "-32601"),
    "nexo.channel.send": ('"message_id": "m1", ', "", "message_id"),
    "nexo.channel.unknown_kind": ('params["kind"] != "pigeon"', "False", "$.result: expected nothing"),
    "nexo.llm.chat": ('"usage": usage, ', "", "usage"),
    "nexo.llm.stream": ('"type": "text_delta"', '"type": "text"', "text_delta"),
    "nexo.llm.end": (
        RESULT,
        RESULT
        + '\n        chunk = {"type": "text_delta", "delta": "late"}'
        + '\n        if method == "llm.chat":'
        + '\n            say(method="llm.chat.delta", params={"request_id": id, "chunk": chunk})',
        "late",
    ),
    "nexo.llm.unknown_provider": ('params["provider"] != "parrot"', "False", "$.result: expected nothing"),
    "nexo.hook.answers": ('return {"abort": False, "decision": "allow"}', 'return {"abort": "no"}', "abort"),
    "nexo.hook.odd_event": ("def hook(params):", 'def hook(params):\n    params["event"]["sender"]', "KeyError"),
    "nexo.vector.upsert": ('return {"count": len(params["records"])}', "return 1", "count"),
    "nexo.vector.search": ('return {"matches": [match]}', "return [match]", "matches"),
    "nexo.vector.delete": ('return {"count": 0}', 'return {"count": "none"}', "count"),
    "nexo.event.survives": (
        "def on_event(params):",
        'def on_event(params):\n    params["event"]["payload"]["text"]',
        "Error",
    ),
    "nexo.event.no_reply": (
        "def on_event(params):",
        "def on_event(params):\n    say(id=None, result={})",
        "$.id: expected 100, got null",
    ),
    "nexo.publish.allowed": (
        'params={"topic": "plugin.inbound.pigeon"',
        'params={"topic": "agent.route.x"',
        "agent.route.x",
    ),
    "nexo.recall.asks": ('agent_id="a", query="q"', 'agent_id=7, query="q"', "$.params.agent_id"),
    "nexo.recall.refused": (
        "    except Refused as error:\n        say",
        "    except Refused as error:\n        raise\n        say",
        "Refused",
    ),
    "nexo.recall.unanswered": (
        '        if message.get("method") == "shutdown":\n            leave(message["id"])\n',
        "",
        "nothing came",
    ),
    "nexo.complete.asks": ("messages=say_it, max_tokens=9", "messages=[], max_tokens=9", "$.params.messages"),
    "nexo.complete.refused": (
        "    except Refused as error:\n        say",
        "    except Refused as error:\n        raise\n        say",
        "Refused",
    ),
    "nexo.complete.unanswered": (
        '        if message.get("method") == "shutdown":\n            leave(message["id"])\n',
        '        if message.get("method") == "shutdown":\n            sys.exit(3)\n',
        "exit code 3",
    ),
    "nexo.complete.streamed": (
        '        if message.get("method") == "llm.complete.delta":\n            continue\n',
        '        if message.get("method") == "llm.complete.delta":\n            sys.exit(3)\n',
        "exit code 3",
    ),
    "nexo.shutdown.answers": (LEAVE, LEAVE + "    time.sleep(60)\n", "still running 1 s later"),
    "nexo.shutdown.status": (LEAVE, LEAVE + "    sys.exit(4)\n", "exit code 4, not with exit code 0"),
    "nexo.shutdown.any_params": (DISPATCH, before("shutdown", 'message["params"]["reason"]'), "Error"),
    "nexo.shutdown.before_initialize": (
        DISPATCH,
        DISPATCH
        + "\n    if id == 1:\n        METHODS[1] = 1\n    if id == 200 and 1 not in METHODS:\n        sys.exit(3)",
        "exit code 3",
    ),
    "nexo.shutdown.after_call": (
        RESULT,
        "        import threading\n        seconds = 0.3 if id == 100 else 0\n"
        "        timer = threading.Timer(seconds, say, kwargs={'id': id, 'result': result})\n"
        "        timer.start()\n        seconds or timer.join()",
        "$.id: expected 100, got 200",
    ),
    "nexo.shutdown.no_orphans": (
        LEAVE,
        LEAVE + '    os.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", "600"])\n',
        "it exited, but these processes did not",
    ),
    "nexo.leave.end_of_input": (
        "        break\n    serve",
        "        sys.exit(4)\n    serve",
        "exit code 4, not with exit code 0",
    ),
    "nexo.leave.before_initialize": (
        "        break\n    serve",
        "        time.sleep(60)\n    serve",
        "still running 5 s later",
    ),
    "nexo.leave.not_early": (RESULT, RESULT + "\n        sys.exit(0) if id == 1 else None", "it exited on its own"),
}


@requirement("nexo:kit-axes-catch")
@pytest.mark.parametrize("axis_id", few(axis_id for axis_id in NEXO_AXES if axis_id != "nexo.tool.none"))
def test_each_nexo_axis_catches_a_plugin_that_breaks_its_rule(axis_id: str, tmp_path: Path) -> None:
    old, new, words = NEXO_MUTATIONS[axis_id]
    spec = nexo.nexo_spec(tmp_path, mutated(old, new, nexo.SOURCE))
    axis = run_conformance(spec, only=[axis_id]).axis(axis_id)
    assert axis.status is unmet_status(axis_id), axis.detail
    assert words in axis.detail
    assert_complete(axis)


def test_a_nexo_plugin_without_tools_that_answers_a_call_is_caught(tmp_path: Path) -> None:
    source = mutated('elif method == "shutdown":', 'elif method in ("shutdown", "tool.invoke"):', nexo.BARE)
    report = run_conformance(nexo.nexo_spec(tmp_path, source, ""), only=["nexo.tool.none"])
    assert "$.result: expected nothing" in report.axis("nexo.tool.none").detail
