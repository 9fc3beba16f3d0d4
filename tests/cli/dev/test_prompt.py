"""Parsing of typed lines. `test_command` tests the prompt on a real terminal."""

from __future__ import annotations

import pytest

from plugbay.cli.dev.prompt import COMMAND_HELP, COMMANDS, Command, Prompt, parse


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("", None),
        ("   ", None),
        ("greet", Command("call", "greet", "{}")),
        ('greet {"name": "A b"}', Command("call", "greet", '{"name": "A b"}')),
        ("  call greet  [1, 2] ", Command("call", "greet", "[1, 2]")),
        ("call reload", Command("call", "reload", "{}")),
        ("reload", Command("reload")),
        ("reload {}", Command("call", "reload", "{}")),
        ("?", Command("help")),
        ("q", Command("quit")),
        ("exit", Command("quit")),
        ("!", Command("again")),
    ],
)
def test_a_line_is_a_command_or_a_call(line: str, meaning: Command | None) -> None:
    assert parse(line) == meaning


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_means_itself_and_is_explained(command: str) -> None:
    assert parse(command) == Command(command)
    assert command in COMMAND_HELP


def test_what_is_printed_while_nobody_is_asked_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with Prompt(lambda line: None, lambda: []).print_above():
        print("hello")
    assert capsys.readouterr().out == "hello\n"
