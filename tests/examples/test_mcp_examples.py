"""The MCP example at work: a server in plain JavaScript, hosted, called, and held to its contract."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay import CallFailed, Host
from plugbay.conformance.engine.plugin_runner import Status, run_conformance
from plugbay.host.discovery.folders import inspect
from tests.examples import EVERY_CONTRACT
from tests.support.loops import Run
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/.mcp.json") if path.parent.name != EVERY_CONTRACT)
NOTEBOOK = EXAMPLES / "notebook-js"


def test_there_is_an_example_without_any_sdk() -> None:
    assert FOLDERS == [NOTEBOOK]
    assert "plugbay" not in (NOTEBOOK / "server.mjs").read_text("utf-8")
    assert (NOTEBOOK / "README.md").exists()


@exhaustive
@requirement("mcp:kit-example")
def test_the_notebook_conforms() -> None:
    found = inspect(NOTEBOOK)
    assert found.spec is not None and found.problems == ()
    report = run_conformance(found.spec)
    assert {axis.id: axis.detail for axis in report.axes if axis.status is not Status.PASSED} == {
        "mcp.logging": "the server declares no logging"
    }


@requirement("mcp:kit-example")
def test_the_notebook_keeps_notes_finds_them_and_refuses_what_makes_no_sense(run: Run) -> None:
    async def main() -> None:
        async with Host.load(NOTEBOOK, grant_all=True, unconfined=True) as host:

            async def call(name: str, **given: Any) -> Any:
                answer: Any = await host.call(f"notebook-js/{name}", given, timeout=PATIENCE)
                return answer

            written = await call("write_note", title="mate", text="Mate wants 75 °C.")
            assert written["structuredContent"] == {"notes": 3}
            assert (await call("search_notes", query="°c"))["structuredContent"]["found"] == ["tea", "coffee", "mate"]
            prompt = await call("explain", title="mate", audience="a child")
            assert prompt["messages"][0]["content"]["text"] == "Explain to a child: Mate wants 75 °C."
            assert (await call("tea"))["contents"][0]["text"].startswith("Green tea")
            with pytest.raises(CallFailed, match="there is no note rooibos"):
                await call("explain", title="rooibos")

    run(main)


def test_the_commands_of_the_readme_work() -> None:
    words = ["call", str(NOTEBOOK), "search_notes", '{"query": "tea"}', "--grant-all", "--no-sandbox", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "plugbay", *words], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"]["structuredContent"] == {"found": ["tea"]}
