"""The catalogue of bad plugins is complete and sound, and the runner judges a host by it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from plugbay.conformance.host_runner import (
    FOLDER,
    INTERPRETERS,
    VERDICTS,
    Entry,
    Expected,
    Observed,
    Situation,
    load_catalog,
    prepare,
    run_catalog,
    verdict,
)
from plugbay.conformance.report import AxisResult, Status
from plugbay.contracts.rune.manifest import FILE_NAME, parse
from plugbay.model.errors import CODES

RUNE = FOLDER / "rune"
CATALOG = load_catalog("rune")


# The catalogue.


def test_every_row_of_the_table_of_situations_has_an_entry() -> None:
    assert {entry.row for entry in CATALOG if entry.row.startswith("5.")} == {f"5.{row}" for row in range(1, 41)}


def test_every_capability_rule_has_an_entry() -> None:
    assert {entry.row for entry in CATALOG if entry.row.startswith("6.")} == {f"6.{rule}" for rule in range(1, 8)}


def test_each_of_the_nine_codes_is_expected_somewhere() -> None:
    assert {entry.expect.code for entry in CATALOG} >= VERDICTS
    assert len(VERDICTS) == 9
    assert VERDICTS < CODES


def test_every_file_is_used_and_every_used_file_is_there() -> None:
    used = {entry.file for entry in CATALOG if entry.file is not None}
    assert used == {path.name for path in RUNE.iterdir() if path.is_file()} - {"catalog.json"}


def test_no_two_entries_share_a_name() -> None:
    names = [entry.name for entry in CATALOG]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", sorted(RUNE.glob("*.sh")) + sorted(RUNE.glob("*.py")), ids=lambda path: path.name)
def test_a_bad_plugin_opens_by_saying_what_it_does_wrong_and_what_must_come_of_it(path: Path) -> None:
    head = "\n".join(path.read_text("utf-8").splitlines()[:4])
    outcome = "|".join(
        (
            *VERDICTS,
            "accepted",
            "plugin's own error",
            "positive control",
            "recorded as",
            "not executable",
            "execute bit",
        )
    )
    assert re.search(outcome, head), head


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.name)
def test_an_entry_becomes_a_folder_whose_manifest_is_right_where_it_should_be(entry: Entry, tmp_path: Path) -> None:
    root = prepare(entry, tmp_path)
    spec, problems = parse((root / FILE_NAME).read_text("utf-8"), root)
    if entry.expect.outcome == "refused" and entry.tool:
        assert spec is None
        return
    assert spec is not None, problems
    assert spec.id == entry.plugin_id
    assert entry.tool in [export.name for export in spec.exports] or not entry.tool
    if entry.file is not None:
        assert ((root / entry.file).stat().st_mode & 0o111 != 0) is entry.executable


def test_a_script_is_handed_to_its_interpreter(tmp_path: Path) -> None:
    by_name = {entry.name: entry for entry in CATALOG}
    for name, file in (("good", "good.sh"), ("deep_json", "deep_json.py")):
        root = prepare(by_name[name], tmp_path)
        process = json.loads((root / FILE_NAME).read_text("utf-8"))["process"]
        assert [process["command"], *process["args"]] == [*INTERPRETERS[Path(file).suffix], file]


BASE = {"name": "x", "file": None, "row": "5.1", "what": "does it wrong", "expect": {"code": "timeout"}}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"expect": {"code": "tiemout"}}, "'tiemout' is not a failure code"),
        ({"expect": {}}, "give either code or outcome"),
        ({"expect": {"code": "timeout", "outcome": "succeeded"}}, "give either code or outcome"),
        ({"situation": "earthquake"}, "situation"),
        ({"timeouts": {"handshke": 1}}, "there is no timeout called 'handshke'"),
        ({"input": {"$txt": 5}}, "is not a generator"),
        ({"rwo": "5.2"}, "rwo"),
    ],
)
def test_an_entry_that_means_nothing_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(problem)):
        Entry.model_validate({**BASE, **change})


def test_an_input_is_made_as_large_as_it_says() -> None:
    entry = Entry.model_validate({**BASE, "input": {"text": {"$text": 100_000}}})
    assert len(entry.given()["text"]) == 100_000


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
        assert (folder / FILE_NAME).is_file()
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


def test_a_host_that_never_comes_back_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(ScriptedHost):
        async def call(
            self, folder: Path, tool: str, input: Any, *, grants: Sequence[str], timeouts: Mapping[str, float]
        ) -> Observed:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets the event")

    monkeypatch.setattr("plugbay.conformance.host_runner.CALL_SECONDS", 0.05)
    report = asyncio.run(run_catalog(Stuck(), entries("good"), tmp_path))
    assert report.axes[0].detail == "the host did not come back within 0.05 s"
