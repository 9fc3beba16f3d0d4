"""What lines mean. How the prompt behaves on a terminal is tested with the whole command."""

from __future__ import annotations

import pytest

from plugbay.cli.dev.prompt import COMMANDS, WORDS, Prompt, Typed, parse


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("", None),
        ("   ", None),
        ("greet", Typed("call", "greet", "{}")),
        ('greet {"name": "A b"}', Typed("call", "greet", '{"name": "A b"}')),
        ("  call greet  [1, 2] ", Typed("call", "greet", "[1, 2]")),
        ("call reload", Typed("call", "reload", "{}")),
        ("reload", Typed("reload")),
        ("reload {}", Typed("call", "reload", "{}")),
        ("?", Typed("help")),
        ("q", Typed("quit")),
        ("exit", Typed("quit")),
        ("!", Typed("again")),
    ],
)
def test_a_line_is_a_command_or_a_call(line: str, meaning: Typed | None) -> None:
    assert parse(line) == meaning


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_means_itself_and_is_explained(command: str) -> None:
    assert parse(command) == Typed(command)
    assert command in WORDS


def test_what_is_printed_while_nobody_is_asked_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with Prompt(lambda line: None, lambda: []).aside():
        print("hello")
    assert capsys.readouterr().out == "hello\n"
