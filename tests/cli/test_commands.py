"""The list of commands: each is where the list says, with the summary that its docstring has."""

from __future__ import annotations

import inspect

import pytest

from plugbay.cli.app import load
from plugbay.cli.commands import COMMANDS, GROUPS, SECTIONS
from plugbay.cli.gateway.resources import RESOURCES
from plugbay.cli.help import summary


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_sentence_of_its_docstring(name: str) -> None:
    command = COMMANDS[name]
    assert command.summary == summary(inspect.getdoc(load(command.home)))
    assert load(command.home).__name__.rstrip("_") == name
    assert not command.parser or issubclass(load(command.parser), object)


@pytest.mark.parametrize("name", GROUPS)
def test_the_summary_of_a_group_is_its_help(name: str) -> None:
    group = load(GROUPS[name].home)
    assert (group.info.name, summary(group.info.help)) == (name, GROUPS[name].summary)


def test_each_command_is_in_one_section() -> None:
    listed = " ".join(SECTIONS.values()).split()
    assert sorted(listed) == sorted([*COMMANDS, *GROUPS, *RESOURCES])
