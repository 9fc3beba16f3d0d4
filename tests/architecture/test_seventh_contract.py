"""A seventh contract needs a folder of its own and an entry in the registry; every other file stays as it is.

The test copies the folder of a contract, renames it inside, registers it, and uses it in another process with a real
host and a real plugin. It fails when the host decides by the name of a contract.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture import SOURCE
from tests.support.patience import PATIENCE
from tests.support.tiers import first_alone, later

DATA = Path(__file__).parent / "seventh"

TUPLE = "(RUNE, NEXO, KAGED, AINB, VAI, MCP)"
IMPORT = "from plugbay.contracts.rune.contract import CONTRACT as RUNE\n"


class Sketch(NamedTuple):
    """A copy of a contract, and the folder of a plugin for it."""

    original: str
    plugin: str
    edits: dict[str, str]
    """All changes in the copied folder: text → text."""
    output: str = ""
    """The key of the tool's value in a result, where the contract has one."""


SKETCHES = [
    Sketch(
        "rune",
        "per_call",
        {"rune": "sketch", "Rune": "Sketch", "rterm.plugin.v1": "sketch.v1", "rterm-plugin.json": "sketch-plugin.json"},
    ),
    Sketch("nexo", "resident", {"nexo": "sketch", "Nexo": "Sketch"}),
    Sketch(
        "vai",
        "framed",
        {
            "plugbay.contracts.vai": "plugbay.contracts.sketch",
            '"vai"': '"sketch"',
            "vai.rpc.v1": "sketch.rpc.v1",
            "vai.plugin.v1": "sketch.plugin.v1",
            "vai-plugin.toml": "sketch-plugin.toml",
        },
        "structured_output",
    ),
    Sketch(
        "mcp",
        "at_run_time",
        {
            "plugbay.contracts.mcp": "plugbay.contracts.sketch",
            '"mcp"': '"sketch"',
            ".mcp.json": ".sketch.json",
            '"manifest.json"': '"sketch-bundle.json"',
        },
        "structuredContent",
    ),
]


@pytest.fixture(scope="module")
def tree_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sketch], Path]:
    """One tree for each sketch: its bytecode is compiled once."""
    trees: dict[str, Path] = {}

    def tree_of(sketch: Sketch) -> Path:
        if sketch.original not in trees:
            trees[sketch.original] = build_tree(tmp_path_factory.mktemp(sketch.original), sketch)
        return trees[sketch.original]

    return tree_of


def build_tree(root: Path, sketch: Sketch) -> Path:
    """A source tree of links to ours, with the copied contract and an edited registry; for PYTHONPATH."""
    package = root / "plugbay"
    (package / "contracts").mkdir(parents=True)
    for file in SOURCE.iterdir():
        if file.name != "contracts":
            (package / file.name).symlink_to(file)
    for file in (SOURCE / "contracts").iterdir():
        if file.name != "registry.py":
            (package / "contracts" / file.name).symlink_to(file)

    copy = package / "contracts" / "sketch"
    copy.mkdir()
    for file in (SOURCE / "contracts" / sketch.original).glob("*.py"):
        text = file.read_text("utf-8")
        for old, new in sketch.edits.items():
            text = text.replace(old, new)
        (copy / file.name).write_text(text, "utf-8")

    registry = (SOURCE / "contracts" / "registry.py").read_text("utf-8")
    assert TUPLE in registry and IMPORT in registry
    added = f"{IMPORT}from plugbay.contracts.sketch.contract import CONTRACT as SKETCH\n"
    registry = registry.replace(IMPORT, added).replace(TUPLE, f"{TUPLE[:-1]}, SKETCH)")
    (package / "contracts" / "registry.py").write_text(registry, "utf-8")
    return root


def run(tree: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(tree), "NO_COLOR": "1"}
    return subprocess.run([sys.executable, *map(str, words)], env=env, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("sketch", first_alone(SKETCHES), ids=lambda sketch: sketch.original)
def test_a_copied_contract_is_discovered_greeted_called_tapped_and_recorded(
    sketch: Sketch, tree_of: Callable[[Sketch], Path], tmp_path: Path
) -> None:
    tree, plugin = tree_of(sketch), DATA / sketch.plugin
    done = run(tree, DATA / "use.py", plugin, tmp_path / "recordings", tmp_path / "state")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["contract"] == "sketch"
    outputs = [result.get(sketch.output, result) for result in seen["results"]]
    assert outputs == [{"doubled": 42}, {"doubled": 8}]
    assert (seen["directions"], seen["problems"]) == (["host", "plugin"], [])

    (recording,) = (tmp_path / "recordings").rglob("*.jsonl")
    assert json.loads(recording.read_text("utf-8").splitlines()[0])["contract"] == "sketch"
    played = run(tree, "-m", "plugbay", "replay", recording, "--as-host", "--", "python3", plugin / "plugin.py")
    assert played.returncode == 0, played.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("conform", DATA / "per_call"), "no conformance scenarios for 'sketch'"),
        later(("conform", "--contract", "sketch", "--", "true"), "cannot be tested without its manifest"),
        later(("badplugins", "list", "sketch"), "there is no contract 'sketch'"),
        later(("new", "thing", "--contract", "sketch"), "sketch is not a contract"),
        later(("manifest", ".", "--contract", "sketch"), "there is no contract 'sketch'"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_tool_without_support_for_a_contract_says_so(
    words: tuple[str | Path, ...], reason: str, tree_of: Callable[[Sketch], Path]
) -> None:
    done = run(tree_of(SKETCHES[0]), "-m", "plugbay", *words)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert reason in " ".join(done.stderr.split()), done.stderr
