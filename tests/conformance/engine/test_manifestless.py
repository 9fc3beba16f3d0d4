"""A program without a manifest is greeted, and taken at its word."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from plugbay.conformance.engine.manifestless import GreetingFailed, spec_from_greeting
from plugbay.conformance.engine.plugin_runner import run_conformance
from plugbay.conformance.reports.report import Status
from tests.conformance import kaged_plugins, nexo_plugins, plugins
from tests.support.canaries import PROGRAMS
from tests.support.requirements import requirement


def program(folder: Path, source: str) -> tuple[str, ...]:
    (folder / "program.py").write_text(source, "utf-8")
    return (sys.executable, "-I", "-S", "program.py")


SOURCES = {"rune": plugins.PYTHON, "nexo": nexo_plugins.SOURCE, "kaged": kaged_plugins.SOURCE}


@pytest.mark.parametrize("contract", sorted(SOURCES))
def test_a_program_that_says_who_it_is_can_be_held_to_its_contract(contract: str, tmp_path: Path) -> None:
    spec = spec_from_greeting(contract, program(tmp_path, SOURCES[contract]), tmp_path)
    assert spec.contract == contract
    assert [export for export in spec.exports if export.kind == "tool"]
    rule = {"rune": "rune.handshake.exposes_tools"}.get(contract, f"{contract}.tool.answers")
    assert run_conformance(spec, only=[rule]).axis(rule).status is Status.PASSED


def test_what_a_rune_program_says_is_its_manifest(tmp_path: Path) -> None:
    spec = spec_from_greeting("rune", program(tmp_path, plugins.PYTHON), tmp_path)
    assert (spec.id, spec.version, spec.capabilities) == ("example.good", "1.0.0", ("tool.execute",))
    assert [export.name for export in spec.exports] == ["example.echo", "example.size"]
    assert spec.command[-1] == "program.py"


@pytest.mark.parametrize("contract", ["ainb", "vai"])
def test_contracts_that_know_a_plugin_by_its_manifest_say_so(contract: str, tmp_path: Path) -> None:
    with pytest.raises(GreetingFailed, match="cannot be tested without its manifest; name its folder"):
        spec_from_greeting(contract, ("true",), tmp_path)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "import sys; sys.exit('no luck today')",
            "exited without an answer .*; its last line on stderr: no luck today",
        ),
        ("print('welcome')", "wrote welcome, which is .*, and exited .* when it was greeted as a plugin of rune"),
        ('print(\'{"type": "handshake"}\')', "answered the greeting of rune with .*: it has no 'manifest'"),
        ('print(\'{"manifest": {"plugin_id": 7, "plugin_version": "1", "exposed_tools": []}}\')', "plugin_id"),
    ],
)
def test_a_program_that_does_not_say_who_it_is_is_told_so(source: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(GreetingFailed, match=words):
        spec_from_greeting("rune", program(tmp_path, source), tmp_path)


def test_a_program_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    with pytest.raises(GreetingFailed, match="nothing-here cannot be started"):
        spec_from_greeting("nexo", ("./nothing-here",), tmp_path)


def test_a_program_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugbay.conformance.engine.manifestless.ANSWER_SECONDS", 0.2)
    with pytest.raises(GreetingFailed, match=r"did not answer within 0\.2 s"):
        spec_from_greeting("kaged", ("sleep", "600"), tmp_path)


@requirement("mcp:kit-command")
def test_a_server_of_mcp_is_known_by_its_command_and_says_the_rest_when_it_is_tried(tmp_path: Path) -> None:
    folder = PROGRAMS / "mcp"
    spec = spec_from_greeting("mcp", (sys.executable, "-E", "-S", "canary.py"), folder)
    assert (spec.contract, spec.exports) == ("mcp", ())
    report = run_conformance(spec, only=["mcp.calls.result"])
    assert report.axis("mcp.calls").status is Status.PASSED
