"""`--help` is complete, plain in a pipe, and fast."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
import typer

from plugbay.cli.app import app_for, load
from plugbay.cli.commands import COMMANDS as LISTED
from plugbay.cli.commands import GROUPS as LISTED_GROUPS
from plugbay.cli.gateway.resources import RESOURCES
from plugbay.cli.help import paragraphs
from plugbay.cli.overview import FIRST_STEPS
from tests.cli.conftest import Run

COMMANDS = [
    "inspect adapt call conform manifest new run render ps sandbox doctor tui tap replay dev attach",
    "pack keygen sign verify push pull search install outdated upgrade list rollback pin unpin uninstall",
    "serve migrate node nodes dashboard logs start stop restart reload grant revoke prune",
    "publish events hook compact",
    "paths help",
]
NAMES = " ".join(COMMANDS).split()
GROUPS = ["badplugins", "config", "mcp", "memory", "trust"]


def test_the_first_page_lists_every_command_and_every_status(run: Run) -> None:
    done = run("--help")
    assert done.code == 0
    assert done.err == ""
    assert done.out.startswith(
        "Run AI-agent plugins: separate processes that speak JSON over stdio.\n\nUsage: plugbay COMMAND …\n"
    )
    sections = done.out.split("\n\nOptions\n")[0].split("\n\n")[2:]
    assert sections[0].startswith("Use plugins\n")
    listed = [line.split()[0] for section in sections for line in section.splitlines()[1:]]
    assert sorted(listed) == sorted([*NAMES, *GROUPS, *RESOURCES])
    for words in ("0 ok", "5 not granted", "10 the plugin returned an error", "--version"):
        assert words in done.out


@pytest.mark.parametrize("command", NAMES)
def test_each_command_explains_itself(run: Run, command: str) -> None:
    done = run(command, "-h")
    assert done.code == 0
    assert f"Usage: plugbay {command}" in done.out
    assert "--json" in done.out or command in ("run", "tui")  # where what is shown is the plugin's own
    assert "<bool>" not in done.out
    assert "\x1b" not in done.out
    assert all(line == line.rstrip() for line in done.out.splitlines())


def test_the_page_of_call_names_its_arguments_options_and_examples(run: Run) -> None:
    page = run("call", "--help").out
    assert "Usage: plugbay call PATH EXPORT [JSON|-|KEY=VALUE…] [OPTIONS]" in page
    for option in (
        "--timeout S",
        "--grant CAP",
        "--grant-all",
        "--context JSON",
        "--config FILE",
        "--plugins DIR",
    ):
        assert option in page
    assert "Examples\n  plugbay call" in page


def test_options_stand_first_where_the_rest_of_the_line_belongs_to_a_plugin(run: Run) -> None:
    assert "Usage: plugbay run [OPTIONS] NAMESPACE" in run("run", "--help").out


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["sandbox"], "sandbox PATH [OPTIONS] [-- CMD…]"),
        (["mcp", "add"], "mcp add NAME [OPTIONS] -- CMD… | FILE.mcpb | URL"),
        (["conform"], "conform [PATH] [OPTIONS] [-- CMD…]"),
        (["sign"], "sign PACKAGE --key FILE [OPTIONS]"),
        (["trust", "add"], "trust add FILE --publisher NAME [OPTIONS]"),
    ],
)
def test_the_usage_can_be_typed_as_it_stands(run: Run, words: list[str], usage: str) -> None:
    assert f"Usage: plugbay {usage}\n" in run(*words, "--help").out


def test_the_first_page_says_where_to_begin(run: Run) -> None:
    assert "\n\nFirst steps\n  plugbay new weather " in run("--help").out


@pytest.mark.parametrize("group", [*GROUPS, *RESOURCES])
def test_a_group_shows_examples_as_well(run: Run, group: str) -> None:
    assert f"Examples\n  plugbay {group} " in run(group, "--help").out


def examples() -> list[str]:
    """Every line of every page that begins with a command of ours."""
    epilogs = [
        FIRST_STEPS,
        *(command.examples for command in LISTED.values()),
        *(resource.examples for resource in RESOURCES.values()),
    ]
    for group in (load(command.home) for command in LISTED_GROUPS.values()):
        epilogs += [str(group.info.epilog), *(str(command.epilog) for command in group.registered_commands)]
    lines = dict.fromkeys(line.strip() for epilog in epilogs for line in epilog.splitlines())
    return [line for line in lines if line.startswith("plugbay ")]


@pytest.mark.parametrize("line", examples())
def test_every_example_is_understood(line: str) -> None:
    words = shlex.split(line.partition("  ")[0].partition(" | ")[0].partition(" < ")[0])[1:]
    command: Any = typer.main.get_command(app_for(words[0]))
    context, rest = command.make_context("plugbay", list(words)), words
    while hasattr(command, "commands"):
        _, command, rest = command.resolve_command(context, rest)
        context = command.make_context(command.name, list(rest), parent=context)
    assert context.command.callback is not None


def test_there_are_examples() -> None:
    assert len(examples()) > 60


def test_on_a_terminal_the_page_is_coloured_and_fits(on_terminal: Callable[..., str]) -> None:
    assert "\x1b[" in on_terminal("call", "--help")
    plain = on_terminal("doctor", "--help", NO_COLOR="1")
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 80


def test_a_docstring_becomes_paragraphs_of_one_line() -> None:
    assert paragraphs("One\n  line.\n\n  Another\n  one.\n") == ["One line.", "Another one."]
    assert paragraphs(None) == []


@pytest.mark.parametrize("command", ["show", "set", "secret"])
def test_each_command_about_settings_explains_itself(run: Run, command: str) -> None:
    done = run("config", command, "-h")
    assert done.code == 0
    assert f"Usage: plugbay config {command}" in done.out
