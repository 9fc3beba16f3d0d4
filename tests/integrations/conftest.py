"""Tools of a plugin, used through an agent framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.frameworks import FrameworkEnvironment
from tests.support.plugins import write_plugin


@pytest.fixture(scope="session")
def frameworks(tmp_path_factory: pytest.TempPathFactory) -> FrameworkEnvironment:
    return FrameworkEnvironment(tmp_path_factory.mktemp("frameworks") / "env")


@pytest.fixture
def plugins(tmp_path: Path) -> str:
    """A folder with the plugin `p`, whose tool `t` answers with its input and wants the integer `n`."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    write_plugin(tmp_path, "p", tools=[{"name": "t", "description": "Says it again.", "input_schema": schema}])
    return str(tmp_path)
