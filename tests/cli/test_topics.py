"""`plugbay help TOPIC` explains concepts; each command that a topic shows exists."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer

from plugbay.cli.app import app_for
from plugbay.cli.exit_codes import Exit
from plugbay.cli.topics import TOPICS
from tests.cli.conftest import Run


def test_without_a_topic_it_lists_all_of_them(run: Run) -> None:
    done = run("help")
    assert (done.code, done.err) == (0, "")
    listed = [line.split()[0] for line in done.out.partition("Topics\n")[2].splitlines()]
    assert listed == [*TOPICS]
    assert {"grants", "sandbox", "contracts", "bindings"} <= {*listed}
    assert list(run("help", "--json").json["topics"]) == listed


def test_a_topic_has_a_text_examples_and_its_page(run: Run) -> None:
    done = run("help", "Grants")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("grants: What a plugin requests, and what it gets\n\nA manifest requests capabilities")
    assert "\n\nExamples\n  plugbay grant weather tool.execute\n" in done.out
    assert done.out.endswith("\n\nMore\n  docs/operate.md#grants\n")
    assert run("help", "grants", "--json").json["page"] == "docs/operate.md#grants"


def test_a_topic_with_the_name_of_a_command_names_the_help_page_of_the_command(run: Run) -> None:
    assert run("help", "sandbox").out.endswith("\n\nMore\n  docs/sandbox.md\n  plugbay sandbox --help\n")


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_fits_one_screen_and_its_commands_exist(name: str) -> None:
    topic = TOPICS[name]
    *paragraphs, examples = topic.text.split("\n\n")
    assert paragraphs and len(topic.text.splitlines()) < 25
    assert not topic.summary.endswith(".") and all(text.endswith(".") for text in paragraphs)
    for line in examples.splitlines():
        words = shlex.split(line)
        assert words[0] == "plugbay"
        command: Any = typer.main.get_command(app_for(words[1]))
        context, rest = command.make_context("plugbay", words[1:]), words[1:]
        while hasattr(command, "commands"):
            _, command, rest = command.resolve_command(context, rest)
            context = command.make_context(command.name, list(rest), parent=context)
        assert context.command.callback is not None


def test_the_name_of_a_command_shows_its_help_page(run: Run) -> None:
    assert run("help", "call").out == run("call", "--help").out
    assert run("help", "binding").out == run("binding", "--help").out


def test_an_unknown_word_is_not_found_and_near_ones_are_named(run: Run) -> None:
    done = run("help", "grant5")
    assert done.code == Exit.NOT_FOUND
    assert done.err.startswith("error: there is no topic and no command 'grant5'\nhint:  did you mean grant")
    assert "plugbay help lists the topics" in run("help", "qqqqqq").err
