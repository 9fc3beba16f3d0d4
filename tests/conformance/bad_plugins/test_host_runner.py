"""The runner judges a host by the catalogue of bad plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.bad_plugins.catalogue import Entry, Expected, Situation, load_catalog
from plugbay.conformance.bad_plugins.host_runner import Observed, run_catalog, verdict
from plugbay.conformance.reports.report import AxisResult, Status
from plugbay.contracts.nexo import spec as nexo_spec
from plugbay.contracts.rune.spec import FILE_NAME
from tests.support.requirements import requirement

CATALOG = load_catalog("rune")


# The verdict.


@pytest.mark.parametrize(
    ("expected", "observed"),
    [
        ({"code": "timeout"}, Observed("timeout")),
        ({"outcome": "succeeded"}, Observed(None, 1)),
        ({"outcome": "succeeded", "output": None}, Observed(None, None)),
        ({"outcome": "succeeded", "output": {"a": [1]}}, Observed(None, {"a": [1]})),
        ({"outcome": "plugin_error"}, Observed("plugin_error")),
        ({"outcome": "refused"}, Observed("not_found")),
    ],
)
def test_what_is_expected_is_no_problem(expected: dict[str, Any], observed: Observed) -> None:
    assert verdict(Expected.model_validate(expected), observed) == ""


STAYED = Observed(
    None,
    1,
    chunks=({"delta": "a"},),
    published=({"topic": "t", "source": "bad"},),
    counts={"noise": 3},
    next="same",
    parting="ok",
)
FAILED = Observed("overloaded", failure={"code": "overloaded", "retry_after_ms": 5, "detail": {"plugin_code": -33004}})
GOOD = {"outcome": "succeeded"}


@pytest.mark.parametrize(
    "more",
    [
        {"chunks": [{"delta": "$any_string"}]},
        {"published": [{"topic": "t"}]},
        {"counts": {"noise": 3}},
        {"next": "same"},
        {"parting": "ok"},
    ],
)
def test_what_is_seen_of_a_plugin_that_stays_is_no_problem_when_it_is_expected(more: dict[str, Any]) -> None:
    assert verdict(Expected.model_validate({**GOOD, **more}), STAYED) == ""


@requirement("nexo:kit-host-verdicts")
@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"chunks": []}, "its pieces differs: $: expected an array of 0"),
        ({"published": [{"source": "good"}]}, 'what it published differs: $[0].source: expected "good", got "bad"'),
        ({"counts": {"noise": 4}}, "noise was counted 3 times, not 4 or more"),
        ({"counts": {"late_answers": 1}}, "late_answers was counted 0 times, not 1 or more"),
        ({"next": "new"}, 'the next call differs: $: expected "new", got "same"'),
        ({"parting": "timeout"}, 'its leaving differs: $: expected "timeout", got "ok"'),
    ],
)
def test_what_is_seen_of_a_plugin_that_stays_is_told_when_it_is_not_expected(
    more: dict[str, Any], problem: str
) -> None:
    assert verdict(Expected.model_validate({**GOOD, **more}), STAYED).startswith(
        f"succeeded, as expected, but {problem}"
    )


def test_a_failure_is_compared_as_a_whole() -> None:
    expected = {"code": "overloaded", "failure": {"retry_after_ms": 5, "detail": {"plugin_code": -33004}}}
    assert verdict(Expected.model_validate(expected), FAILED) == ""
    expected["failure"] = {"retry_after_ms": 6}
    assert "its failure differs: $.retry_after_ms: expected 6, got 5" in verdict(
        Expected.model_validate(expected), FAILED
    )


@pytest.mark.parametrize(
    ("expected", "observed", "problem"),
    [
        ({"code": "timeout"}, Observed("crashed", message="it died"), "expected timeout, got crashed: it died"),
        ({"code": "timeout"}, Observed(None, {"a": 1}), 'expected timeout, got succeeded with {"a": 1}'),
        ({"outcome": "succeeded"}, Observed("timeout"), "expected succeeded, got timeout"),
        ({"outcome": "succeeded", "output": None}, Observed(None, 0), "expected succeeded with null, got"),
        ({"outcome": "plugin_error"}, Observed("crashed"), "expected plugin_error, got crashed"),
        ({"outcome": "refused"}, Observed("crashed"), "expected refused, got crashed"),
        ({"outcome": "refused"}, Observed(None, 1), "expected refused, got succeeded with 1"),
        (
            {"code": "timeout"},
            Observed("timeout", left_running=("sleep 600",)),
            "timeout, as expected, but left running: sleep 600",
        ),
    ],
)
def test_what_is_not_expected_is_told(expected: dict[str, Any], observed: Observed, problem: str) -> None:
    assert verdict(Expected.model_validate(expected), observed).startswith(problem)


# The runner, with hosts that are made up.


class ScriptedHost:
    """Answers every call as its script says."""

    def __init__(self, **script: Observed) -> None:
        self.script = script
        self.calls: list[tuple[str, str, Any, list[str], dict[str, float]]] = []

    async def call(
        self, folder: Path, tool: str, input: Any, *, grants: Sequence[str], timeouts: Mapping[str, float]
    ) -> Observed:
        assert any((folder / name).is_file() for name in (FILE_NAME, nexo_spec.FILE_NAME))
        self.calls.append((folder.name, tool, input, list(grants), dict(timeouts)))
        return self.script[folder.name]


class HostWithSituations(ScriptedHost):
    async def call_in(
        self,
        situation: Situation,
        folder: Path,
        tool: str,
        *,
        grants: Sequence[str],
        timeouts: Mapping[str, float],
    ) -> Observed:
        return Observed("timeout" if situation == "caller_cancels" else "internal")


class HostOfResidents(ScriptedHost):
    async def visit(self, folder: Path, entry: Entry) -> Observed:
        assert (folder / nexo_spec.FILE_NAME).is_file()
        return self.script[entry.name]


def entries(*names: str) -> list[Entry]:
    return [entry for entry in CATALOG if entry.name in names]


def test_a_host_is_called_as_the_catalogue_says_and_judged_by_what_it_observed(tmp_path: Path) -> None:
    host = ScriptedHost(
        silent_handshake=Observed("timeout"),
        capability_subset=Observed("crashed", message="oh"),
    )
    told: list[AxisResult] = []
    names = ("silent_handshake", "capability_subset")
    report = asyncio.run(run_catalog(host, entries(*names), tmp_path, on_axis=told.append))
    assert host.calls == [
        ("silent_handshake", "bad.tool", {}, [], {"handshake": 0.3}),
        ("capability_subset", "bad.tool", {}, ["a", "b"], {}),
    ]
    assert [(axis.id, axis.status) for axis in report.axes] == [
        ("rune.host.5.15.silent_handshake", Status.PASSED),
        ("rune.host.6.1.capability_subset", Status.FAILED),
    ]
    assert report.axes[1].detail == 'expected succeeded with {"said": "hello"}, got crashed: oh'
    assert tuple(told) == report.axes


def test_a_situation_needs_a_port_that_can_bring_it_about(tmp_path: Path) -> None:
    chosen = entries("slow_spawn", "cancelled_in_call")
    report = asyncio.run(run_catalog(ScriptedHost(), chosen, tmp_path / "one"))
    assert [axis.status for axis in report.axes] == [Status.SKIPPED, Status.SKIPPED]
    assert report.axes[0].detail == "the port cannot bring about slow_spawn"
    report = asyncio.run(run_catalog(HostWithSituations(), chosen, tmp_path / "two"))
    assert [axis.status for axis in report.axes] == [Status.FAILED, Status.PASSED]


def test_a_plugin_that_stays_needs_a_port_that_can_look_at_it(tmp_path: Path) -> None:
    chosen = [entry for entry in load_catalog("nexo") if entry.name in ("answer_twice", "tool_not_offered")]
    seen = {
        "answer_twice": Observed(None, {"said": "hello"}, counts={"late_answers": 1}, next="same"),
        "tool_not_offered": Observed("tool_not_exposed"),
    }
    report = asyncio.run(run_catalog(ScriptedHost(**seen), chosen, tmp_path / "one", contract="nexo"))
    assert [(axis.id, axis.status) for axis in report.axes] == [
        ("nexo.host.4.1.1.tool_not_offered", Status.PASSED),
        ("nexo.host.3.answer_twice", Status.SKIPPED),
    ]
    assert report.axes[1].detail == "the port cannot look at a plugin that stays"
    report = asyncio.run(run_catalog(HostOfResidents(**seen), chosen, tmp_path / "two", contract="nexo"))
    assert report.passed == 2


def test_a_host_that_never_comes_back_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(ScriptedHost):
        async def call(
            self, folder: Path, tool: str, input: Any, *, grants: Sequence[str], timeouts: Mapping[str, float]
        ) -> Observed:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets the event")

    monkeypatch.setattr("plugbay.conformance.bad_plugins.host_runner.CALL_SECONDS", 0.05)
    report = asyncio.run(run_catalog(Stuck(), entries("good"), tmp_path))
    assert report.axes[0].detail == "the host did not come back within 0.05 s"
