"""Views of the outcome of a call, with values: no process is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugbay.cli.exit_codes import Refusal
from plugbay.cli.render import call_view, output
from plugbay.cli.render.call_view import CallOutcome, HumanView, JsonView, StepPrinter
from plugbay.host.discovery.folders import Found
from plugbay.host.ports import CallRecord
from plugbay.model.errors import Code, Failure, Origin, Problem


@pytest.fixture(autouse=True)
def _fresh_printers() -> None:
    """A printer keeps the stream it was made for, and each test has its own."""
    output.out.cache_clear()
    output.err.cache_clear()


def record(failure: Failure | None = None) -> CallRecord:
    return CallRecord("call_00", "example.x", "1.0.0", "rune", "tool", 0.0, 12.5, failure)


def said(capsys: pytest.CaptureFixture[str], failure: Failure) -> str:
    HumanView().show_outcome(CallOutcome("tool", record(failure)))
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_an_ending_has_the_status_of_its_failure_unless_a_signal_came_first() -> None:
    assert CallOutcome("tool", record()).status == 0
    assert CallOutcome("tool", record(Failure(Code.TIMEOUT, "slow"))).status == 8
    assert CallOutcome("tool", record(Failure(Code.TIMEOUT, "slow")), status=130).status == 130
    assert CallOutcome("tool", None, status=143).interrupted


def test_a_failure_is_reported_in_a_readable_block(capsys: pytest.CaptureFixture[str]) -> None:
    detail = {
        "cause": "the plugin ended early (exit code 1): requests is not installed",
        "exit": "exit code 1",
        "exit_code": 1,
        "signal": None,
        "hint": "run: pip install requests",
        "stderr_tail": [f"line {number}" for number in range(20)],
    }
    lines = said(capsys, Failure(Code.CRASHED, "it closed its output", origin=Origin.PLUGIN, detail=detail))
    assert lines.splitlines()[:6] == [
        "✗ example.x/tool · crashed · 12 ms · call_00",
        "  exit      exit code 1",
        "  it closed its output",
        "  cause     the plugin ended early (exit code 1): requests is not installed",
        "  stderr    line 10",
        "            line 11",
    ]
    assert lines.endswith("            line 19\n  hint      run: pip install requests\n")


def test_a_cause_that_says_no_more_than_the_exit_status_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    detail = {"cause": "the plugin ended early (exit code 1)", "exit": "exit code 1"}
    assert "cause" not in said(capsys, Failure(Code.CRASHED, "gone", detail=detail))


def test_every_error_of_an_input_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    errors = [{"path": "a", "rule": "is wrong"}, {"path": "b", "rule": "is missing"}]
    text = said(capsys, Failure(Code.INVALID_INPUT, "a: is wrong", detail={"errors": errors}))
    assert text.count("a: is wrong") == 1
    assert "b: is missing" in text


def test_details_without_a_field_of_their_own_are_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    detail = {"command": ["./run me", "-x"], "errno": "ENOENT", "nested": {"not": "shown"}}
    text = said(capsys, Failure(Code.LAUNCH_FAILED, "no start", detail=detail))
    assert "  command   './run me' -x\n" in text
    assert "  errno     ENOENT\n" in text
    assert "nested" not in text


def test_a_code_brings_its_default_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--timeout" in said(capsys, Failure(Code.TIMEOUT, "slow"))
    assert "--timeout" not in said(capsys, Failure(Code.TIMEOUT, "slow", detail={"hint": "another"}))


def test_the_authors_own_code_counts_where_a_contract_has_a_number_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    call_view.show_failure(
        Failure(Code.PLUGIN_ERROR, "no", detail={"plugin_code": -32000, "data": {"code": "git_failed"}})
    )
    call_view.show_failure(Failure(Code.PLUGIN_ERROR, "no", detail={"plugin_code": -32000, "data": "x"}))
    assert [line for line in capsys.readouterr().err.splitlines() if "code" in line] == [
        "  own code  git_failed",
        "  own code  -32000",
    ]


def test_which_of_several_manifests_was_taken_is_a_note(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    choice = Problem("several_manifests", "", "used as rune; …", severity="warning")
    call_view.HumanView().show_warnings([Found(tmp_path, "rune", None, (choice,))], ())
    assert capsys.readouterr().err == "note:  used as rune; …\n"


def test_a_message_of_several_lines_stays_in_its_block(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, Failure(Code.PLUGIN_ERROR, "first\nerror: forged\x1b[2K", origin=Origin.PLUGIN))
    assert "\n  first\n  error: forged\\x1b[2K\n" in text


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Failure(Code.CANCELLED, "gone"), "cancelled"),
        (Failure(Code.OVERLOADED, "busy", retryable=True, retry_after_ms=50), "retryable_failure"),
        (Failure(Code.CRASHED, "dead"), "failed"),
    ],
)
def test_the_json_tells_the_four_outcomes_apart(
    capsys: pytest.CaptureFixture[str], failure: Failure, status: str
) -> None:
    JsonView().show_outcome(CallOutcome("tool", record(failure)))
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == status
    assert answer["failure"]["retry_after_ms"] == failure.retry_after_ms


def test_a_call_that_was_interrupted_before_it_began_is_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    JsonView().show_outcome(CallOutcome("tool", None, status=130))
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "cancelled"
    assert answer["plugin"] == {"id": None, "version": None, "contract": None}
    HumanView().show_outcome(CallOutcome("tool", None, status=130))
    assert capsys.readouterr().err == "✗ tool · interrupted\n"


def test_an_unknown_id_names_the_nearest_or_all_ids() -> None:
    assert "did you mean 'weather'?" in call_view.unknown_id("wether", ["weather", "news"]).message
    assert "known ids: weather, news" in call_view.unknown_id("zzz", ["weather", "news"]).message


def test_nothing_usable_is_not_found_or_broken() -> None:
    absent = Found(Path("x"), "", None, (Problem("not_found", "", "none"),))
    broken = Found(Path("x"), "rune", None, (Problem("parse_error", "", "not JSON", line=1),))
    assert call_view.no_usable_plugin(Path("x"), []).code == Code.NOT_FOUND
    assert call_view.no_usable_plugin(Path("x"), [absent]).code == Code.NOT_FOUND
    failure = call_view.no_usable_plugin(Path("x"), [absent, broken])
    assert failure.code == Code.UNAVAILABLE
    assert failure.detail["problems"][0]["code"] == "parse_error"


def test_a_refusal_has_the_status_of_its_failure_or_its_own() -> None:
    failure = call_view.invalid_input("no")
    assert Refusal(failure).status == 2
    assert Refusal(failure, status=3).status == 3


def test_steps_are_printed_with_the_time_since_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    step = StepPrinter()
    step("host.call")
    step("link.call")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "     0.00 ms  host.call"
    assert second.endswith(" ms  link.call")
