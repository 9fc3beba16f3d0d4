"""A plugin whose manifest says nothing of its exports is greeted, and says it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.acquaintance import hello_of
from plugbay.conformance.dialects import dialect
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from tests.support.canaries import PROGRAMS
from tests.support.requirements import requirement

CANARY = PROGRAMS / "mcp"


def hello(folder: Path, *command: str) -> Mapping[str, Any] | None:
    spoken = dialect("mcp")
    assert spoken is not None

    async def meet() -> Mapping[str, Any] | None:
        spawner = Spawner()
        try:
            return await hello_of(PluginSpec("p", "0", "mcp", folder, command), spoken, spawner)
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
