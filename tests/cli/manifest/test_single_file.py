"""A Python file with a `Plugin` is inspected, called, tapped and served as it is, without a manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugbay.cli.manifest.generated import Unusable
from plugbay.cli.manifest.single_file import plugin_in
from tests.cli.conftest import Run
from tests.server.test_server import served

TEA = '''
from plugbay.sdk import Plugin

plugin = Plugin("example.tea", version="1.0.0")

@plugin.tool()
def brew(kind: str, minutes: int = 3) -> str:
    """Brew tea."""
    return f"{kind} for {minutes} min"
'''
RUNS = '\nif __name__ == "__main__":\n    plugin.run()\n'
HOOK = '\n@plugin.hook("before_message")\ndef look(event: dict) -> None:\n    pass\n'


def write(folder: Path, text: str = TEA + RUNS) -> Path:
    file = folder / "tea.py"
    file.write_text(text)
    return file


def test_the_manifest_that_would_be_written_is_used(tmp_path: Path) -> None:
    found = plugin_in(write(tmp_path))
    assert found.spec is not None and found.contract == "rune"
    assert (found.spec.id, found.spec.root, found.spec.command) == ("example.tea", tmp_path, ("python3", "tea.py"))
    assert [export.name for export in found.spec.exports] == ["brew"]
    assert list(tmp_path.iterdir()) == [tmp_path / "tea.py"]


def test_the_contract_is_the_preferred_one_or_one_that_leaves_nothing_out(tmp_path: Path) -> None:
    file = write(tmp_path, TEA + HOOK + RUNS)
    chosen = plugin_in(file)
    assert chosen.contract == "nexo" and not chosen.problems
    assert plugin_in(file, "kaged").contract == "kaged"
    preferred = plugin_in(file, "rune")
    assert preferred.contract == "rune"
    assert [problem.code for problem in preferred.problems] == ["left_out"]


def test_a_file_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"'\(' was never closed"):
        plugin_in(write(tmp_path, "x = ("))
    with pytest.raises(Unusable, match=r"tea\.py"):
        plugin_in(write(tmp_path, "x = 1"))


def test_the_commands_take_it(run: Run, cwd: Path) -> None:
    write(cwd)
    assert run("inspect", "tea.py", "--json").json["id"] == "example.tea"
    assert run("call", "tea.py", "brew", "kind=green", "minutes=5").json == "green for 5 min"
    assert run("call", "./tea.py", "brew", '{"kind": "green"}').json == "green for 3 min"
    assert "→ brew" in run("tap", "tea.py", "--call", "brew", '{"kind": "green"}').out
    assert sorted(path.name for path in cwd.iterdir() if path.name != "__pycache__") == ["tea.py"]
    refused = run("conform", "tea.py", "--contract", "vai")
    assert refused.code == 3 and "cannot be a plugin of vai without more files" in refused.err
    write(cwd, "x = (")
    assert run("inspect", "tea.py").code == 3
    assert run("call", "none.py", "brew").code == 4


def test_a_server_serves_it(tmp_path: Path) -> None:
    with served(tmp_path, str(write(tmp_path)), "--grant-all") as server, server.client() as client:
        called = client.post("/api/v1/calls", json={"export": "example.tea/brew", "input": {"kind": "green"}})
        assert called.json()["output"] == "green for 3 min", json.dumps(called.json())
        assert server.end() == 0
