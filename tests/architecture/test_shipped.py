"""Each module that is shipped is used: by another module, or from outside for a reason that is listed here."""

from __future__ import annotations

from pathlib import Path

import grimp
import pytest

from plugbay.cli.commands import COMMANDS, GROUPS
from tests.architecture import write_tree

ENTRY_POINTS = {
    "plugbay.__main__": "`python -m plugbay`",
    "plugbay.adapters.__main__": "the program of an adapter",
    "plugbay.adapters.linger": "a program: adapters for rune start it",
    "plugbay.mcp_remote.__main__": "the program of an MCP server on the network",
    "plugbay.conformance.bad_plugins.host_runner": "for authors of other hosts: docs/conformance.md",
    "plugbay.integrations.langchain": "for applications: docs/frameworks.md",
    "plugbay.integrations.openai_agents": "for applications: docs/frameworks.md",
    "plugbay.integrations.pydantic_ai": "for applications: docs/frameworks.md",
    "plugbay.sdk.describe": "a program: `plugbay manifest` starts it",
    "plugbay.server.domain.catalogue": "a folder of bundled plugins",
    "plugbay.testing.child": "a program: the fixtures start it",
    "plugbay.testing.pytest_plugin": "an entry point of pytest",
}
FOLDERS = ("plugbay.conformance.bad_plugins.programs.", "plugbay.store.migrations.")
"""Programs that are started, and modules that Alembic finds."""


def unused_modules(package: str) -> set[str]:
    """The modules that no other module imports. Packages count as used: their modules are judged by themselves."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {
        module
        for module in graph.modules
        if not graph.find_children(module) and not graph.find_modules_that_directly_import(module)
    }


def named_by_commands() -> set[str]:
    """The modules that the list of commands names: the command line loads only the one that is called."""
    return {home.partition(":")[0] for each in (COMMANDS | GROUPS).values() for home in (each.home, each.parser)}


def test_every_module_is_used_or_an_entry_point() -> None:
    unused = unused_modules("plugbay") - named_by_commands()
    assert {module for module in unused if not module.startswith(FOLDERS)} == set(ENTRY_POINTS)


def test_a_module_that_nothing_imports_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"__init__.py": "", "used.py": "", "user.py": "from seeded_package import used\n"}
    write_tree(tmp_path / "seeded_package", files)
    monkeypatch.syspath_prepend(tmp_path)
    assert unused_modules("seeded_package") == {"seeded_package.user"}
