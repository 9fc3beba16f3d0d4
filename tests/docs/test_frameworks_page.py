"""The agents of the page about frameworks run: real frameworks, real plugins, a scripted model."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.test_snippets import ROOT, snippets
from tests.support.frameworks import FrameworkEnvironment
from tests.support.scripted_model import Turn, scripted_model
from tests.support.tiers import exhaustive

(PAGE,) = (ROOT / "docs").rglob("frameworks.md")
AGENTS = {kind.removeprefix("agent "): body for kind, _, body, _ in snippets(PAGE) if kind.startswith("agent ")}
ADAPTERS = {"pydantic-ai", "openai-agents", "langchain"}
LONGEST = 30
"""Lines of a program."""


def pins(path: Path) -> dict[str, str]:
    lines = (line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


PINNED = pins(ROOT / "tests/frameworks/requirements.txt")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FrameworkEnvironment:
    return FrameworkEnvironment(tmp_path_factory.mktemp("frameworks") / "env")


def test_the_page_has_each_framework_in_few_lines() -> None:
    assert set(AGENTS) == ADAPTERS | {"anthropic", "openai", "chat", "langchain-sync"}
    assert all(len(body.splitlines()) <= LONGEST for body in AGENTS.values())


@exhaustive
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_uses_plugins_and_reads_their_errors(agent: str, environment: FrameworkEnvironment) -> None:
    turns: tuple[Turn, ...] = (
        [("example_greeter__greet", {"name": "Ada"})],
        [("example_greeter__divide", {"dividend": 1, "divisor": 0}), ("example_greeter__greet", {"nam": "Eve"})],
        "Hello, Ada. I cannot divide by zero.",
    )
    with scripted_model(*turns) as model:
        said = environment.run(AGENTS[agent], model.environment)
    assert f"```text\n{said}```" in PAGE.read_text("utf-8")
    assert model.offered() == ["example_greeter__greet", "example_greeter__divide"]
    greeting, division, mistake = model.results()
    assert greeting == '{"text":"Hello, Ada."}'
    assert "invalid_input: the divisor must not be 0" in division
    assert "is a required property" in mistake


def test_the_frameworks_that_are_tested_fit_the_extras_and_their_libraries_fit_the_constraints() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [text for name in sorted(ADAPTERS) for text in project["optional-dependencies"][name]]
    required = [Requirement(text) for text in (*extras, *project["dependencies"])]
    for requirement in required:
        if canonicalize_name(requirement.name) != "plugbay-sdk":
            assert PINNED[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    constraints = pins(ROOT / "constraints.txt")
    shared = PINNED.keys() & constraints.keys()
    assert len(shared) > 20
    assert {name: PINNED[name] for name in shared} == {name: constraints[name] for name in shared}
