"""The matrix of all contracts with real processes: a source of each, adapted to each, hosted, called and crashed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.adapters.adapting import SOURCE, adapt, hosted
from tests.sdk.everywhere import CONTRACTS, REACHES, Outcome, Reach, written
from tests.support.commands import plugbay
from tests.support.patience import PATIENCE
from tests.support.tiers import exhaustive, these

PAIRS = [(source, target) for source in CONTRACTS for target in CONTRACTS]
SAMPLE = {
    ("mcp", "nexo"),
    ("nexo", "rune"),
    ("rune", "vai"),
    ("vai", "mcp"),
    ("kaged", "ainb"),
    ("ainb", "kaged"),
}
"""Each contract is a source and a target once."""


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the source, with a manifest of every contract."""
    return written(tmp_path_factory.mktemp("source"), SOURCE)


def call(reach: Reach, contract: str, tool: str, given: dict[str, object]) -> Outcome:
    """Call a tool of a source. Those of nexo have the id in their names; those of ainb are words of a command line."""
    if contract == "nexo":
        return reach.call(f"example_source_{tool}", given)
    if contract != "ainb":
        return reach.call(tool, given)
    words = [tool, json.dumps(given)]
    if reach.contract == "ainb":
        ran = reach.host.run_cli("example.source", words, timeout=PATIENCE)
        return command_outcome(ran.stdout.decode(), ran.stderr.decode(), ran.exit_code)
    done = reach.call(next(iter(reach.plugin.tools)), {"argv": words})
    return done if done.code else command_outcome(**done.value)


def command_outcome(stdout: str, stderr: str, exit_code: int) -> Outcome:
    if exit_code == 0:
        return Outcome(json.loads(stdout))
    code, _, message = stderr.rstrip("\n").partition(": ")
    return Outcome(code=code, message=message)


@exhaustive
@pytest.mark.parametrize("target", CONTRACTS)
def test_an_adapter_conforms_to_its_target(source: Path, tmp_path: Path, target: str) -> None:
    folder, _ = adapt(source / "rterm-plugin.json", target, tmp_path, only=["*/echo"])
    done = plugbay("conform", folder, cwd=tmp_path, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stdout.decode()
    assert f"{target}: conforms" in done.stdout.decode()


@pytest.mark.parametrize("pair", these(PAIRS, SAMPLE.__contains__), ids="-to-".join)
def test_a_source_of_each_contract_works_in_hosts_of_each(source: Path, tmp_path: Path, pair: tuple[str, str]) -> None:
    contract, target = pair
    folder, pin = adapt(source / REACHES[contract].manifest, target, tmp_path)
    with hosted(folder, pin, tmp_path) as reach:
        assert call(reach, contract, "echo", {"text": "hello"}).value == {"text": "hello"}
        failed = call(reach, contract, "fail", {"reason": "no such thing"})
        assert failed.code in ("invalid_input", "plugin_error")
        assert "no such thing" in failed.message
        assert call(reach, contract, "die", {}).code
        assert call(reach, contract, "echo", {"text": "again"}).value == {"text": "again"}
